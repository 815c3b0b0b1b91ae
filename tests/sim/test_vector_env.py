"""Tests of ros_rl.sim.vector_env: autoreset, beside Gymnasium's own vector environment over the same single environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ros_rl.errors import RobotFault, UserError
from ros_rl.sim.gym import task_id

ID = task_id("cartpole_balance")
N = 3


def ours(mode: AutoresetMode):
    return gymnasium.make_vec(ID, num_envs=N, vectorization_mode="vector_entry_point", autoreset_mode=mode)


def same(mine, gymnasiums) -> None:
    """Compares infos: the same keys, masks, and values wherever the mask says that they count."""
    assert mine.keys() == gymnasiums.keys()
    for key, value in gymnasiums.items():
        if isinstance(value, dict):
            same(mine[key], value)
        elif key.startswith("_"):
            np.testing.assert_array_equal(mine[key], value, err_msg=key)
        else:
            for copy in np.flatnonzero(gymnasiums[f"_{key}"]):
                np.testing.assert_array_equal(mine[key][copy], value[copy], err_msg=key)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_does_what_gymnasiums_vector_environment_does(mode):
    """Copies fall at different times; observations, rewards, ends and infos are those of `SyncVectorEnv`, final ones included."""
    mine, theirs = ours(mode), SyncVectorEnv([lambda: gymnasium.make(ID)] * N, autoreset_mode=mode)
    assert mine.metadata["autoreset_mode"] == mode
    here, there = mine.reset(seed=0), theirs.reset(seed=0)
    np.testing.assert_array_equal(here[0], there[0])
    same(here[1], there[1])
    ends = 0
    for row in 0.3 * np.sign(np.random.default_rng(0).uniform(-1, 1, (120, N, 1))):
        here, there = mine.step(row), theirs.step(row)
        for one, other in zip(here[:4], there[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        same(here[4], there[4])
        ends += int(here[2].sum())
        if mode is AutoresetMode.SAME_STEP and here[2].any():
            assert all(row is not None for row in here[4]["final_obs"][here[2]])
    assert ends >= 3


def test_without_autoreset_the_caller_resets():
    env = ours(AutoresetMode.DISABLED)
    env.reset(seed=0)
    ended = np.zeros(N, dtype=bool)
    push = np.array([[1.0], [-1.0], [0.0]])
    while not ended.any():
        seen, _, terminated, _, _ = env.step(push)
        ended = terminated
    with pytest.raises(UserError, match=f"the episode of copy {np.flatnonzero(ended)[0]} has ended"):
        env.step(push)
    times = env.sim.time.copy()
    again, info = env.reset(seed=[10, 11, 12], options={"reset_mask": ended})
    np.testing.assert_array_equal(env.sim.time, np.where(ended, 0.0, times))
    np.testing.assert_array_equal(again[~ended], seen[~ended])
    np.testing.assert_array_equal(info["_is_success"], ended)
    fresh = ours(AutoresetMode.DISABLED).reset(seed=[10, 11, 12])[0]
    np.testing.assert_array_equal(again[ended], fresh[ended])
    env.step(np.zeros((N, 1)))


def test_a_copy_that_blew_up_comes_back_with_a_reset_of_its_own():
    """The others have gone on as if nothing had been."""
    env, calm = ours(AutoresetMode.NEXT_STEP), ours(AutoresetMode.NEXT_STEP)
    zeros = np.zeros((N, 1))
    for each in (env, calm):
        each.reset(seed=0)
        each.step(zeros)
    env.sim.qvel[1, 1] = 1e8
    for _ in range(2):
        with pytest.raises(RobotFault, match="copy 1 of 'cartpole' diverged"):
            env.step(zeros)
        calm.step(zeros)
    seen, _ = env.reset(seed=[None, 10, None], options={"reset_mask": np.arange(N) == 1})
    np.testing.assert_array_equal(seen[1], calm.reset(seed=[None, 10, None], options={"reset_mask": np.arange(N) == 1})[0][1])
    for _ in range(3):
        here, there = env.step(zeros), calm.step(zeros)
        np.testing.assert_array_equal(here[0], there[0])
        assert not here[2].any() and not here[3].any()


def test_bad_input_is_one_line():
    env = ours(AutoresetMode.NEXT_STEP)
    for seed in (1.5, "a", True, -1):
        for given in (seed, [1, seed, None]):
            with pytest.raises(UserError, match=f"a seed is a whole number from 0 on, got {seed!r}"):
                env.reset(seed=given)
        with pytest.raises(UserError, match=f"a seed is a whole number from 0 on, got {seed!r}"):
            gymnasium.make(ID).reset(seed=seed)
    np.testing.assert_array_equal(env.reset(seed=np.int64(3))[0], env.reset(seed=np.array([3, 4, 5]))[0])
    with pytest.raises(UserError, match="2 seeds for 3 environments"):
        env.reset(seed=[1, 2])
    with pytest.raises(UserError, match="reset_mask must be 3 bools with at least one True, got bool of shape"):
        env.reset(options={"reset_mask": np.zeros(N, dtype=bool)})
    with pytest.raises(UserError, match=r"unknown reset option 'mask' \(known: reset_mask\)"):
        env.reset(options={"mask": 1})
    with pytest.raises(UserError, match="unknown autoreset mode 'Never'"):
        gymnasium.make_vec(ID, num_envs=N, autoreset_mode="Never")
    with pytest.raises(UserError, match="unknown render mode 'human'"):
        gymnasium.make_vec(ID, num_envs=N, render_mode="human")
