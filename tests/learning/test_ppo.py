"""Tests of ros_rl.learning.ppo, mlp and checkpoint: gradients against autograd, ends of episodes, going on after a stop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from falling_point import FallingPoint
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode

from ros_rl.errors import RobotFault, UserError
from ros_rl.learning import checkpoint
from ros_rl.learning.mlp import Mlp, Parameters
from ros_rl.learning.ppo import Batch, Moments, Ppo, PpoArgs, advantages, log_prob_of, normalised, surrogate
from ros_rl.sim.fall_env import make_fall_env

ARGS = PpoArgs(copies=2, rollout=16, epochs=3, batch=8, hidden=(8, 8))


def ppo_of(args=ARGS, seed=0, iterations=10, **kwargs) -> Ppo:
    return Ppo(args, FallingPoint(args.copies, **kwargs), iterations, seed)


def torch_network(network: Mlp) -> torch.nn.Sequential:
    layers = []
    for weight, bias in network._arrays:
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias.copy())
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def gradient_of(network: torch.nn.Sequential) -> np.ndarray:
    pairs = zip(*[iter(network.parameters())] * 2, strict=True)
    return np.concatenate([np.concatenate([weight.grad.T.reshape(-1), bias.grad]) for weight, bias in pairs])


def test_the_gradient_is_that_of_autograd():
    """Of the whole loss: with ratios on both sides of the clip, advantages of both signs, the critic's error and the entropy."""
    ppo = ppo_of(replace(ARGS, entropy_weight=0.01))
    draw = np.random.default_rng(1)
    ppo.parameters.values[:] += 0.3 * draw.standard_normal(ppo.parameters.values.size).astype(np.float32)
    size = 64
    seen, action = draw.standard_normal((size, 2)).astype(np.float32), draw.standard_normal((size, 1)).astype(np.float32)
    old = (log_prob_of(action, ppo.actor(seen), ppo.log_std) + 0.3 * draw.standard_normal(size)).astype(np.float32)
    advantage, target = draw.standard_normal((2, size)).astype(np.float32)
    batch = Batch(seen, action, old, advantage, target, np.ones(size, bool))
    critic_loss = ppo._critic_gradient(seen, target)
    divergences = ppo._policy_gradient(batch, np.arange(size))

    actor, critic = torch_network(ppo.actor), torch_network(ppo.critic)
    log_std = torch.tensor(ppo.log_std.copy(), requires_grad=True)
    seen, action, old, advantage, target = map(torch.from_numpy, (seen, action, old, advantage, target))
    policy = torch.distributions.Independent(torch.distributions.Normal(actor(seen), log_std.exp()), 1)
    ratio = (policy.log_prob(action) - old).exp()
    assert (ratio < 0.8).any() and (ratio > 1.2).any()
    loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() - 0.01 * policy.entropy().mean()
    value_loss = 0.5 * ((critic(seen)[:, 0] - target) ** 2).mean()
    (loss + 0.5 * value_loss).backward()
    wanted = np.concatenate([gradient_of(actor), gradient_of(critic), log_std.grad.numpy()])
    np.testing.assert_allclose(ppo.parameters.gradient, wanted, rtol=1e-4, atol=1e-6)
    assert critic_loss == pytest.approx(value_loss.item(), rel=1e-5)
    np.testing.assert_allclose(divergences, (ratio - 1 - ratio.log()).detach().numpy(), rtol=1e-3, atol=1e-6)


def test_networks_give_the_same_for_few_rows_and_for_many():
    network = Mlp(Parameters(Mlp.size_of((3, 8, 8, 2)), 1e-3), 0, (3, 8, 8, 2), np.random.default_rng(0), 1.0)
    rows = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    wanted = torch_network(network)(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(network(rows), wanted, atol=1e-6)
    np.testing.assert_allclose(network.forward(rows)[-1].numpy(), wanted, atol=1e-6)
    weight = network._arrays[1][0]
    np.testing.assert_allclose(weight.T @ weight, 2.0 * np.eye(8), atol=1e-5)


def test_a_step_is_adams_and_a_long_gradient_is_scaled():
    parameters = Parameters(3, 0.1)
    parameters.gradient[:] = [3.0, 0.0, 4.0]
    assert parameters.descend(0.1, max_norm=0.5) == pytest.approx(5.0)
    np.testing.assert_allclose(parameters.gradient, [0.3, 0.0, 0.4], rtol=1e-6)
    np.testing.assert_allclose(parameters.values, [-0.1, 0.0, -0.1], rtol=1e-3)  # the first step of Adam has the length of its rate
    parameters.descend(0.0)
    np.testing.assert_allclose(parameters.values, [-0.1, 0.0, -0.1], rtol=1e-3)


def test_l3_a_time_limit_bootstraps_a_fall_does_not_and_nothing_crosses_either():
    column = lambda *values: np.array(values, float)[:, None]  # noqa: E731
    reward, value, following = column(1, 2, 3), column(0.5, 0.25, 4.0), column(0.25, 7.0, 9.0)
    nowhere, middle = column(0, 0, 0), column(0, 1, 0)
    last = 3 + 0.9 * 9 - 4
    cut = advantages(reward, value, following, nowhere, middle, 0.9, 0.8)[:, 0]
    second = 2 + 0.9 * 7 - 0.25
    np.testing.assert_allclose(cut, [1 + 0.9 * 0.25 - 0.5 + 0.72 * second, second, last])
    fallen = advantages(reward, value, following, middle, nowhere, 0.9, 0.8)[:, 0]
    np.testing.assert_allclose(fallen, [1 + 0.9 * 0.25 - 0.5 + 0.72 * 1.75, 1.75, last])
    both = advantages(np.c_[reward, reward], np.c_[value, value], np.c_[following, following], *(np.c_[nowhere, middle],) * 2, 0.9, 0.8)
    np.testing.assert_array_equal(both[:, 1], fallen)  # both at once is terminal; other copies do not matter
    np.testing.assert_allclose(both[:, 0], advantages(reward, value, following, nowhere, nowhere, 0.9, 0.8)[:, 0])


def test_the_last_observation_of_an_episode_is_valued_not_the_first_of_the_next():
    ppo = ppo_of(limit=5, goal=0.0, spread=0.1, reach=0.01)
    rollout = ppo._collect()
    assert not rollout.terminated.any()
    np.testing.assert_array_equal(rollout.ends[0], [4, 4, 9, 9, 14, 14])
    np.testing.assert_array_equal(rollout.truncated.sum(axis=1), np.bincount(rollout.ends[0], minlength=16))
    value, following = ppo._values(rollout, ppo.critic)
    wanted = ppo.critic(rollout.final)[:, 0]
    np.testing.assert_allclose(following[tuple(rollout.ends)], wanted, atol=1e-6)
    assert np.abs(following[4] - value[5]).min() > 1e-4
    inside = ~rollout.truncated[:-1]
    np.testing.assert_array_equal(following[:-1][inside], value[1:][inside])
    np.testing.assert_allclose(following[-1], ppo.critic(rollout.after)[:, 0], atol=1e-6)
    estimate, target = ppo._estimate(rollout)
    np.testing.assert_allclose(estimate[4], rollout.reward[4] + 0.99 * following[4] - value[4])
    np.testing.assert_allclose(target, estimate + value)


def test_normalisation_is_frozen_while_collecting_and_takes_everything_in_afterwards(monkeypatch):
    ppo = ppo_of()
    rollout = ppo._collect()
    np.testing.assert_allclose(rollout.observation, rollout.raw, atol=1e-6)  # mean 0 and variance 1 at first
    ppo, everything, collect = ppo_of(), [], Ppo._collect
    monkeypatch.setattr(Ppo, "_collect", lambda self: (rollout := collect(self), everything.append(rollout.raw.reshape(-1, 2)))[0])
    ppo.iterate()
    mean = ppo.moments.mean.copy()
    ppo.iterate()
    assert not np.array_equal(mean, ppo.moments.mean)
    np.testing.assert_allclose(ppo.moments.mean, np.concatenate(everything).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(ppo.moments.variance, np.concatenate(everything).var(axis=0), rtol=1e-9, atol=1e-12)
    far = Moments(1)
    assert far(np.array([[50.0]])) == 10.0


def test_advantages_are_normalised_over_chosen_steps_alone():
    advantage, chosen = np.array([1.0, 2.0, 100.0]), np.array([True, True, False])
    np.testing.assert_allclose(normalised(advantage, chosen)[:2], [-1.0, 1.0])
    np.testing.assert_array_equal(normalised(advantage, np.array([True, False, False])), advantage)
    np.testing.assert_array_equal(normalised(np.full(3, 2.0), chosen), np.zeros(3))  # no division by zero


def test_a_ratio_beyond_the_clip_has_no_gradient_where_it_would_go_on():
    old, advantage = np.zeros(4), np.array([1.0, 1.0, -1.0, -1.0])
    loss, weight, _ = surrogate(np.log([1.5, 0.5, 1.5, 0.5]), old, advantage, 0.2)
    np.testing.assert_allclose(weight, [0.0, -0.125, 0.375, 0.0])
    assert loss == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4)


def test_it_learns_and_the_rate_falls_to_zero():
    args = replace(ARGS, copies=8, rollout=64, batch=64, epochs=10, learning_rate=3e-3)
    ppo = ppo_of(args, iterations=25)
    rates = []
    descend = ppo.parameters.descend
    ppo.parameters.descend = lambda rate, *rest: (rates.append(rate), descend(rate, *rest))[1]
    returns = [ppo.iterate()["return"] for _ in range(25)]
    assert returns[-1] > 18.5  # of 20, of which a policy at rest gets 15
    assert returns[0] < 16
    assert rates[0] == 3e-3 and rates[-1] == pytest.approx(3e-3 / 25)
    there, far = ppo.policy(np.array([[0.5, 0.5], [-0.5, 0.5]]))[:, 0]
    assert abs(there) < 0.4 < far


def test_a_round_ends_when_the_policy_moves_too_far():
    ppo = ppo_of(replace(ARGS, target_kl=1e-9, epochs=50))
    steps = []
    descend = ppo.parameters.descend
    ppo.parameters.descend = lambda rate, *rest: (steps.append(rate), descend(rate, *rest))[1]
    ppo.iterate()
    assert len(steps) == 4  # one epoch


@pytest.mark.parametrize("kind", ["point", "halfcheetah", "ant"])
def test_l1_a_training_that_was_stopped_goes_on_bit_for_bit(kind, tmp_path):
    """Stopped inside episodes, with the optimiser warm; the time limit starts new ones in between."""

    def fresh() -> Ppo:
        environments = FallingPoint(2) if kind == "point" else make_fall_env(kind, 2, max_episode_steps=21)
        return Ppo(ARGS, environments, 10, 3)

    whole, stopped, resumed = fresh(), fresh(), fresh()
    for _ in range(5):
        whole.iterate()
    for _ in range(2):
        stopped.iterate()
    stopped.save(tmp_path / "run.npz")
    assert resumed.resume(tmp_path / "run.npz") == f"going on from {tmp_path / 'run.npz'}"
    np.testing.assert_array_equal(resumed.policy(stopped._observation), stopped.policy(stopped._observation))
    for _ in range(3):
        resumed.iterate()
    for one, other in zip(whole.state().values(), resumed.state().values(), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_l2_a_checkpoint_that_is_not_whole_is_named_and_the_one_before_is_taken(tmp_path):
    path = tmp_path / "folder" / "run.npz"
    assert ppo_of().resume(path) == "starting from zero"
    ppo = ppo_of()
    for _ in range(2):
        ppo.iterate()
        ppo.save(path)
    for broken in (b"", path.read_bytes()[:1000], path.read_bytes()[:-30], b"no archive at all"):
        path.write_bytes(broken)
        resumed = ppo_of()
        words = resumed.resume(path)
        assert words.startswith(f"{path} is not whole (") and words.endswith(f"going on from {checkpoint.previous(path)}")
        assert resumed.iteration == 1
    checkpoint.previous(path).write_bytes(b"")
    assert ppo_of().resume(path).endswith("starting from zero")


def test_a_checkpoint_of_other_networks_is_refused_with_both_shapes(tmp_path):
    class Wider(FallingPoint):
        def __init__(self):
            super().__init__(2)
            self.single_observation_space = Box(-np.inf, np.inf, (3,))

        def seen(self):
            return np.concatenate([super().seen(), np.zeros((2, 1))], axis=1)

    ppo = ppo_of()
    ppo.iterate()
    ppo.save(tmp_path / "run.npz")
    with pytest.raises(UserError, match=r"shape \(2, 2\), here are \(2, 3\)"):
        Ppo(ARGS, Wider(), 10, 0).resume(tmp_path / "run.npz")
    with pytest.raises(ValueError, match=r"shape \(211,\), these networks have \(675,\)"):
        ppo_of(replace(ARGS, hidden=(16, 16))).parameters.restore(ppo.state()["parameters"])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"iterations": 5}, "iterations = 10, asked for is 5"),
        ({"seed": 1}, "seed = 0, asked for is 1"),
        ({"args": replace(ARGS, clip=0.1)}, "ppo.clip = 0.2, asked for is 0.1"),
        ({"args": replace(ARGS, hidden=(8, 16))}, r"ppo.hidden = \[8, 8\], asked for is \[8, 16\]"),
    ],
)
def test_a_checkpoint_of_another_length_or_other_settings_is_refused(other, message, tmp_path):
    """The learning rate falls to zero over the iterations: going on with more or fewer belongs to no schedule."""
    ppo = ppo_of()
    ppo.iterate()
    ppo.save(tmp_path / "run.npz")
    with pytest.raises(UserError, match=f"run.npz: the checkpoint holds a training with {message}; train anew"):
        ppo_of(**other).resume(tmp_path / "run.npz")


def test_a_broken_checkpoint_does_not_take_the_place_of_the_whole_one_before(tmp_path):
    path, ppo = tmp_path / "run.npz", ppo_of()
    for _ in range(2):
        ppo.iterate()
        ppo.save(path)
    path.write_bytes(path.read_bytes()[:1000])
    ppo.save(path)
    path.write_bytes(b"")
    resumed = ppo_of()
    assert resumed.resume(path).endswith(f"going on from {checkpoint.previous(path)}") and resumed.iteration == 1


def test_adam_leaves_alone_what_has_no_gradient():
    """Warm, it would go on moving parameters whose gradient is zero; they stay, their moments too, and the others move as ever."""
    draw, one, other = np.random.default_rng(0), Parameters(6, 0.1), Parameters(6, 0.1)
    for gradient in draw.standard_normal((3, 6)).astype(np.float32):
        for parameters in (one, other):
            parameters.gradient[:] = gradient
            parameters.descend(0.1)
    before = one.state()
    one.gradient[:] = other.gradient[:] = draw.standard_normal(6)
    one.descend(0.1, only=slice(2, 5))
    other.gradient[[0, 1, 5]] = 0.0
    other.descend(0.1)
    after, moved = one.state(), other.state()
    held = [0, 1, 5]
    for name in ("values", "exp_avg", "exp_avg_sq"):
        np.testing.assert_array_equal(after[name][held], before[name][held])
        np.testing.assert_array_equal(after[name][2:5], moved[name][2:5])
    assert (moved["values"][held] != before["values"][held]).all()
    assert not one.gradient[held].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount": 1.01}, "discount must be within 0 and 1, got 1.01"),
        ({"trace": -0.1}, "trace must be within 0 and 1, got -0.1"),
        ({"discount": float("nan")}, "discount must be within 0 and 1, got nan"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"clip": 0.0}, "clip must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, got nan"),
        ({"hidden": ()}, "hidden must be widths of at least 1, got \\(\\)"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        replace(ARGS, **change)


def test_environments_that_would_hide_the_last_observation_are_refused():
    environments = FallingPoint(2)
    environments.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    with pytest.raises(UserError, match="autoreset must be off"):
        Ppo(ARGS, environments, 1, 0)
    with pytest.raises(UserError, match="3 environments for 2 copies"):
        Ppo(ARGS, FallingPoint(3), 1, 0)


@pytest.mark.parametrize("space", [Dict({"x": Box(-1.0, 1.0, (2,))}), Box(0, 1, (8, 8, 3)), Discrete(3)])
@pytest.mark.parametrize("which", ["observation", "action"])
def test_spaces_that_are_no_vectors_are_refused(space, which):
    environments = FallingPoint(2)
    setattr(environments, f"single_{which}_space", space)
    with pytest.raises(UserError, match=f"{which}s must be a Box of one dimension, got {type(space).__name__}"):
        Ppo(ARGS, environments, 1, 0)


def test_a_policy_that_diverged_is_a_fault():
    ppo = ppo_of()
    ppo.iterate()
    ppo.parameters.values[:] = np.nan
    with pytest.raises(RobotFault, match=r"its actions are not finite after 32 steps \(seed 0\)"):
        ppo.iterate()
    with pytest.raises(RobotFault, match="its actions are not finite"):
        ppo.policy(np.zeros((1, 2)))
