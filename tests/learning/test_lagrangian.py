"""Tests of ros_rl.learning.lagrangian."""

import torch
from test_sac import batch_of

from ros_rl.learning.lagrangian import LagrangianArgs, LagrangianSac
from ros_rl.learning.replay import Streams
from ros_rl.learning.sac import Acted, SacArgs


def agent_of(**settings: float) -> LagrangianSac:
    return LagrangianSac(
        SacArgs(batch=32, hidden=(16, 16), discount=0.0, learning_rate=1e-2), 3, 2, Streams([0, 1]), LagrangianArgs(**settings)
    )


def train(agent: LagrangianSac, cost: torch.Tensor, steps: int = 150) -> None:
    draw, batch = torch.Generator().manual_seed(0), batch_of(2, 32)
    batch["cost"] = cost
    for _ in range(steps):
        agent.update(batch, torch.randn(2, 2, 32, 2, generator=draw))


def test_the_cost_critic_finds_the_cost_and_the_multiplier_grows_where_there_is_one():
    """Run 0 has cost 1 in every step, run 1 none."""
    agent, cost = agent_of(multiplier_rate=1e-2), torch.tensor([[1.0], [0.0]]).repeat(1, 32)
    train(agent, cost)
    batch = batch_of(2, 32)
    found = agent.cost_critic(batch["observation"], batch["action"])[0].mean(-1)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.0]), atol=0.1, rtol=0.0)
    assert 0.7 < agent.multiplier[0] < 1.6  # 150 updates of 1e-2 times about 1
    assert agent.multiplier[1] < 0.3


def test_a_cost_below_the_limit_takes_the_multiplier_back_to_zero_and_not_below():
    agent = agent_of(limit=2.0, multiplier_rate=1e-2)
    agent.multiplier = torch.full((2,), 0.1)
    train(agent, torch.ones(2, 32), 60)
    assert (agent.multiplier == 0.0).all()


def test_the_objective_is_the_value_less_the_weighted_cost():
    agent, batch = agent_of(), batch_of(2, 32)
    agent.multiplier = torch.tensor([0.0, 3.0])
    acted = Acted(batch["action"], torch.zeros(2, 32), None, None)
    value = agent.critic(batch["observation"], batch["action"]).amin(0)
    cost = agent.cost_critic(batch["observation"], batch["action"])[0]
    for _ in range(2):  # asking for it changes nothing
        torch.testing.assert_close(agent.objective(batch, acted), value - torch.tensor([[0.0], [3.0]]) * cost)
