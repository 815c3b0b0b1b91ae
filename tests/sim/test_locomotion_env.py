"""Tests of ros_rl.sim.locomotion_env: the same numbers as Gymnasium's own environments."""

import gymnasium
import numpy as np
import pytest

import ros_rl.sim.gym  # noqa: F401
from ros_rl.errors import UserError
from ros_rl.sim.locomotion_env import HalfCheetahVectorEnv

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


@pytest.mark.parametrize("name", ["HalfCheetah", "Ant"])
def test_an_episode_lasts_as_long_as_gymnasiums_or_as_asked_for(name):
    assert gymnasium.spec(f"ros_rl/{name}-v0").max_episode_steps == gymnasium.spec(f"{name}-v5").max_episode_steps == 1000
    for steps, last in (({}, 1000), ({"max_episode_steps": 1500}, 1500)):
        single = gymnasium.make(f"ros_rl/{name}-v0", **steps)
        batch = gymnasium.make_vec(f"ros_rl/{name}-v0", num_envs=1, vectorization_mode="vector_entry_point", **steps)
        assert single.spec.max_episode_steps == batch.spec.kwargs["max_episode_steps"] == last
        zeros = np.zeros(single.action_space.shape)
        single.reset(seed=0)
        batch.reset(seed=0)
        ends = [(single.step(zeros)[3], batch.step(zeros[None])[3][0]) for _ in range(last)]
        assert ends[-1] == (True, True) and not any(map(any, ends[:-1]))


@pytest.mark.parametrize("steps", [None, -1])
def test_an_episode_without_a_limit(steps):
    env = HalfCheetahVectorEnv(1, steps)
    env.reset(seed=0)
    assert not any(env.step(np.zeros((1, 6)))[3][0] for _ in range(1100))


def test_a_last_step_that_terminates_is_truncated_too_as_gymnasium_has_it():
    """The ant falls on its back in the course of these actions; the limit is put on that very step."""
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (400, 1, 8))

    def first_end(env):
        env.reset(seed=0)
        for step, row in enumerate(actions, 1):
            _, _, terminated, truncated, _ = env.step(row)
            if terminated[0] or truncated[0]:
                return step, bool(terminated[0]), bool(truncated[0])
        raise AssertionError("the ant did not fall")

    step, *_ = first_end(both("Ant", 1)[0])
    limited = [gymnasium.make_vec("ros_rl/Ant-v0", vectorization_mode="vector_entry_point", max_episode_steps=step)]
    limited.append(gymnasium.make_vec("Ant-v5", vectorization_mode="sync", max_episode_steps=step))
    limited.append(gymnasium.make_vec("ros_rl/Ant-v0", vectorization_mode="sync", max_episode_steps=step))
    assert [first_end(env) for env in limited] == [(step, True, True)] * 3


@pytest.mark.parametrize("steps", [0, -2, 1.5, "x"])
def test_a_limit_that_is_none_is_refused(steps):
    with pytest.raises(UserError, match=f"max_episode_steps must be a whole number from 1 on, or -1 for no limit, got {steps!r}"):
        HalfCheetahVectorEnv(1, steps)
