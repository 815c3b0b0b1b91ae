"""Tests of ros_rl.sim.build: the compiled physics against closed forms, and errors that name what does not fit."""

import dataclasses
import math
from collections.abc import Mapping

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.model import GRAVITY, RobotModel
from ros_rl.robots.spec import load_robot, robot_names
from ros_rl.sim.build import SimModel, build, scene_names


@pytest.fixture(scope="module")
def models() -> Mapping[str, SimModel]:
    """Robots on the floor, each built when it is asked for."""

    class Models(dict[str, SimModel]):
        def __missing__(self, name: str) -> SimModel:
            self[name] = build(load_robot(name), "floor")
            return self[name]

    return Models()


def simulate(model: SimModel, data: mujoco.MjData, seconds: float) -> None:
    mujoco.mj_step(model.mj, data, round(seconds / model.mj.opt.timestep))


@pytest.mark.parametrize("name", robot_names())
def test_steps_divide_the_control_period(name, models):
    model = models[name]
    assert model.substeps * model.mj.opt.timestep == pytest.approx(model.spec.period, rel=1e-12)
    assert model.mj.opt.timestep <= 0.002 + 1e-12


@pytest.mark.parametrize("name", robot_names())
def test_every_joint_and_link_keeps_its_name(name, models):
    model = models[name]
    for index, address in zip(model.positioned, model.qpos, strict=True):
        assert model.mj.joint(model.spec.measured_names[index]).qposadr[0] == address
    for joint, actuator in zip(model.spec.joint_names, model.actuators, strict=True):
        assert model.mj.actuator(joint).id == actuator


@pytest.mark.parametrize("name", robot_names())
def test_a_silent_reset_is_disabled(name, models):
    assert models[name].mj.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET


def test_free_fall(models):
    """A body of any shape falls as z0 - g h² k (k + 1) / 2 after k steps of semi-implicit Euler."""
    model = models["quadrotor"]
    data = mujoco.MjData(model.mj)
    height, steps = data.qpos[2], 100
    mujoco.mj_step(model.mj, data, steps)
    fallen = GRAVITY * model.mj.opt.timestep**2 * steps * (steps + 1) / 2
    assert data.qpos[2] == pytest.approx(height - fallen, abs=1e-9)


def test_thrusters_carry_the_weight(models):
    for name in ("quadrotor", "quadrotor_wrench"):
        model = models[name]
        data = mujoco.MjData(model.mj)
        data.ctrl[model.actuators] = [joint.hold for joint in model.spec.joints]
        simulate(model, data, 1.0)
        assert np.abs(data.qvel).max() < 1e-6


def test_thrusters_turn_the_base_about_its_axes(models):
    """torque_z alone: angular acceleration is torque over the inertia about z."""
    model = models["quadrotor_wrench"]
    data = mujoco.MjData(model.mj)
    data.ctrl[model.mj.actuator("torque_z").id] = 0.01
    mujoco.mj_forward(model.mj, data)
    inertia = np.zeros((model.mj.nv, model.mj.nv))
    mujoco.mj_fullM(model.mj, data, inertia)
    np.testing.assert_allclose(data.qacc[3:6], [0, 0, 0.01 / inertia[5, 5]], atol=1e-9)


def test_period_of_the_hanging_pole(models):
    """Small swings below the free cart: ω² = (M + m) m g l / ((M + m)(I + m l²) - (m l)²)."""
    model = models["cartpole"]
    cart, pole = model.mj.body("cart").mass[0], model.mj.body("pole").mass[0]
    length, inertia = model.mj.body("pole").ipos[2], model.mj.body("pole").inertia[0]
    moment = (cart + pole) * (inertia + pole * length**2) - (pole * length) ** 2
    expected = 2 * math.pi / math.sqrt((cart + pole) * pole * GRAVITY * length / moment)
    data = mujoco.MjData(model.mj)
    data.qpos[model.qpos[1]] = math.pi + 0.02
    crossings, before = [], 0.02
    while data.time < 10 * expected:
        mujoco.mj_step(model.mj, data)
        swing = data.qpos[model.qpos[1]] - math.pi
        if before > 0 >= swing:
            crossings.append(data.time - model.mj.opt.timestep * swing / (swing - before))
        before = swing
    assert np.diff(crossings).mean() == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("compensated", [False, True])
def test_static_error_of_position_actuators(compensated):
    """At rest the actuators carry gravity, unless the robot's controller does: stiffness · (target - position) = gravity torque."""
    spec = dataclasses.replace(load_robot("arm"), gravity_compensation=compensated)
    model = build(spec, "floor")
    data = mujoco.MjData(model.mj)
    data.qpos[model.qpos] = data.ctrl[model.actuators] = spec.home
    simulate(model, data, 4.0)
    position = data.qpos[model.qpos]
    error = spec.home - position
    carried = 0.0 if compensated else RobotModel(spec).gravity(position)
    expected = np.broadcast_to(carried, position.shape) / [joint.stiffness for joint in spec.joints]
    np.testing.assert_allclose(error[:7], expected[:7], atol=2e-6)


def test_actuators_stop_at_the_effort_limit(models):
    model = models["arm"]
    data = mujoco.MjData(model.mj)
    data.qpos[model.qpos] = model.spec.home
    data.ctrl[model.actuators] = model.spec.upper
    mujoco.mj_forward(model.mj, data)
    assert (np.abs(data.actuator_force[model.actuators]) <= model.spec.effort + 1e-9).all()


def test_mimicking_joints_follow_under_load(models):
    model = models["arm"]
    data = mujoco.MjData(model.mj)
    data.qpos[model.qpos] = data.ctrl[model.actuators] = model.spec.home
    data.ctrl[model.mj.actuator("finger_joint1").id] = 0.01
    simulate(model, data, 1.0)
    assert data.joint("finger_joint2").qpos[0] == pytest.approx(data.joint("finger_joint1").qpos[0], abs=1e-4)
    assert data.joint("finger_joint1").qpos[0] == pytest.approx(0.01, abs=1e-3)


def test_cameras_look_along_their_optical_frame(models):
    """Optical frame: z forward, x right, y down. MuJoCo's camera: z backward, x right, y up."""
    model = models["arm"]
    data = mujoco.MjData(model.mj)
    mujoco.mj_forward(model.mj, data)
    optical = data.body("wrist_camera").xmat.reshape(3, 3)
    np.testing.assert_allclose(data.camera("wrist").xmat.reshape(3, 3), optical @ np.diag([1, -1, -1]), atol=1e-9)
    np.testing.assert_allclose(data.camera("wrist").xpos, data.body("wrist_camera").xpos, atol=1e-12)


def test_scene_objects_are_found():
    model = build(load_robot("arm"), "tabletop")
    assert set(model.objects) == {"red_block", "blue_block", "bowl", "button"}
    assert set(model.scene_joints) == {"button_press"}
    assert set(model.cameras) == {"front", "overhead", "wrist", "hand"}


@pytest.mark.parametrize("scene", scene_names())
@pytest.mark.parametrize("name", robot_names())
def test_every_robot_fits_into_every_scene(name, scene):
    build(load_robot(name), scene)


def scene_file(tmp_path, world: str) -> str:
    path = tmp_path / "scene.xml"
    path.write_text(f"<mujoco><worldbody>{world}</worldbody></mujoco>")
    return str(path)


def test_links_that_overlap_at_home_do_not_collide(tmp_path):
    urdf = tmp_path / "two.urdf"
    link = (
        '<link name="{}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
        '<collision><geometry><sphere radius="0.2"/></geometry></collision></link>'
    )
    joint = (
        '<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><origin xyz="0.1 0 0"/>'
        '<limit lower="-1" upper="1" effort="10" velocity="1"/></joint>'
    )
    parts = [link.format(name) for name in "abc"] + [joint.format("j1", "a", "b"), joint.format("j2", "b", "c")]
    urdf.write_text(f'<robot name="two">{"".join(parts)}</robot>')
    robot = tmp_path / "robot.yaml"
    robot.write_text(
        "name: two\nurdf: two.urdf\ncontrol_rate: 100\ncommand_mode: effort\nbase_position: [0.0, 0.0, 1.0]\njoints: {j1: {}, j2: {}}\n"
    )
    model = build(load_robot(robot), "floor")
    data = mujoco.MjData(model.mj)
    mujoco.mj_forward(model.mj, data)
    assert data.ncon == 0


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ("<body/>", r'scene.xml: has no <frame name="robot"/>'),
        ('<frame name="robot"/><body name="cart"/>', "bodies named cart are also in .*cartpole.urdf"),
        ('<frame name="robot"/><body><joint name="pole"/><geom size="1"/></body>', "joints named pole are also in"),
        ('<frame name="robot"/><body><freejoint/><geom size="1"/></body>', "a body with a free joint has no name"),
        ('<frame name="robot"/><geom size="-1"/>', "scene.xml: .*size"),
        ('<frame name="robot"/><oops/>', "scene.xml: .*oops"),
    ],
)
def test_errors_name_the_scene_and_what_is_wrong(tmp_path, world, message):
    with pytest.raises(UserError, match=message) as caught:
        build(load_robot("cartpole"), scene_file(tmp_path, world))
    assert "\n" not in str(caught.value)


def test_unknown_scene():
    with pytest.raises(UserError, match="unknown scene 'table', did you mean 'tabletop'"):
        build(load_robot("arm"), "table")


def test_position_mode_needs_stiffness():
    spec = load_robot("arm")
    slack = dataclasses.replace(spec, joints=(dataclasses.replace(spec.joints[0], stiffness=0.0), *spec.joints[1:]))
    with pytest.raises(UserError, match=r"joint 'joint1' has stiffness 0\.0, position mode needs more than 0"):
        build(slack, "floor")
