"""Tests of ros_rl.policies.scripted.arm_pick_place: it does its tasks, also when the world does not keep still."""

import dataclasses

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.scripted.arm_pick_place import ArmPickPlace
from ros_rl.robots.spec import load_robot

TASKS = ("push_button", "put_red_block_in_bowl", "stack_red_on_blue")


@pytest.mark.parametrize("task", TASKS)
def test_does_its_tasks_within_the_limits(play, task):
    for seed in range(5):
        run = play("arm_pick_place", "arm", task, 20.0, seed)
        assert run.state.success, f"seed {seed}: {run.state.reason}"
        assert len(run.seen) < 12.0 * 200
        assert run.counts["limited"] == run.counts["rejected"] == 0


def test_same_seed_same_commands(play):
    first, second = (play("arm_pick_place", "arm", "stack_red_on_blue", 6.0, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.sent, second.sent)


@pytest.mark.parametrize("stamp", [2.0, 4.2, 6.0, 7.5])
def test_starts_over_when_the_block_is_taken_away(play, stamp):
    def take(robot, now):
        if abs(now - stamp) < 1e-6:
            joint = robot.model.object_joint("red_block")
            robot.data.qpos[robot.model.free_qpos(joint)] = [0.42, 0.05, 0.02, 1.0, 0.0, 0.0, 0.0]
            robot.data.qvel[robot.model.free_qvel(joint)] = 0.0
            mujoco.mj_forward(robot.model.mj, robot.data)

    run = play("arm_pick_place", "arm", "put_red_block_in_bowl", 20.0, seed=0, disturb=take)
    assert run.state.success


def test_a_block_on_its_side_is_grasped_by_its_faces(play):
    def tip(robot, now):
        if now < 0.0:
            joint = robot.model.object_joint("red_block")
            turn = np.array([np.cos(0.3), 0.0, 0.0, np.sin(0.3)])  # about the vertical
            side = np.array([np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0])  # onto another face
            mujoco.mju_mulQuat(robot.data.qpos[robot.model.free_qpos(joint)][3:], turn, side)
            mujoco.mj_forward(robot.model.mj, robot.data)

    run = play("arm_pick_place", "arm", "stack_red_on_blue", 20.0, seed=1, disturb=tip)
    assert run.state.success


def test_an_unknown_instruction_is_refused():
    policy = load_policy("arm_pick_place", load_robot("arm"))
    with pytest.raises(UserError, match="cannot do 'juggle'"):
        policy.reset(0, "juggle")


def test_it_says_that_it_is_privileged():
    assert load_bundle("arm_pick_place").spec.privileged


def test_a_robot_without_gripper_pushes_and_refuses_the_rest():
    policy = ArmPickPlace(load_bundle("arm_pick_place"), dataclasses.replace(load_robot("arm"), gripper=None))
    policy.reset(0, "push the button")
    with pytest.raises(UserError, match=r"robot 'arm' has no gripper in its robot\.yaml, which 'put the red block in the bowl' needs"):
        policy.reset(0, "put the red block in the bowl")


def test_a_robot_without_tool_is_refused():
    with pytest.raises(UserError, match="robot 'arm' has no tool_frame"):
        ArmPickPlace(load_bundle("arm_pick_place"), dataclasses.replace(load_robot("arm"), tool_frame=None))
