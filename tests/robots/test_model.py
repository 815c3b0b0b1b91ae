"""Pinocchio's answers, against formulas; `tests/sim/test_agreement.py` compares them with MuJoCo's."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.model import GRAVITY, RobotModel
from ros_rl.robots.spec import load_robot, robot_names


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


@pytest.mark.parametrize("name", ["arm", "cartpole", "quadruped"])
def test_the_slope_of_gravity_is_that_of_its_differences(name):
    # A turned base changes the axes that a force is told in as well; here it only moves.
    model = RobotModel(load_robot(name))
    q, base = model.spec.home.copy(), np.array([0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0]) if model.spec.floating_base else None
    slope, first = model.gravity_slope(q, base), model.nv - len(model.names)
    for index in range(len(model.names)):
        step = np.zeros(len(q))
        step[model.spec.measured_names.index(model.names[index])] = 1e-6
        difference = (model.gravity(q + step, base) - model.gravity(q - step, base)) / 2e-6
        np.testing.assert_allclose(slope[first:, first + index], difference[first:], atol=1e-6)


def test_damping_is_the_urdfs_on_the_joints_it_is_stated_for():
    np.testing.assert_array_equal(RobotModel(load_robot("cartpole")).damping(), np.diag([0.1, 0.001]))
    flying = RobotModel(load_robot("quadrotor"))
    np.testing.assert_array_equal(flying.damping(), np.zeros((6, 6)))
