"""Tests of ros_rl.learning.filtered_walk: robots side by side go the way that one goes through the stack."""

from dataclasses import replace

import numpy as np

from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.filtered_walk import FilteredWalk
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.quadruped_walk import correction_in, walk_in
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.recovery import RecoverySettings, load_recovery
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import load_task
from ros_rl.sim.walk_env import NOMINAL, WalkVectorEnv

ROBOT, TASK, WALK = load_robot("quadruped"), load_task("quadruped_walk"), load_bundle("quadruped_walk")
PLAIN = replace(NOMINAL, spread=False)
PUSHED, ACTIONS = 70, 150


def test_a_robot_goes_as_through_runner_filter_and_guard_into_recovery_and_out_of_it():
    robot = GuardedRobot(MujocoRobot(ROBOT, TASK), Guard(ROBOT))
    runner, recovery = PolicyRunner(load_policy(WALK, ROBOT)), load_recovery(ROBOT, "quadruped_recovery", RecoverySettings())
    stage = SafetyStage(ROBOT, recovery)
    robot.reset(4)
    expected, sources = [], []
    for period in range(4 * ACTIONS):
        if period == 4 * PUSHED:
            robot.robot.push(np.array([0.0, 0.8, 0.0]))
        observation = robot.read()
        command, _ = stage.apply(observation, runner.command(observation))
        sources.append(command.source)
        expected.append(robot.write(command).values)
        robot.step()
    robot.close()
    changes = sum(one != other for one, other in zip(sources[1:], sources[:-1], strict=True))
    assert changes >= 2 and sources[0] == sources[-1] == "quadruped_walk", "recovery begins and ends"

    environment = FilteredWalk(walk_in(WALK), 2, PLAIN, 1000, lambda: load_recovery(ROBOT, "quadruped_recovery", RecoverySettings()))
    environment.tell(TASK.command)
    sent: list[np.ndarray] = []
    command = environment.copies.command
    environment.copies.command = lambda target, copies: (sent.append(target[0].copy()), command(target, copies))
    seen, _ = environment.reset(seed=[4, 9])
    act = correction_in(WALK)
    for action in range(25, ACTIONS):
        if action == PUSHED:
            environment.push(np.array([[0.0, 0.8], [0.0, 0.0]]))
        seen, *_ = environment.step(act(seen))
    np.testing.assert_allclose(sent, expected, atol=1e-5)  # two rows of a network are not multiplied quite as one
    triggers = [report.values["triggers"] for report in environment.reports]
    assert triggers[0] >= 1 and triggers[1] == 0, "each robot has a filter of its own"


def test_a_filter_that_lets_everything_pass_changes_nothing():
    plain, filtered = WalkVectorEnv(walk_in(WALK), 3, NOMINAL), FilteredWalk(walk_in(WALK), 3, NOMINAL, 500, PassThrough)
    for environment in (plain, filtered):
        environment.tell([0.5, 0.0, 0.2])
        environment.reset(seed=1)
    draw = np.random.default_rng(0)
    for _ in range(10):
        action = draw.uniform(-1.0, 1.0, (3, 12))
        np.testing.assert_array_equal(plain.step(action)[0], filtered.step(action)[0])


def test_an_episode_of_a_robot_is_one_of_its_filter():
    class Counting(PassThrough):
        episodes = 0

        def reset(self):
            self.episodes += 1

    environment = FilteredWalk(walk_in(WALK), 3, PLAIN, 500, Counting)
    environment.reset(seed=0)
    before = np.array([one.episodes for one in environment.filters])
    environment.reset(options={"reset_mask": np.array([False, True, False])})
    assert [one.episodes for one in environment.filters] == (before + [0, 1, 0]).tolist() and (before >= 1).all()
