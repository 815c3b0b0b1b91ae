"""Tests of ros_rl.learning.sac against theory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from ros_rl.learning.replay import Streams
from ros_rl.learning.sac import Sac, SacArgs, bootstrapped, log_prob_of_tanh
from ros_rl.safety.autosafe import Sharpness

ARGS = SacArgs(batch=32, hidden=(16, 16))


def agent_of(runs: int = 2, sharpness: Sharpness | None = None, args: SacArgs = ARGS) -> Sac:
    return Sac(args, 3, 2, Streams(range(runs)), sharpness)


def batch_of(runs: int = 2, size: int = 32, margin: float | None = None) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    vector = lambda width: torch.rand(runs, size, width, generator=draw) * 2 - 1  # noqa: E731
    scalar = lambda: torch.rand(runs, size, generator=draw)  # noqa: E731
    batch = {"observation": vector(3), "next_observation": vector(3), "action": vector(2), "reward": scalar(), "cost": scalar().round()}
    batch |= {"safe_action": vector(2), "next_safe_action": vector(2), "margin": scalar(), "next_margin": scalar()}
    batch["terminated"] = (scalar() < 0.1).float()
    if margin is not None:
        batch["margin"] = torch.full((runs, size), margin)
    return batch


def test_the_log_probability_is_that_of_a_tanh_gaussian():
    mean, log_std, noise = (torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in range(3))
    before = mean + log_std.exp() * noise
    theirs = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform(cache_size=1)])
    far = before.abs().amax(-1) < 8  # beyond, torch's own inverse rounds
    torch.testing.assert_close(
        log_prob_of_tanh(before, noise, log_std)[far], theirs.log_prob(torch.tanh(before))[far], rtol=1e-6, atol=1e-6
    )


def test_the_log_probability_is_finite_where_tanh_rounds_to_one():
    before = torch.tensor([[40.0], [-40.0]])
    assert torch.isfinite(log_prob_of_tanh(before, torch.zeros(2, 1), torch.zeros(2, 1))).all()


def test_a_terminated_step_has_no_future_and_any_other_has():
    value = bootstrapped(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([5.0, 5.0]), 0.9)
    torch.testing.assert_close(value, torch.tensor([1.0, 5.5]))


def test_the_critics_find_the_values_of_a_chain_of_two_states():
    """State 0 pays 1 and leads to 1, state 1 pays 2 and leads back: V(0) = (1 + 2γ)/(1 - γ²), V(1) = (2 + γ)/(1 - γ²)."""
    discount = 0.5
    agent = agent_of(1, args=SacArgs(discount=discount, target_rate=0.1, learning_rate=3e-3, batch=64, hidden=(32, 32)))
    with torch.no_grad():
        agent.log_temperature.fill_(-30.0)  # no entropy in the values
    draw = torch.Generator().manual_seed(0)
    first = torch.zeros(1, 64)
    first[:, ::2] = 1.0
    one_hot = lambda on: torch.stack([on, 1 - on, torch.zeros_like(on)], -1)  # noqa: E731
    batch = {
        "observation": one_hot(first),
        "next_observation": one_hot(1 - first),
        "reward": 2 - first,
        "terminated": torch.zeros(1, 64),
        **{name: torch.zeros(1, 64) for name in ("margin", "next_margin")},
        **{name: torch.zeros(1, 64, 2) for name in ("safe_action", "next_safe_action")},
    }
    for _ in range(400):
        batch["action"] = torch.rand(1, 64, 2, generator=draw) * 2 - 1
        agent._update_critic(batch, torch.randn(1, 64, 2, generator=draw))
        agent._track(agent.target, agent.critic)
    values = agent.critic(batch["observation"], batch["action"]).detach()[:, 0, :2].numpy()
    expected = np.array([1 + 2 * discount, 2 + discount]) / (1 - discount**2)
    np.testing.assert_allclose(values, [expected, expected], atol=0.1)


@pytest.mark.parametrize("sharpness", [None, Sharpness(0.0, 2.0)])
def test_a_bandit_is_solved(sharpness):
    """Reward -(a - 0.4)² without a future: tanh of the mean goes to 0.4, and so does the mixed action where the weight is small."""
    agent = agent_of(2, sharpness, SacArgs(discount=0.0, learning_rate=1e-2, batch=64, hidden=(32, 32)))
    draw, batch = torch.Generator().manual_seed(0), batch_of(2, 64)
    for name in ("margin", "next_margin"):
        batch[name] = torch.full((2, 64), 0.8)
    for _ in range(300):
        batch["action"] = torch.rand(2, 64, 2, generator=draw) * 2 - 1
        batch["reward"] = -((batch["action"] - 0.4) ** 2).sum(-1)
        agent.update(batch, torch.randn(2, 2, 64, 2, generator=draw))
    action = agent.act(batch["observation"], batch["margin"], batch["safe_action"], None).action
    assert (action - 0.4).abs().mean() < 0.12


def test_the_target_of_the_critics_has_no_gradient():
    assert not agent_of(2, Sharpness(0.0, 2.0)).target_value(batch_of(), torch.randn(2, 32, 2)).requires_grad


def value_gradients(margin: float) -> dict[str, torch.Tensor]:
    """The gradient of the value part of the actor's loss, for the trunk, the mean's and the sharpness' columns."""
    agent, batch = agent_of(1, Sharpness(0.0, 2.0)), batch_of(1, margin=margin)
    acted = agent.act(batch["observation"], batch["margin"], batch["safe_action"], torch.zeros(1, 32, 2))
    layers = agent.actor.layers
    trunk, head = torch.autograd.grad(-agent.objective(batch, acted).mean(), [layers.weights[0], layers.weights[-1]])
    return {"trunk": trunk, "mean": head[..., :2], "sharpness": head[..., -1]}


def test_the_gradient_of_the_value_passes_the_mixture_and_ends_where_the_safe_action_is_alone():
    inside, boundary = value_gradients(0.5), value_gradients(0.0)
    assert all(gradient.abs().max() > 0 for gradient in inside.values())
    assert all(gradient.abs().max() == 0 for gradient in boundary.values())


def test_in_the_centre_only_the_sharpness_gets_no_gradient():
    centre = value_gradients(1.0)
    assert centre["mean"].abs().max() > 0
    assert centre["sharpness"].abs().max() == 0


def test_an_update_moves_the_sharpness_and_no_action_leaves_its_range():
    agent, batch = agent_of(2, Sharpness(0.0, 2.0)), batch_of()
    before = agent.actor.layers.weights[-1][..., -1].clone()
    agent.update(batch, torch.randn(2, 2, 32, 2))
    assert (agent.actor.layers.weights[-1][..., -1] != before).any()
    many = [torch.rand(2, 50_000, width) * 2 - 1 for width in (3, 2)]
    acted = agent.act(many[0], torch.rand(2, 50_000), many[1], 3 * torch.randn(2, 50_000, 2))
    assert acted.action.abs().max() <= 1.0


def test_a_run_learns_the_same_whichever_runs_train_beside_it():
    together = Sac(ARGS, 3, 2, Streams([5, 6, 7]), Sharpness(0.0, 2.0))
    alone = Sac(ARGS, 3, 2, Streams([6]), Sharpness(0.0, 2.0))
    batch, noise = batch_of(3), torch.randn(2, 3, 32, 2, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        figures = together.update(batch, noise)
        mine = alone.update({name: value[1:2] for name, value in batch.items()}, noise[:, 1:2])
    torch.testing.assert_close(mine["critic_loss"], figures["critic_loss"][1:2], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(alone.actor.parameters(), together.actor.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs[1:2], rtol=1e-4, atol=1e-5)


def test_a_correction_adds_its_share_to_the_nominal_action_before_the_mixture():
    plain, corrected = (agent_of(args=replace(ARGS, correction=share), sharpness=Sharpness.fixed(1.0)) for share in (None, 0.4))
    batch, noise = batch_of(), torch.randn(2, 32, 2, generator=torch.Generator().manual_seed(3))
    inputs = batch["observation"], batch["margin"], batch["safe_action"]
    with torch.no_grad():
        own, mixed = (agent.act(batch["observation"], torch.ones(2, 32), batch["safe_action"], noise) for agent in (plain, corrected))
        torch.testing.assert_close(mixed.action, batch["observation"][..., 1:] + 0.4 * own.action)
        torch.testing.assert_close(mixed.log_prob, own.log_prob)
        whole = corrected.act(*inputs, noise)
        weight = whole.weight[..., None]
        torch.testing.assert_close(whole.action, (1 - weight) * mixed.action + weight * batch["safe_action"])
        uniform = torch.rand(2, 32, 2, generator=torch.Generator().manual_seed(4)) * 2 - 1
        torch.testing.assert_close(
            corrected.warm_up(batch["observation"], torch.ones(2, 32), batch["safe_action"], uniform).action,
            batch["observation"][..., 1:] + 0.4 * uniform,
        )
