"""Tests of ros_rl.sim.vector_env: autoreset, beside Gymnasium's own vector environment over the same single environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ros_rl.errors import UserError
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


def test_bad_input_is_one_line():
    env = ours(AutoresetMode.NEXT_STEP)
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
