from dataclasses import replace

import numpy as np
import pytest
from token_samples import make_model, make_task, turning

from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot, Snapshot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.learning.token_rollout import Request, Start, TokenWorld, left_behind, run_requests
from ros_rl.policies.runner import PolicyRunner
from ros_rl.policies.vla import VlaPolicy
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import TaskMonitor


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return make_task(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def world(task):
    world = TokenWorld(task, load_robot("arm"), copies=3, threads=1)
    yield world
    world.close()


def requests_of(world, streams, seed=5):
    start = world.starts([seed])[0]
    return [Request(start, world.task.instruction, stream) for stream in streams]


def test_episodes_of_a_group_start_bit_identical_and_differ_only_by_their_random_numbers(world):
    traces = run_requests(make_model(), world, requests_of(world, [(1,), (2,), (3,), (1,)]), 1.0)
    for trace in traces[1:]:
        assert np.array_equal(trace.images[0], traces[0].images[0])
        assert np.array_equal(trace.position[0], traces[0].position[0])
    assert not np.array_equal(traces[0].tokens[0], traces[1].tokens[0])
    # The fourth ran in another batch than the first, with the same numbers.
    for name in ("tokens", "position", "images"):
        assert np.array_equal(getattr(traces[0], name), getattr(traces[3], name)), name


def test_a_task_runs_as_behind_the_guard_of_one_robot(task, world):
    """The same tokens, positions and end as `run_episode` has: decisions see images taken at their own time."""
    model, robot = make_model(), load_robot("arm")
    policy = VlaPolicy(make_model(temperature=1.0).to_bundle("b", "random", {}, {}), robot)
    simulated = GuardedRobot(MujocoRobot(robot, task, cameras=["small"]), Guard(robot))
    steps: list[Step] = []
    runner, stage = PolicyRunner(policy, seed=9), SafetyStage(robot, PassThrough())
    state = run_episode(simulated, runner, stage, 5, 200, TaskMonitor(task, robot), steps.append)
    simulated.close()
    (trace,) = run_requests(model, world, requests_of(world, [(9,)]), 1.0)
    decided = steps[:: model.spec.chunk]
    assert len(decided) == len(trace.tokens) >= 2
    for step, position in zip(decided, trace.position, strict=True):
        assert np.array_equal(step.observation.joint_position, position)
    assert state is not None
    assert (state.success, state.truncated) == (trace.success, trace.truncated)


def test_an_episode_ends_by_success_or_by_its_time_limit(world):
    traces = run_requests(make_model(), world, requests_of(world, [(i,) for i in range(6)]), 1.0)
    for trace in traces:
        assert trace.success == trace.terminated != trace.truncated
        assert len(trace.tokens) == len(trace.position) == len(trace.images) >= 1
    assert all(np.isclose(trace.seconds, 0.6) for trace in traces if trace.truncated)


def test_temperature_0_has_no_randomness(world):
    one, other = run_requests(make_model(), world, requests_of(world, [(1,), (2,)]), 0.0)
    assert np.array_equal(one.tokens, other.tokens)


def test_an_episode_whose_simulation_diverges_has_failed_and_the_others_go_on(world):
    alone = run_requests(make_model(), world, requests_of(world, [(1,), (3,)]), 1.0)
    good = requests_of(world, [(1,), (2,), (3,)])
    world.sim.qvel[0] = 1e12
    wild = replace(good[1], start=Start(world.sim.snapshot([0])[0], good[1].start.target))
    one, bad, other = run_requests(make_model(), world, [good[0], wild, good[2]], 1.0)
    assert (bad.diverged, bad.terminated, bad.success, bad.truncated) == (True, True, False, False)
    assert len(bad.tokens) >= 1 and bad.seconds < 0.6
    for trace, expected in ((one, alone[0]), (other, alone[1])):
        assert not trace.diverged and trace.seconds == expected.seconds
        assert np.array_equal(trace.position, expected.position) and np.array_equal(trace.tokens, expected.tokens)
    assert not any(trace.diverged for trace in run_requests(make_model(), world, good, 1.0))


def test_the_state_is_kept_in_which_a_policy_was_left_unless_it_succeeded(task, world):
    says = dict.fromkeys([5, 6, 7, 8], task.instruction)  # on 3 copies: one part of them and one more
    # The task is done at 0.12 rad; in 0.6 s there are three chunks.
    slow, fast = turning(make_model(), 0.02), turning(make_model(), 0.1)
    states = dict(left_behind(slow, world, says))
    assert list(states) == [5, 6, 7, 8]
    trace = run_requests(slow, world, requests_of(world, [(6,)], seed=6), 0.0)[0]
    robot = MujocoRobot(load_robot("arm"), task)
    robot.restore(Snapshot(states[6], {}))
    found = robot.read()
    robot.close()
    assert trace.truncated and found.stamp == pytest.approx(0.6)
    world.begin(np.array([0]), [Start(states[6], np.zeros(8))])
    assert np.array_equal(world.position(np.array([0]))[0], found.joint_position)
    assert found.joint_position[0] - trace.position[0][0] == pytest.approx(0.06, abs=0.02)
    assert set(dict(left_behind(fast, world, says)).values()) == {None}
