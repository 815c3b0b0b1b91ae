"""Tests of ros_rl.sim.locomotion_env: the same numbers as Gymnasium's own environments."""

import gymnasium
import numpy as np
import pytest

import ros_rl.sim.gym  # noqa: F401

STEPS = 100


def both(name: str, n: int):
    theirs = gymnasium.make_vec(f"{name}-v5", num_envs=n, vectorization_mode="sync")
    ours = gymnasium.make_vec(f"ros_rl/{name}-v0", num_envs=n, vectorization_mode="vector_entry_point")
    return ours, theirs


@pytest.mark.parametrize("name", ["HalfCheetah", "Ant"])
def test_agrees_with_gymnasium_step_by_step(name):
    """From the same seeds, with actions beyond their range among them, through episode ends and the autoreset after them."""
    ours, theirs = both(name, 3)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    here, there = ours.reset(seed=5)[0], theirs.reset(seed=5)[0]
    np.testing.assert_allclose(here, there, rtol=0, atol=1e-9)
    draw = np.random.default_rng(0)
    ends = 0
    for _ in range(STEPS):
        actions = draw.uniform(-1.2, 1.2, ours.action_space.shape)
        here, there = ours.step(actions), theirs.step(actions)
        for mine, gymnasiums in zip(here[:2], there[:2], strict=True):
            np.testing.assert_allclose(mine, gymnasiums, rtol=0, atol=1e-9)
        for mine, gymnasiums in zip(here[2:4], there[2:4], strict=True):
            np.testing.assert_array_equal(mine, gymnasiums)
        ends += here[2].sum()
        running = there[4].get("_x_velocity", np.zeros(3, dtype=bool))
        for key in here[4]:
            if not key.startswith("_"):
                np.testing.assert_allclose(here[4][key][running], there[4][key][running], rtol=0, atol=1e-9, err_msg=key)
    assert ends > 0 or name == "HalfCheetah"


@pytest.mark.parametrize("name", ["HalfCheetah", "Ant"])
def test_the_time_limit_truncates(name):
    env = gymnasium.make_vec(f"ros_rl/{name}-v0", num_envs=2, vectorization_mode="vector_entry_point", max_episode_steps=3)
    env.reset(seed=0)
    zeros = np.zeros(env.action_space.shape)
    assert [env.step(zeros)[3].all() for _ in range(4)] == [False, False, True, False]
    assert [env.step(zeros)[3].all() for _ in range(3)] == [False, False, True]
