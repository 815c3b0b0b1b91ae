"""Tests of ros_rl.sim.batch: each copy goes exactly the way of a single robot."""

import numpy as np
import pytest

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.task import load_task, task_names

COPIES = 3


def commands(spec, steps: int) -> np.ndarray:
    """Random commands around rest, shape (steps, COPIES, n)."""
    noise = np.random.default_rng(0).normal(0.0, 0.05, (steps, COPIES, len(spec.joints)))
    return spec.rest(spec.home) + noise


@pytest.mark.parametrize("name", task_names())
def test_bit_identical_to_single_robots(name):
    task = load_task(name)
    spec = load_robot(task.robot)
    robots = [MujocoRobot(spec, task, seed) for seed in range(COPIES)]
    batch = BatchSim(robots[0].model, COPIES, threads=2)
    batch.reset(range(COPIES), range(COPIES), task)
    for row in commands(spec, 25):
        states = batch.step(row)
        for copy, robot in enumerate(robots):
            robot.write(JointCommand(spec.joint_names, row[copy], 0.0))
            robot.step()
            np.testing.assert_array_equal(states[copy], robot.snapshot().physics)
            np.testing.assert_array_equal(batch.sensordata[copy], robot.data.sensordata)
            np.testing.assert_array_equal(batch.actuator_force[copy], robot.data.actuator_force)
            np.testing.assert_array_equal(batch.qpos[copy], robot.data.qpos)
            assert batch.time[copy] == robot.data.time


def test_the_number_of_threads_changes_nothing():
    spec, task = load_robot("quadruped"), load_task("quadruped_stand")
    model = build(spec, task.scene)
    ends = []
    for threads in (1, 2):
        batch = BatchSim(model, COPIES, threads)
        batch.reset(range(COPIES), range(COPIES), task)
        ends.append([batch.step(row) for row in commands(spec, 20)][-1])
    np.testing.assert_array_equal(*ends)


def test_a_subset_goes_back_and_repeats_its_future():
    spec, task = load_robot("arm"), load_task("stack_red_on_blue")
    batch = BatchSim(build(spec, task.scene), COPIES, threads=2)
    batch.reset(range(COPIES), range(COPIES), task)
    plan = commands(spec, 20)
    for row in plan[:10]:
        batch.step(row)
    saved, sensors = batch.snapshot([2, 0]), batch.sensordata.copy()
    future = [batch.step(row) for row in plan[10:]][-1]
    batch.restore(saved, [2, 0])
    np.testing.assert_array_equal(batch.sensordata[[0, 2]], sensors[[0, 2]])
    np.testing.assert_array_equal(batch.snapshot([1]), future[[1]])
    again = [batch.step(row) for row in plan[10:]][-1]
    np.testing.assert_array_equal(again[[0, 2]], future[[0, 2]])


def test_states_share_no_memory():
    batch = BatchSim(build(load_robot("cartpole"), "floor"), COPIES, threads=1)
    first = batch.step(np.ones((COPIES, 1)))
    kept = first.copy()
    batch.step(np.ones((COPIES, 1)))
    np.testing.assert_array_equal(first, kept)


def test_s6_divergence_names_copy_time_and_body():
    batch = BatchSim(build(load_robot("cartpole"), "floor"), COPIES, threads=2)
    batch.step(np.zeros((COPIES, 1)))
    batch.qvel[1, 1] = 1e8
    with pytest.raises(RobotFault, match=r"copy 1 of 'cartpole' diverged at 0\.0\d+ s: body '(cart|pole)'"):
        batch.step(np.zeros((COPIES, 1)))
    np.testing.assert_array_equal(batch.diverged, [False, True, False])
    batch.reset([1], [0])
    assert not batch.diverged.any()
    batch.step(np.zeros((COPIES, 1)))


def test_a_command_that_is_no_number_is_a_fault():
    batch = BatchSim(build(load_robot("cartpole"), "floor"), COPIES, threads=2)
    with pytest.raises(RobotFault, match="copy 2"):
        batch.step(np.array([[0.0], [0.0], [np.nan]]))


def test_a_task_that_was_loaded_for_another_robot_is_refused():
    model, task = build(load_robot("cartpole"), "floor"), load_task("push_button")
    with pytest.raises(UserError, match=r"push_button\.yaml: task 'push_button' is for the robots arm, .*, not for 'cartpole'"):
        BatchSim(model, 1).reset([0], [0], task)


@pytest.mark.parametrize("number", [0, -1, 1.5, "3", True])
def test_copies_and_threads_are_whole_numbers(number):
    model = build(load_robot("cartpole"), "floor")
    with pytest.raises(UserError, match=f"{number!r} copies of 'cartpole' were asked for, it must be a whole number from 1 on"):
        BatchSim(model, number)
    with pytest.raises(UserError, match=f"{number!r} threads were asked for, it must be a whole number from 1 on"):
        BatchSim(model, 1, number)
