"""Tests of ros_rl.sim.reset."""

import dataclasses
import itertools

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.observe import measured_positions
from ros_rl.sim.reset import reset
from ros_rl.sim.task import PoseRange, Reset, load_task

SEEDS = range(30)


@pytest.fixture(scope="module")
def tabletop():
    return build(load_robot("arm"), "tabletop"), load_task("stack_red_on_blue")


def poses(model, data) -> dict[str, np.ndarray]:
    return {name: data.qpos[model.free_qpos(model.object_joint(name))].copy() for name in model.objects}


def test_objects_lie_in_their_ranges_apart_and_untouched(tabletop):
    model, task = tabletop
    data = mujoco.MjData(model.mj)
    for seed in SEEDS:
        reset(model, data, task, seed)
        assert data.contact.dist.min(initial=0.0) > -1e-6
        placed = poses(model, data)
        for name, where in task.reset.objects.items():
            assert where.x[0] <= placed[name][0] <= where.x[1]
            assert where.y[0] <= placed[name][1] <= where.y[1]
            assert np.linalg.norm(placed[name][3:]) == pytest.approx(1.0)
        for one, other in itertools.combinations(placed.values(), 2):
            assert np.linalg.norm(one[:2] - other[:2]) >= task.reset.min_distance


def test_objects_stay_where_they_were_put(tabletop):
    model, task = tabletop
    data = mujoco.MjData(model.mj)
    for seed in SEEDS[:3]:
        reset(model, data, task, seed)
        before = poses(model, data)
        mujoco.mj_step(model.mj, data, 500)
        for name, pose in poses(model, data).items():
            np.testing.assert_allclose(pose[:3], before[name][:3], atol=1e-4)


def test_seeds_differ_and_repeat(tabletop):
    model, task = tabletop
    one, other = mujoco.MjData(model.mj), mujoco.MjData(model.mj)
    reset(model, one, task, 1)
    reset(model, other, task, 2)
    assert not np.array_equal(one.qpos, other.qpos)
    mujoco.mj_step(model.mj, other, 10)
    reset(model, other, task, 1)
    np.testing.assert_array_equal(one.qpos, other.qpos)
    np.testing.assert_array_equal(one.qacc_warmstart, other.qacc_warmstart)


def test_joint_noise_stays_within_limits_and_mimics_follow(tabletop):
    model, task = tabletop
    noisy = dataclasses.replace(task, reset=Reset(joint_noise={"*": 1.0, "finger_joint1": 1.0}))
    data = mujoco.MjData(model.mj)
    for seed in SEEDS:
        reset(model, data, noisy, seed)
        positions = measured_positions(model, data.qpos)
        assert (positions >= model.spec.lower).all()
        assert (positions <= model.spec.upper).all()
        assert data.joint("finger_joint2").qpos[0] == data.joint("finger_joint1").qpos[0]
        np.testing.assert_array_equal(data.ctrl[model.actuators], positions)


def test_a_pattern_leaves_the_gripper_alone_unless_it_is_its_name(tabletop):
    model, task = tabletop
    data, finger = mujoco.MjData(model.mj), model.spec.measured_names.index("finger_joint1")
    for noise, moves in (({"*": 0.02}, False), ({"*joint1": 0.02}, False), ({"finger_joint1": 0.02}, True)):
        found = set()
        for seed in range(5):
            reset(model, data, dataclasses.replace(task, reset=Reset(joint_noise=noise)), seed)
            found.add(measured_positions(model, data.qpos)[finger])
        assert (found != {model.spec.home[finger]}) is moves


def test_a_floating_base_is_lifted_out_of_the_ground():
    spec = load_robot("quadruped")
    model = build(spec, "floor")
    task = dataclasses.replace(load_task("quadruped_stand"), reset=Reset(joint_noise={"*": 0.3}))
    data = mujoco.MjData(model.mj)
    for seed in SEEDS:
        reset(model, data, task, seed)
        assert data.contact.dist.min(initial=0.0) > -1e-6


def test_without_a_task_the_robot_is_at_home():
    spec = load_robot("quadruped")
    model = build(spec, "floor")
    data = mujoco.MjData(model.mj)
    reset(model, data, None, 0)
    np.testing.assert_array_equal(measured_positions(model, data.qpos), spec.home)
    np.testing.assert_allclose(data.qpos[:2], 0.0)


@pytest.mark.parametrize("name", ["cartpole", "quadrotor", "quadruped"])
def test_the_actuators_keep_the_robot_where_it_starts(name):
    spec = load_robot(name)
    model = build(spec, "floor")
    data = mujoco.MjData(model.mj)
    reset(model, data, None, 0)
    joints = [joint.home if spec.command_mode == "position" else joint.hold or 0.0 for joint in spec.joints]
    np.testing.assert_array_equal(data.ctrl[model.actuators], joints)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        (Reset(joint_noise={"elbow*": 0.1}), r"stack_red_on_blue.yaml: unknown joint 'elbow\*'"),
        (Reset(objects={"green_block": PoseRange([0.0, 1.0], [0.0, 1.0])}), "unknown object 'green_block'"),
        (Reset(objects={"red_block": PoseRange([0.4, 0.41], [0.0, 0.1])}, min_distance=5.0), "found no places for red_block"),
    ],
)
def test_what_does_not_fit_is_named(tabletop, ranges, message):
    model, task = tabletop
    with pytest.raises(UserError, match=message):
        reset(model, mujoco.MjData(model.mj), dataclasses.replace(task, reset=ranges), 0)


def test_joints_of_the_scene_are_drawn_and_places_kept_clear():
    task = load_task("left_of")
    model = build(load_robot("arm"), task.scene)
    data, other, item = mujoco.MjData(model.mj), "blue_block", "red_block"
    for seed in range(20):
        reset(model, data, task, seed)
        placed = poses(model, data)
        place = placed[other][:2] + task.reset.clear[0].offset
        gaps = {name: np.linalg.norm(pose[:2] - place) for name, pose in placed.items() if name != other}
        assert min(gaps.values()) >= task.reset.clear[0].radius and item in gaps
    task = load_task("close_drawer")
    model = build(load_robot("arm"), task.scene)
    data = mujoco.MjData(model.mj)
    drawn = []
    for seed in range(5):
        reset(model, data, task, seed)
        drawn.append(data.joint("drawer").qpos[0])
    lower, upper = task.reset.scene_joints["drawer"]
    assert lower <= min(drawn) < max(drawn) <= upper
    wrong = dataclasses.replace(task, reset=Reset(scene_joints={"door": [0.0, 1.0]}))
    with pytest.raises(UserError, match=r"close_drawer\.yaml: unknown joint of the scene 'door'"):
        reset(model, data, wrong, 0)
