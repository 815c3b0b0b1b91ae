"""Tests of ros_rl.sim.disturb."""

import dataclasses

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation, SimulatedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot
from ros_rl.sim.disturb import DisturbanceConfig, DisturbedRobot
from ros_rl.sim.task import load_task


class CountingRobot:
    """Measures the number of steps so far, and takes an image of it at every second step."""

    def __init__(self) -> None:
        self.spec = load_robot("cartpole")
        self.written: list[float] = []
        self.count = 0

    def read(self) -> Observation:
        frame = self.count - self.count % 2
        return Observation(
            stamp=self.count * self.spec.period,
            joint_position=np.full(2, float(self.count)),
            joint_velocity=np.zeros(2),
            joint_effort=np.zeros(2),
            base_quat=np.array([1.0, 0, 0, 0]),
            images={"eye": np.full((1, 1, 3), frame % 256, dtype=np.uint8)},
            image_stamps={"eye": frame * self.spec.period},
        )

    def write(self, command: JointCommand) -> JointCommand:
        self.written.append(float(command.values[0]))
        return command

    def step(self) -> None:
        self.count += 1

    def reset(self, seed: int) -> None:
        self.count = 0

    def connect(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


def run(robot: DisturbedRobot, steps: int) -> list[Observation]:
    seen = []
    for _ in range(steps):
        seen.append(robot.read())
        robot.step()
    return seen


def test_is_a_simulated_robot():
    assert isinstance(DisturbedRobot(CountingRobot(), DisturbanceConfig()), SimulatedRobot)


def test_no_disturbance_changes_nothing():
    spec, task = load_robot("quadrotor"), load_task("quadrotor_hover")
    plain, wrapped = MujocoRobot(spec, task, 1), DisturbedRobot(MujocoRobot(spec, task, 1), DisturbanceConfig())
    for _ in range(5):
        expected, seen = plain.read(), wrapped.read()
        for field in dataclasses.fields(Observation):
            np.testing.assert_equal(getattr(seen, field.name), getattr(expected, field.name))
        plain.step()
        wrapped.step()


def test_noise_has_the_asked_deviation():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(noise={"joint_velocity": 0.3}))
    noise = np.array([seen.joint_velocity for seen in run(robot, 2000)])
    assert noise.std() == pytest.approx(0.3, rel=0.05)
    assert abs(noise.mean()) < 0.02
    assert robot.read().joint_position[0] == 2000


def test_noise_on_the_attitude_is_a_rotation():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(noise={"base_quat": 0.01}))
    quats = np.array([seen.base_quat for seen in run(robot, 2000)])
    np.testing.assert_allclose(np.linalg.norm(quats, axis=1), 1.0, atol=1e-12)
    assert (2 * quats[:, 1:]).std() == pytest.approx(0.01, rel=0.05)


def test_reading_again_gives_the_same_numbers_in_other_memory():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(noise={"joint_position": 1.0}))
    first, second = robot.read(), robot.read()
    np.testing.assert_array_equal(first.joint_position, second.joint_position)
    assert not np.shares_memory(first.joint_position, second.joint_position)
    assert not np.shares_memory(first.images["eye"], second.images["eye"])


def test_the_seed_decides():
    config = DisturbanceConfig(noise={"joint_position": 1.0}, frame_drop=0.5)
    a, b, c = (run(DisturbedRobot(CountingRobot(), config, seed), 20) for seed in (1, 1, 2))
    assert all(np.array_equal(x.joint_position, y.joint_position) for x, y in zip(a, b, strict=True))
    assert not all(np.array_equal(x.joint_position, y.joint_position) for x, y in zip(a, c, strict=True))


def test_late_observations_keep_their_stamps():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(latency=0.025))
    seen = run(robot, 6)
    period = robot.spec.period
    assert [round(observation.stamp / period) for observation in seen] == [0, 0, 0, 0, 1, 2]
    assert [observation.joint_position[0] for observation in seen] == [0, 0, 0, 0, 1, 2]


def test_a_lost_frame_leaves_the_old_one_with_its_stamp():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(frame_drop=1.0))
    for step in range(5):
        assert robot.read().images["eye"].max() == 0
        assert robot.read().image_stamps == {"eye": 0.0}
        assert robot.read().stamp == pytest.approx(step * robot.spec.period)
        robot.step()


def test_frames_are_lost_as_often_as_asked():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(frame_drop=0.3))
    stamps = []
    for _ in range(2000):
        stamps.append(robot.read().image_stamps["eye"])
        robot.step()
    assert len(set(stamps)) / 1000 == pytest.approx(0.7, abs=0.04)


def test_late_actions_rest_at_first():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(action_delay=0.02))
    sent = []
    for value in (1.0, 2.0, 3.0, 4.0):
        sent.append(robot.write(JointCommand(robot.spec.joint_names, np.array([value]), 0.0)).values[0])
        robot.step()
    assert sent == [0.0, 0.0, 1.0, 2.0]
    assert robot.robot.written == [0.0, 1.0, 2.0]


def test_reset_forgets_what_is_under_way():
    robot = DisturbedRobot(CountingRobot(), DisturbanceConfig(action_delay=0.01, latency=0.05))
    run(robot, 10)
    robot.write(JointCommand(robot.spec.joint_names, np.array([5.0]), 0.0))
    robot.reset(1)
    assert robot.read().stamp == 0.0
    assert robot.write(JointCommand(robot.spec.joint_names, np.array([6.0]), 0.0)).values[0] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": {"joint_positon": 1.0}}, "did you mean 'joint_position'"),
        ({"noise": {"joint_position": -1.0}}, "must be 0 or more"),
        ({"noise": {"joint_position": float("nan")}}, "must be 0 or more"),
        ({"latency": -0.1}, "latency is -0.1 s"),
        ({"action_delay": float("inf")}, "action_delay is inf s"),
        ({"frame_drop": 1.5}, "a probability is from 0 to 1"),
    ],
)
def test_impossible_disturbances_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        DisturbanceConfig(**arguments)
