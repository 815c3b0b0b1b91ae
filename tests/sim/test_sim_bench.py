"""Tests of ros_rl.sim.bench: what is made of the times, and that all contestants do the same work."""

import gymnasium
import mujoco
import numpy as np
import pytest
from mujoco import rollout

from ros_rl.sim.bench import SUBJECTS, _figures, _replay
from ros_rl.sim.task_env import TaskVectorEnv


def test_figures_are_medians_of_turns():
    """The machine is half as fast in the second turn: speeds scatter, ratios within a turn do not."""
    turns = [
        {"ours": 1.0, "gymnasium_sync": 3.0, "gymnasium_async": 4.0, "envpool": 0.5, "rollout": 0.8},
        {"ours": 2.0, "gymnasium_sync": 6.0, "gymnasium_async": 7.0, "envpool": 1.0, "rollout": 1.6},
        {"ours": 1.0, "gymnasium_sync": 2.0, "gymnasium_async": 1.0, "envpool": 0.7, "rollout": 0.9},
    ]
    assert _figures(turns, 1200) == {
        "steps_per_second": {"ours": 1200, "gymnasium_sync": 400, "gymnasium_async": 300, "envpool": 1714, "rollout": 1333},
        "faster_gymnasium": "sync",
        "ratio": {"gymnasium": 3.0, "rollout": 0.8, "envpool": 0.5},
        "ratio_quartiles": {"gymnasium": [2.5, 3.0, 3.0], "rollout": [0.8, 0.8, 0.85], "envpool": [0.5, 0.5, 0.6]},
    }
    assert "envpool" not in _figures([{name: time for name, time in turns[0].items() if name != "envpool"}], 1200)["ratio"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_rollout_goes_where_the_environments_go(name):
    """Bit for bit, though limits cut the commands of the arm and the quadruped by where their joints are."""
    subject, steps = SUBJECTS[name], 5
    env = gymnasium.make_vec(subject.ours, num_envs=2, vectorization_mode="vector_entry_point")
    actions = np.random.default_rng(0).uniform(-subject.scale, subject.scale, (steps, *env.action_space.shape)).astype(np.float32)
    replay = _replay(subject, env, actions)
    env.reset(seed=0)
    for row in actions:
        env.step(row)
    mj = env.sim.mj
    states, _ = rollout.rollout(mj, [mujoco.MjData(mj)], replay.initial, replay.controls, initial_warmstart=replay.warmstart)
    np.testing.assert_array_equal(states[:, -1, 1 : 1 + mj.nq], env.sim.qpos)
    if isinstance(env, TaskVectorEnv):
        wanted = np.repeat(env.command(actions.astype(float)).swapaxes(0, 1), env.periods * env.model.substeps, axis=1)
        assert np.abs(replay.controls[..., env.model.actuators] - wanted).max() > 1e-3, "the limits have something to cut"
