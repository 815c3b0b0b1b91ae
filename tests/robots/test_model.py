"""Pinocchio's answers, against MuJoCo's reading of the same URDF and against formulas."""

import json

import numpy as np
import pytest

from ros_rl.cli.robot import RobotCheck
from ros_rl.errors import UserError
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot, robot_names
from ros_rl.sim.agreement import compare, reading_at_home

GRAVITY = 9.81


@pytest.mark.parametrize("name", robot_names())
def test_mujoco_and_pinocchio_agree(name):
    agreement = compare(load_robot(name))
    assert agreement.fk < 1e-9
    assert agreement.mass_matrix < 1e-6
    assert agreement.inverse_dynamics < 1e-6


@pytest.mark.parametrize("name", robot_names())
def test_no_links_overlap_at_home(name):
    assert reading_at_home(load_robot(name)).overlaps() == []


def test_disagreement_is_found(tmp_path):
    """Pinocchio does not read MuJoCo's extension, so that a model changed by it must be reported."""
    spec = load_robot("cartpole")
    urdf = tmp_path / "cartpole.urdf"
    urdf.write_text(spec.urdf.read_text().replace("</robot>", '<mujoco><compiler boundmass="2"/></mujoco></robot>'))
    yaml = tmp_path / "robot.yaml"
    yaml.write_text((spec.urdf.parent / "robot.yaml").read_text())
    agreement = compare(load_robot(yaml))
    assert agreement.fk < 1e-9
    assert agreement.mass_matrix > 0.1
    assert agreement.inverse_dynamics > 0.01


def test_cartpole_matches_its_equations():
    """A uniform rod on a cart: m l²/3 about the hinge, (M + m) for the cart, m l/2 cos(angle) between them."""
    model = RobotModel(load_robot("cartpole"))
    cart, pole, length, angle = 0.94, 0.23, 0.64, 0.7
    coupling = pole * length / 2 * np.cos(angle)
    expected = [[cart + pole, coupling], [coupling, pole * length**2 / 3]]
    np.testing.assert_allclose(model.mass_matrix(np.array([0.3, angle])), expected, rtol=1e-6)
    weight = [0, -pole * GRAVITY * length / 2 * np.sin(angle)]
    np.testing.assert_allclose(model.gravity(np.array([0.3, angle])), weight, atol=1e-12)


def test_positive_pole_angle_leans_to_positive_x():
    pose = RobotModel(load_robot("cartpole")).frame_pose("pole", np.array([0.25, 0.1]))
    assert pose.position[0] == pytest.approx(0.25)
    assert pose.rotation[0, 2] == pytest.approx(np.sin(0.1))


@pytest.mark.parametrize("name", robot_names())
def test_jacobian_is_the_derivative_of_the_pose(name):
    model = RobotModel(load_robot(name))
    random = np.random.default_rng(3)
    floating = model.spec.floating_base
    q = model.spec.home + random.normal(size=len(model.spec.home)) * 0.1
    base = np.array([0.1, 0.2, 0.3, 0.5, 0.5, -0.5, 0.5]) if floating else None
    velocity, step = random.normal(size=model.nv), 1e-6
    poses = []
    for sign in (-1, 1):
        moved, moved_base = q.copy(), base
        joints = [model.spec.measured_names.index(joint) for joint in model.names]
        moved[joints] += sign * step * velocity[-len(joints) :] if joints else 0
        if floating:
            turn = sign * step * velocity[3:6] / 2
            moved_base = np.concatenate([base[:3] + sign * step * velocity[:3], _product(base[3:], np.array([1, *turn]))])
        poses.append(model.frame_pose(model.frames[-1], moved, moved_base))
    linear = (poses[1].position - poses[0].position) / (2 * step)
    spin = (poses[1].rotation - poses[0].rotation) / (2 * step) @ ((poses[0].rotation + poses[1].rotation) / 2).T
    twist = model.jacobian(model.frames[-1], q, base) @ velocity
    np.testing.assert_allclose(twist[:3], linear, atol=1e-7)
    np.testing.assert_allclose(twist[3:], [spin[2, 1], spin[0, 2], spin[1, 0]], atol=1e-7)


def _product(a, b):
    """Product of two quaternions (w, x, y, z)."""
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *vector])


def test_fingers_mirror_each_other():
    spec = load_robot("arm")
    model = RobotModel(spec)
    assert model.names[-1] == "finger_joint1"
    for opening in (0.0, 0.025):
        q = spec.home.copy()
        q[-1] = opening
        first, second, tool = (model.frame_pose(link, q).position for link in ("finger1", "finger2", "tool"))
        assert np.linalg.norm(first - second) == pytest.approx(2 * opening, abs=1e-12)
        np.testing.assert_allclose((first + second)[:2] / 2, tool[:2], atol=1e-12)


def test_arm_hand_points_down_at_home():
    pose = RobotModel(load_robot("arm")).frame_pose("tool", load_robot("arm").home)
    np.testing.assert_allclose(pose.position, [0.30689, 0, 0.48688], atol=1e-5)
    np.testing.assert_allclose(pose.rotation, np.diag([1, -1, -1]), atol=1e-12)


def test_quadruped_stands_on_its_feet_at_home():
    spec = load_robot("quadruped")
    model = RobotModel(spec)
    base = np.array([*spec.base_position, 1, 0, 0, 0])
    for leg in ("FL", "FR", "RL", "RR"):
        assert model.frame_pose(f"{leg}_foot", spec.home, base).position[2] == pytest.approx(0.02, abs=1e-5)


@pytest.mark.parametrize("name", ["quadrotor", "quadrotor_wrench"])
def test_quadrotor_hovers_at_hold(name):
    """The wrenches of all thrusters at their `hold` carry the weight and turn nothing."""
    spec = load_robot(name)
    model = RobotModel(spec)
    forces = sum(model.jacobian(joint.frame, spec.home).T @ (np.array(joint.wrench) * joint.hold) for joint in spec.joints)
    np.testing.assert_allclose(forces, model.gravity(spec.home), atol=1e-12)


def test_unknown_link_is_named():
    model = RobotModel(load_robot("arm"))
    with pytest.raises(UserError, match=r"unknown link of robot 'arm' 'tol', did you mean 'tool'\? \(known: base, finger1"):
        model.frame_pose("tol", model.spec.home)


def test_fixed_base_takes_no_pose():
    model = RobotModel(load_robot("cartpole"))
    with pytest.raises(UserError, match="robot 'cartpole' has a fixed base"):
        model.gravity(model.spec.home, np.array([0.0, 0, 0, 1, 0, 0, 0]))


@pytest.mark.parametrize("name", robot_names())
def test_robot_check(name, capsys):
    assert RobotCheck(name, json=True).run() == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["ok"] is True
    assert findings["repairs"] == []
    assert findings["warnings"] == []
    assert [joint["name"] for joint in findings["joints"]] == list(load_robot(name).measured_names)
    assert findings["fk_error"] < 1e-9
    assert findings["mass_matrix_error"] < 1e-6
    assert RobotCheck(name).run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"
