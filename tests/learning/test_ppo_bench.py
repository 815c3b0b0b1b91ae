"""Tests of ros_rl.learning.ppo_bench: what is made of the times, and that the plain PPO is one."""

import numpy as np
import torch

from ros_rl.learning.ppo import PpoArgs, surrogate
from ros_rl.learning.ppo_bench import _Plain, figures, measure

ARGS = PpoArgs(copies=2, rollout=8, epochs=2, batch=8, hidden=(8, 8))


def test_figures_are_medians_of_turns():
    """The machine is half as fast in the second turn: speeds scatter, ratios within a turn do not."""
    seconds = [{"ours": 1.0, "plain": 3.0}, {"ours": 2.0, "plain": 6.0}, {"ours": 1.0, "plain": 4.0}]
    assert figures(seconds, 2048) == {
        "steps_per_second": {"ours": 2048, "plain": 512},
        "ratio": {"plain": 3.0},
        "ratio_quartiles": {"plain": [3.0, 3.0, 3.5]},
    }


def test_a_short_measurement_has_everyone_in_it():
    """Ours with more threads is a contestant of its own: the ratios are of one thread beside one."""
    seen = []
    found = measure(ARGS, 1, 2, lambda: seen.append(1))
    assert {"ours", "ours_threaded", "plain"} <= set(found["steps_per_second"]) and len(seen) == 2 * len(found["steps_per_second"])
    assert found["batch"] == 8 and all(rate > 0 for rate in found["steps_per_second"].values())
    assert "plain" in found["ratio"] and "ours_threaded" not in found["ratio"]
    assert found["threaded"]["threads"] == 2 and found["threaded"]["ratio"].keys() == found["ratio"].keys()
    assert "threaded" not in measure(ARGS, 1, 1)


def test_the_plain_ppo_descends_the_same_loss():
    plain = _Plain(ARGS)
    draw = torch.Generator().manual_seed(0)
    seen, action = torch.randn(16, 17, generator=draw), torch.randn(16, 6, generator=draw)
    old, advantage = torch.randn(16, generator=draw) - 6.0, torch.randn(16, generator=draw)
    moments = []
    plain.adam.step = lambda: moments.append(plain.log_std.grad.clone())
    plain.args = PpoArgs(max_norm=1e9)
    plain._descend(seen, action, old, advantage, torch.zeros(16))
    with torch.no_grad():
        mean = plain.actor(seen)
        log_prob = torch.distributions.Normal(mean, plain.log_std.exp()).log_prob(action).sum(1)
    scaled = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).numpy()
    _, weight, _ = surrogate(log_prob.numpy(), old.numpy(), scaled, 0.2)
    squares = (((action - mean) / plain.log_std.detach().exp()) ** 2 - 1.0).numpy()
    np.testing.assert_allclose(moments[0].numpy(), weight @ squares, rtol=1e-3, atol=1e-5)
