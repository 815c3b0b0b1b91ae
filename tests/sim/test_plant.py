"""Tests of ros_rl.sim.plant."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.plant import Plant

CART = ("joint_position.slider", "joint_velocity.slider", "joint_position.pole", "joint_velocity.pole")


def test_a_step_is_the_simulated_robots_own_bit_for_bit():
    spec = load_robot("cartpole", 50.0)
    robot = MujocoRobot(spec, "floor")
    coordinates = Coordinates(spec, CART, np.zeros(4))
    plant = Plant(robot.model, coordinates, np.array([1.0]))
    state = np.array([0.1, -0.2, 0.05, 0.4])
    coordinates.place(robot.model, robot.data, state)
    for push in (5.0, -3.0, 0.0):
        robot.write(JointCommand(spec.joint_names, np.array([1.0 + push]), 0.0))
        robot.step()
        state = plant.step(state[None], np.array([[push]]))[0]
        assert state.tobytes() == coordinates.of(robot.read()).tobytes()


def test_steps_do_not_depend_on_the_ones_before_nor_beside():
    spec = load_robot("quadrotor_wrench", 50.0)
    names = tuple(f"{kind}.{axis}" for kind in ("base_position", "base_velocity", "base_rotation", "base_gyro") for axis in "xyz")
    plant = Plant(build(spec, "floor"), Coordinates(spec, names, np.eye(12)[2]), np.array([9.81, 0.0, 0.0, 0.0]))
    random = np.random.default_rng(0)
    states, inputs = random.uniform(-0.3, 0.3, (5, 12)), random.uniform(-0.1, 0.1, (5, 4))
    together = plant.step(states, inputs)
    alone = np.concatenate([plant.step(state[None], row[None]) for state, row in zip(states[::-1], inputs[::-1], strict=True)])[::-1]
    assert together.tobytes() == alone.tobytes()
    np.testing.assert_allclose(plant.step(np.zeros((1, 12)), np.zeros((1, 4))), 0.0, atol=1e-12)


def test_inputs_beyond_the_command_limits_are_cut():
    spec = load_robot("cartpole")
    plant = Plant(build(spec, "floor"), Coordinates(spec, CART, np.zeros(4)), np.array([1.0]))
    pushed = plant.step(np.zeros((2, 4)), np.array([[29.0], [500.0]]))  # the slider has 30 N
    assert pushed[0].tobytes() == pushed[1].tobytes()


def test_an_imu_that_is_turned_is_refused(tmp_path):
    spec = load_robot("quadrotor_wrench")
    text = spec.urdf.read_text().replace(
        '<joint name="imu_joint" type="fixed">', '<joint name="imu_joint" type="fixed"><origin rpy="0 0 1"/>'
    )
    (tmp_path / "turned.urdf").write_text(text)
    turned = replace(spec, urdf=tmp_path / "turned.urdf")
    with pytest.raises(UserError, match="its IMU is turned against its base"):
        Plant(build(turned, "floor"), Coordinates(turned, ("base_gyro.x",), np.zeros(1)), np.zeros(4))
