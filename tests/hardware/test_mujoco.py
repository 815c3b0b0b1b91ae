"""Tests of ros_rl.hardware.mujoco: every robot in every scene and task keeps the contract of a simulated robot."""

import dataclasses

import numpy as np
import pytest

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation, SimulatedRobot, quantise
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot, robot_names
from ros_rl.sim.task import TaskMonitor, load_task, task_names

# Every task with its robot, and every robot in an empty world.
CASES = [*((load_task(name).robot, name) for name in task_names()), *((name, "floor") for name in robot_names())]


def make(robot: str, world: str, seed: int = 0, cameras: tuple[str, ...] = ()) -> MujocoRobot:
    return MujocoRobot(load_robot(robot), load_task(world) if world in task_names() else world, seed, cameras)


def drive(robot: MujocoRobot, steps: int, seed: int = 0) -> list[Observation]:
    """Random commands around rest; returns what was observed after each."""
    random = np.random.default_rng(seed)
    rest = robot.spec.rest(robot.spec.home)
    seen = []
    for _ in range(steps):
        robot.write(JointCommand(robot.spec.joint_names, rest + random.normal(0.0, 0.05, rest.shape), robot.read().stamp))
        robot.step()
        seen.append(robot.read())
    return seen


def flat(observation: Observation) -> dict[str, np.ndarray]:
    """All arrays of an observation by name."""
    arrays = {}
    for field in dataclasses.fields(observation):
        value = getattr(observation, field.name)
        if isinstance(value, dict):
            arrays |= {f"{field.name}.{name}": array for name, array in value.items()}
        elif isinstance(value, np.ndarray):
            arrays[field.name] = value
    return arrays


def assert_same(one: list[Observation], other: list[Observation]) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.stamp == b.stamp
        assert flat(a).keys() == flat(b).keys()
        for name, array in flat(a).items():
            np.testing.assert_array_equal(array, flat(b)[name], err_msg=name)


@pytest.mark.parametrize(("robot", "world"), CASES)
def test_observations_are_finite_and_have_the_shapes_of_the_spec(robot, world):
    robot = make(robot, world)
    spec = robot.spec
    assert isinstance(robot, SimulatedRobot)
    for observation in [robot.read(), *drive(robot, 10)]:
        for name in ("joint_position", "joint_velocity", "joint_effort"):
            assert getattr(observation, name).shape == (len(spec.measured_names),)
        for name, size, measured in [
            ("base_quat", 4, spec.imu_frame),
            ("base_gyro", 3, spec.imu_frame),
            ("base_acc", 3, spec.imu_frame),
            ("base_position", 3, spec.odometry),
            ("base_velocity", 3, spec.odometry),
        ]:
            assert (getattr(observation, name) is not None) == bool(measured)
            assert not measured or getattr(observation, name).shape == (size,)
        assert {"base_pose", "base_velocity"} <= observation.privileged.keys() or not spec.floating_base
        for name, array in flat(observation).items():
            assert np.isfinite(array).all(), name


@pytest.mark.parametrize(("robot", "world"), CASES)
def test_the_same_seed_gives_the_same_episode(robot, world):
    one, other = make(robot, world, seed=7), make(robot, world, seed=8)
    drive(other, 5)
    other.reset(7)
    assert_same([one.read()], [other.read()])
    assert_same(drive(one, 20), drive(other, 20))


@pytest.mark.parametrize(("robot", "world"), CASES)
def test_a_restored_robot_has_the_same_future(robot, world):
    robot = make(robot, world)
    drive(robot, 15)
    before, snapshot = robot.read(), robot.snapshot()
    future = drive(robot, 15, seed=1)
    robot.restore(snapshot)
    assert_same([robot.read()], [before])
    assert_same(drive(robot, 15, seed=1), future)
    twin = make(*(robot.spec.name, world), seed=99)
    twin.restore(snapshot)
    assert_same(drive(twin, 15, seed=1), future)


@pytest.mark.parametrize(("robot", "world"), CASES)
def test_observations_share_no_memory(robot, world):
    robot = make(robot, world)
    first = robot.read()
    kept = {name: array.copy() for name, array in flat(first).items()}
    second = drive(robot, 3)[-1]
    for name, array in flat(first).items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
        assert not np.shares_memory(array, flat(second)[name])
        assert not np.shares_memory(array, flat(robot.read())[name])


@pytest.mark.parametrize("name", task_names())
def test_tasks_start_undecided(name):
    task = load_task(name)
    for seed in range(5):
        robot = MujocoRobot(load_robot(task.robot), task, seed)
        observation = robot.read()
        assert (observation.stamp, observation.instruction) == (0.0, task.instruction)
        np.testing.assert_array_equal(observation.command, task.command)
        assert not TaskMonitor(task, robot.spec).update(observation).done


def test_stamps_are_the_simulated_time_in_whole_nanoseconds():
    robot = make("arm", "floor")
    stamps = [observation.stamp for observation in drive(robot, 50)]
    assert stamps == [quantise(stamp) for stamp in stamps]
    np.testing.assert_allclose(stamps, robot.spec.period * np.arange(1, 51), atol=1e-9)


def test_an_imu_at_rest_measures_gravity_upwards():
    quadrotor = make("quadrotor", "floor")
    quadrotor.step()
    observation = quadrotor.read()
    np.testing.assert_allclose(observation.base_acc, [0, 0, 9.81], atol=1e-6)
    np.testing.assert_allclose(observation.base_quat, [1, 0, 0, 0], atol=1e-9)


def test_effort_is_what_the_actuators_apply():
    robot = make("cartpole", "floor")
    robot.write(JointCommand(("slider",), np.array([3.0]), 0.0))
    robot.step()
    np.testing.assert_allclose(robot.read().joint_effort, [3.0, 0.0])


def test_commands_are_mapped_by_name():
    one, other = make("arm", "floor"), make("arm", "floor")
    names, values = one.spec.joint_names, one.spec.home + 0.01 * np.arange(len(one.spec.home)) / 10
    order = np.random.default_rng(0).permutation(len(names))
    one.write(JointCommand(names, values, 0.0))
    sent = other.write(JointCommand(tuple(names[i] for i in order), values[order], 0.0))
    assert sent.joint_names == names
    one.step()
    other.step()
    assert_same([one.read()], [other.read()])


def test_write_returns_what_was_really_sent():
    robot = make("cartpole", "floor")
    sent = robot.write(JointCommand(("slider",), np.array([1e6]), 4.2, "test"))
    np.testing.assert_array_equal(sent.values, robot.spec.effort)
    np.testing.assert_array_equal(robot.data.ctrl, sent.values)
    assert (sent.stamp, sent.source) == (4.2, "test")


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        (("slider", "pole"), [0.0, 0.0], "joint names do not match: got slider, pole; robot 'cartpole' has slider"),
        (("cart",), [0.0], "joint names do not match: got cart; robot 'cartpole' has slider"),
        ((), [], "joint names do not match: got none; robot 'cartpole' has slider"),
        (("slider",), [np.nan], "the command for slider is not finite"),
        (("slider",), [-np.inf], "the command for slider is not finite"),
        (("slider",), [0.0, 0.0], r"1 values are needed, got an array of shape \(2,\)"),
    ],
)
def test_bad_commands_are_refused_and_change_nothing(names, values, message):
    robot = make("cartpole", "floor")
    robot.write(JointCommand(("slider",), np.array([1.0]), 0.0))
    with pytest.raises(UserError, match=message):
        robot.write(JointCommand(names, np.array(values), 0.0))
    np.testing.assert_array_equal(robot.data.ctrl, [1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e8])
def test_s6_divergence_is_a_fault_that_names_time_and_body(bad):
    robot = make("arm", "push_button")
    drive(robot, 20)
    robot.data.qvel[robot.model.qvel[6]] = bad
    with pytest.raises(RobotFault, match=r"'arm' diverged at 0\.1\d+ s: .*body '.+'"):
        robot.step()
    with pytest.raises(RobotFault):
        robot.read()
    assert robot.data.time > 0.1, "the simulation went back to its start"
    robot.reset(0)
    assert robot.read().stamp == 0.0
    drive(robot, 5)


def test_a_position_that_is_not_finite_is_a_fault():
    robot = make("cartpole", "floor")
    robot.data.qpos[1] = np.nan
    with pytest.raises(RobotFault, match="diverged"):
        robot.step()


def test_stop_and_connect_hold_the_measured_position():
    robot = make("arm", "floor")
    drive(robot, 10)
    for hold in (robot.stop, robot.connect):
        robot.data.qpos[robot.model.qvel[0]] += 0.3  # moved by hand
        hold()
        np.testing.assert_array_equal(robot.data.ctrl, robot.read().joint_position)


def test_a_push_changes_the_velocity_of_the_base_by_as_much_and_nothing_else():
    robot = MujocoRobot(load_robot("quadruped"), "floor")
    before = robot.read()
    robot.push(np.array([0.3, -0.4, 0.1]))
    after = robot.read()
    changed = after.privileged["base_velocity"] - before.privileged["base_velocity"]
    np.testing.assert_allclose(changed, [0.3, -0.4, 0.1, 0.0, 0.0, 0.0])
    assert after.stamp == before.stamp
    np.testing.assert_array_equal(after.privileged["base_pose"], before.privileged["base_pose"])
    for name in ("joint_position", "joint_velocity", "base_gyro"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.parametrize(
    ("name", "push", "message"),
    [
        ("arm", [0.5, 0.0, 0.0], "robot 'arm' stands on a fixed base"),
        ("quadruped", [np.nan, 0.0, 0.0], r"finite numbers, got \[nan, 0.0, 0.0\]"),
    ],
)
def test_a_push_that_cannot_be_is_refused_and_changes_nothing(name, push, message):
    robot = MujocoRobot(load_robot(name), "floor")
    before = robot.snapshot().physics
    with pytest.raises(UserError, match=message):
        robot.push(np.array(push))
    np.testing.assert_array_equal(robot.snapshot().physics, before)


def test_stop_sends_hold_in_other_modes():
    robot = make("quadrotor", "floor")
    drive(robot, 3)
    robot.stop()
    np.testing.assert_array_equal(robot.data.ctrl, [joint.hold for joint in robot.spec.joints])


def test_cameras_keep_their_rate_and_their_last_frame():
    """30 frames per second read at 200 Hz: a new frame every sixth or seventh observation."""
    robot = make("arm", "push_button", cameras=("front",))
    images, stamps = [], []
    for _ in range(41):
        observation = robot.read()
        images.append(observation.images["front"])
        stamps.append(observation.image_stamps["front"])
        robot.step()
    new = [index for index in range(1, 41) if stamps[index] != stamps[index - 1]]
    assert new == [7, 14, 20, 27, 34, 40]
    np.testing.assert_array_equal(images[7], images[13])
    assert not np.shares_memory(images[7], images[8])
    robot.close()


def test_a_restored_camera_goes_on_with_its_last_frame():
    robot = make("arm", "push_button", cameras=("front", "wrist"))
    for _ in range(4):
        robot.read()
        robot.step()
    snapshot = robot.snapshot()
    future = drive(robot, 8)
    robot.restore(snapshot)
    assert_same(drive(robot, 8), future)
    robot.close()
    robot.close()


def test_a_task_that_was_loaded_for_another_robot_is_refused():
    with pytest.raises(UserError, match="task was loaded for robot 'arm', not for 'panda'"):
        MujocoRobot(dataclasses.replace(load_robot("arm"), name="panda"), load_task("push_button"))


def test_unknown_camera():
    with pytest.raises(UserError, match="unknown camera 'wirst', did you mean 'wrist'"):
        make("arm", "floor", cameras=("wirst",))
