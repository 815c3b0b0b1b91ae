"""Tests of ros_rl.sim.coordinates."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot
from ros_rl.sim.coordinates import Coordinates, quaternion, rotation_vector

CART = ("joint_position.slider", "joint_velocity.slider", "joint_position.pole", "joint_velocity.pole")
FLYING = tuple(f"{kind}.{axis}" for kind in ("base_gyro", "base_rotation", "base_velocity", "base_position") for axis in "xyz")
HOVER = np.array([0.0] * 11 + [1.5])


@pytest.mark.parametrize(
    ("robot", "names", "rest"), [("cartpole", CART[::-1], np.array([0.0, 0.1, 0.0, 0.2])), ("quadrotor_wrench", FLYING, HOVER)]
)
def test_a_placed_state_is_read_again_from_simulator_and_observation(robot, names, rest):
    spec = load_robot(robot)
    simulated = MujocoRobot(spec, "floor")
    coordinates = Coordinates(spec, names, rest)
    state = np.random.default_rng(0).uniform(-0.3, 0.3, len(names))
    coordinates.place(simulated.model, simulated.data, state)
    mujoco.mj_forward(simulated.model.mj, simulated.data)
    np.testing.assert_allclose(coordinates.measure(simulated.model, simulated.data), state, atol=1e-12)
    observation = simulated.read()
    np.testing.assert_allclose(coordinates.of(observation), state, atol=1e-12)
    only = replace(observation, joint_effort=np.full(1, np.nan), base_acc=None, privileged={})
    np.testing.assert_array_equal(coordinates.of(only), coordinates.of(observation))


def test_only_what_is_named_is_read_and_moved():
    spec = load_robot("quadrotor_wrench")
    simulated = MujocoRobot(spec, "floor")
    coordinates = Coordinates(spec, ("base_position.z", "base_gyro.y"), np.array([1.0, 0.0]))
    assert coordinates.reads == ("base_position", "base_gyro")
    before = simulated.data.qpos.copy()
    coordinates.place(simulated.model, simulated.data, np.array([0.5, 2.0]))
    np.testing.assert_array_equal(simulated.data.qpos, before + [0, 0, 0.5, 0, 0, 0, 0])
    np.testing.assert_array_equal(simulated.data.qvel, [0, 0, 0, 0, 2.0, 0])


def test_an_endless_joint_deviates_by_less_than_half_a_turn():
    spec = load_robot("cartpole")
    coordinates = Coordinates(spec, ("joint_position.pole",), np.array([3.0]))
    observation = MujocoRobot(spec, "floor").read()
    for angle, deviation in ((3.1, 0.1), (-3.1, 0.1832), (2.9 + 8 * np.pi, -0.1)):
        seen = coordinates.of(replace(observation, joint_position=np.array([0.0, angle])))
        np.testing.assert_allclose(seen, [deviation], atol=1e-4)


def test_rotation_vectors_and_quaternions_are_those_of_mujoco():
    random = np.random.default_rng(0)
    for size in (0.0, 1e-12, 1e-6, 1.0, 3.0):
        vector = size * np.array([0.6, -0.8, 0.0]) if size else np.zeros(3)
        quat = np.array([1.0, 0.0, 0.0, 0.0])
        mujoco.mju_quatIntegrate(quat, vector, 1.0)
        np.testing.assert_allclose(quaternion(vector), quat, atol=1e-15)
        np.testing.assert_allclose(rotation_vector(quat), vector, atol=1e-15)
    for _ in range(20):
        quat = random.normal(size=4)
        quat /= np.linalg.norm(quat)
        expected = np.empty(3)
        mujoco.mju_quat2Vel(expected, quat, 1.0)
        np.testing.assert_allclose(rotation_vector(quat), expected, atol=1e-12)
        np.testing.assert_allclose(rotation_vector(-quat), rotation_vector(quat), atol=1e-12)


@pytest.mark.parametrize(
    ("robot", "names", "rest", "message"),
    [
        ("cartpole", ("joint_position.pol",), [0.0], "unknown joint of robot 'cartpole' 'pol', did you mean 'pole'"),
        ("cartpole", ("joint_angle.pole",), [0.0], "unknown coordinate 'joint_angle'"),
        ("cartpole", ("base_position.x",), [0.0], "has no floating base with odometry, which 'base_position.x' needs"),
        ("cartpole", ("base_gyro.x",), [0.0], "has no floating base with an IMU"),
        ("quadrotor", ("base_position.w",), [0.0], "unknown axis of base_position 'w'"),
        ("quadrotor", ("joint_position.rotor_1",), [0.0], "unknown joint"),
        ("quadrotor", ("base_rotation.x",), [0.1], "base_rotation.x: the base is level at the equilibrium"),
        ("cartpole", (CART[0], CART[0]), [0.0, 0.0], "need different names"),
        ("cartpole", CART, [0.0], "equilibrium of that shape"),
    ],
)
def test_coordinates_that_the_robot_lacks_are_refused(robot, names, rest, message):
    with pytest.raises(UserError, match=message):
        Coordinates(load_robot(robot), names, np.array(rest))


def test_an_observation_without_a_field_is_refused():
    spec = load_robot("quadrotor")
    observation = replace(MujocoRobot(spec, "floor").read(), base_quat=None)
    with pytest.raises(UserError, match="the observation has no base_quat"):
        Coordinates(spec, ("base_rotation.x",), np.zeros(1)).of(observation)


def test_many_attitudes_at_once_are_those_one_by_one():
    rotations = np.random.default_rng(0).normal(0.0, 1.0, (50, 3))
    rotations[0] = 0.0
    quats = quaternion(rotations)
    np.testing.assert_allclose(quats, [quaternion(rotation) for rotation in rotations], atol=1e-15)
    np.testing.assert_allclose(rotation_vector(quats), [rotation_vector(quat) for quat in quats], atol=1e-15)
    np.testing.assert_allclose(rotation_vector(-quats), rotations, atol=1e-12)
