"""Tests of ros_rl.sim.fall_env: instability by hand, falls, and rewards that stay Gymnasium's."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.sim.fall_env import make_fall_env


def put(env, qpos: np.ndarray) -> None:
    env.copies.qpos[:] = qpos


def test_the_cheetahs_instability_is_its_pitch():
    env = make_fall_env("halfcheetah", 3)
    env.reset(seed=0)
    env.copies.qpos[:, 2] = [0.0, -np.pi / 4, np.pi / 2]
    np.testing.assert_allclose(env.instability(), [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(env.judge()[1], [False, False, True])


def test_the_ants_instability_is_its_tilt_about_any_axis():
    env = make_fall_env("ant", 4)
    env.reset(seed=0)
    half = np.deg2rad([0.0, 30.0, 75.0, 180.0]) / 2
    env.copies.qpos[:, 3:7] = np.stack([np.cos(half), 0.6 * np.sin(half), 0.8 * np.sin(half), 0 * half], axis=1)
    np.testing.assert_allclose(env.instability(), [0.0, 0.4, 1.0, 2.4], atol=1e-7)
    turned = np.deg2rad(90.0) / 2
    env.copies.qpos[:, 3:7] = [np.cos(turned), 0.0, 0.0, np.sin(turned)]  # yaw alone is no tilt
    np.testing.assert_allclose(env.instability(), 0.0, atol=1e-7)
    env.copies.qpos[:, 2] = 1.5  # no end by height
    assert not env.judge()[1].any()


@pytest.mark.parametrize(("name", "size"), [("halfcheetah", 17), ("ant", 27)])
def test_episodes_end_by_falls_and_rewards_are_the_standard_ones(name, size):
    env = make_fall_env(name, 4)
    observation, info = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == (4, size)
    assert set(info) >= {"rho"} and (info["rho"] < 1).all()
    draw, falls = np.random.default_rng(0), 0
    for _ in range(400):
        actions = draw.uniform(-1, 1, env.action_space.shape)
        _, reward, terminated, truncated, info = env.step(actions)
        np.testing.assert_array_equal(terminated, info["rho"] >= 1.0)
        healthy = (1.0 if name == "ant" else 0.0) * info.get("reward_survive", 0.0)
        np.testing.assert_allclose(reward, info["reward_forward"] + info["reward_ctrl"] + info.get("reward_contact", 0.0) + healthy)
        falls += terminated.sum()
        if (over := terminated | truncated).any():
            env.reset(options={"reset_mask": over})
    assert falls > 0


@pytest.mark.parametrize("name", ["halfcheetah", "ant"])
def test_an_environment_goes_on_bit_for_bit_from_a_state(name):
    one, other = make_fall_env(name, 3, max_episode_steps=25), make_fall_env(name, 3, max_episode_steps=25)
    draw = np.random.default_rng(0)
    actions = draw.uniform(-1, 1, (40, *one.action_space.shape))

    def go(env, rows):
        seen = []
        for row in rows:
            observation, reward, terminated, truncated, info = env.step(row)
            if (over := terminated | truncated).any():
                observation, _ = env.reset(options={"reset_mask": over})
            seen.append(np.concatenate([observation, reward[:, None], info["rho"][:, None]], axis=1))
        return np.array(seen)

    one.reset(seed=0), other.reset(seed=7)
    go(one, actions[:15])
    other.restore(one.state())
    np.testing.assert_array_equal(go(one, actions[15:]), go(other, actions[15:]))


def test_states_and_names_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="unknown environment 'halfcheeta', did you mean 'halfcheetah'"):
        make_fall_env("halfcheeta", 1)
    one = make_fall_env("halfcheetah", 2)
    one.reset(seed=0)
    with pytest.raises(UserError, match=r"simulations of shape \(2, .*these have \(3, "):
        make_fall_env("halfcheetah", 3).restore(one.state())


def test_the_quadruped_stands_without_an_action_and_is_rewarded_for_walking():
    env = make_fall_env("quadruped", 3)
    env.reset(seed=0)
    for _ in range(20):
        _, reward, terminated, truncated, info = env.step(np.zeros((3, 12)))
        assert not (terminated | truncated).any() and (info["rho"] < 0.28).all()
    np.testing.assert_allclose(reward, np.exp(-3.6) + 0.2, atol=0.02)
    env.copies.qpos[:, 3:7] = [1.0, 0.0, 0.0, 0.0]
    env.copies.qvel[:, 0] = [0.6, 0.0, 0.9]
    env.walker.action[:] = [[0.0], [0.5], [0.0]]
    np.testing.assert_allclose(env.judge()[0], [1.2, np.exp(-3.6) + 0.2 - 0.03, np.exp(-0.9) + 0.2], atol=1e-9)


def test_the_quadruped_falls_by_large_random_actions():
    env, draw = make_fall_env("quadruped", 4), np.random.default_rng(0)
    env.reset(seed=0)
    falls, action = 0, np.zeros((4, 12))
    for _ in range(300):
        action = np.clip(0.9 * action + 0.44 * draw.standard_normal((4, 12)), -1.0, 1.0)
        _, _, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(terminated, info["rho"] >= 1.0)
        falls += terminated.sum()
        if (over := terminated | truncated).any():
            env.reset(options={"reset_mask": over})
    assert falls > 0
