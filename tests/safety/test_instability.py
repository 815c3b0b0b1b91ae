"""Tests of ros_rl.safety.instability: the tilt in closed form, the height against the simulation."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import Observation
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import run_episode
from ros_rl.policies.actors import load_policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.safety.instability import Instability
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.region import Region
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import load_task

SPEC = load_robot("quadruped")
TILT = Instability(SPEC, Region(0.35, np.pi / 3))
BOTH = Instability(SPEC, Region(0.35, np.pi / 3, 0.15))


def seen(quat, joints=SPEC.home) -> Observation:
    return Observation(0.0, joints, np.zeros(12), np.zeros(12), base_quat=None if quat is None else np.asarray(quat, float))


def turned(axis, angle) -> np.ndarray:
    """A turn by an angle about an axis, (w, x, y, z)."""
    axis = np.asarray(axis, float)
    return np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * axis / np.linalg.norm(axis)])


@pytest.mark.parametrize("axis", [[1, 0, 0], [0, 1, 0], [1, -1, 0], [-3, 0.2, 0]])
@pytest.mark.parametrize("angle", [0.0, 0.2, np.pi / 3, 2.0, np.pi])
def test_a_turn_about_a_level_axis_is_a_tilt(axis, angle):
    assert float(TILT(seen(turned(axis, angle)))) == pytest.approx(angle / (np.pi / 3), abs=1e-7)


def test_the_heading_and_the_sign_of_the_quaternion_do_not_matter():
    tilted = turned([1, 0.5, 0], 0.4)
    yawed = pin.Quaternion(*turned([0, 0, 1], 2.5)) * pin.Quaternion(*tilted)
    x, y, z, w = yawed.coeffs()
    for quat in (tilted, -tilted, [w, x, y, z], 1.04 * tilted):
        assert float(TILT(seen(quat))) == pytest.approx(0.4 / (np.pi / 3))


def test_an_imu_that_is_mounted_askew_tells_the_tilt_of_the_base():
    askew = replace(SPEC, imu_frame="FL_hip")  # turns with the hip joint; here at 0.3 rad
    instability = Instability(askew, Region(0.35, np.pi / 3))
    assert float(instability(seen([1, 0, 0, 0]))) == pytest.approx(0.0)
    turn = pin.exp3(np.array([0.3, -0.2, 0.1]))
    instability._turned = turn  # the base's axes from the IMU's
    x, y, z, w = pin.Quaternion(pin.exp3(np.array([0.0, 0.4, 0.0])) @ turn).coeffs()
    assert float(instability(seen([w, x, y, z]))) == pytest.approx(0.4 / (np.pi / 3))


@pytest.mark.parametrize("quat", [None, [0, 0, 0, 0], [np.nan, 0, 0, 0], [1, 0, np.inf, 0], [0.5, 0, 0, 0], [1.2, 0, 0, 0]])
def test_what_is_no_attitude_has_no_instability(quat):
    assert np.isnan(TILT(seen(quat)))
    assert np.isnan(BOTH(seen(quat)))


def test_a_joint_that_is_no_number_leaves_the_height_unknown():
    joints = np.where(np.arange(12) == 4, np.nan, SPEC.home)
    assert np.isnan(BOTH(seen([1, 0, 0, 0], joints)))
    assert float(TILT(seen([1, 0, 0, 0], joints))) == 0.0


def test_bent_legs_are_a_drop_and_one_that_is_lifted_is_none():
    # With thigh t and calf -2t the foot is 2·0.213·cos t below the hip.
    assert float(BOTH(seen([1, 0, 0, 0]))) == pytest.approx(0.0, abs=1e-3)
    bent = np.tile([0.0, 1.3, -2.6], 4)
    drop = 2 * 0.213 * (np.cos(0.9) - np.cos(1.3))
    assert float(BOTH(seen([1, 0, 0, 0], bent))) == pytest.approx(drop / 0.15, abs=1e-3)
    assert float(BOTH(seen([1, 0, 0, 0], np.concatenate([SPEC.home[:9], bent[:3]])))) == pytest.approx(0.0, abs=1e-3)
    higher = Instability(SPEC, Region(0.35, np.pi / 3, 0.15, height=SPEC.base_position[2] + 0.03))
    assert float(higher(seen([1, 0, 0, 0]))) == pytest.approx(0.2, abs=1e-3)


def test_the_height_is_that_of_the_simulation_while_the_robot_trots():
    task, heights = load_task("quadruped_trot", "quadruped"), []
    robot = GuardedRobot(MujocoRobot(SPEC, task), Guard(SPEC))
    runner, stage = PolicyRunner(load_policy("quadruped_trot", SPEC)), SafetyStage(SPEC, PassThrough())

    def compare(step) -> None:
        heights.append((float(BOTH.height(step.observation)), step.observation.privileged["base_pose"][2]))

    run_episode(robot, runner, stage, 0, 400, None, compare)
    robot.close()
    told, true = np.array(heights).T
    assert np.abs(told - true).max() < 0.02
    assert np.abs(told - true).mean() < 0.01  # the feet sink in a little


def test_many_states_at_once_are_as_one_by_one():
    draw = np.random.default_rng(0)
    quats = draw.normal(size=(3, 4, 4))
    quats /= np.linalg.norm(quats, axis=-1, keepdims=True)
    joints = SPEC.home + draw.normal(size=(3, 4, 12))
    together = BOTH(seen(quats, joints))
    assert together.shape == (3, 4)
    for place in np.ndindex(3, 4):
        assert float(BOTH(seen(quats[place], joints[place]))) == together[place]


def test_the_share_of_upright_poses_outside_grows_as_the_region_shrinks():
    shares = [Instability(SPEC, Region(d, 1.0, 0.15, height=0.3)).excluded()[0] for d in (0.001, 0.05, 0.07, 0.2)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0 and shares[-1] == 0.0


def test_robots_without_an_imu_or_four_legs_are_refused():
    with pytest.raises(UserError, match="robot 'arm' has no IMU on a floating base"):
        Instability(load_robot("arm"), Region(0.35, 1.0))
    Instability(load_robot("quadrotor"), Region(0.35, 1.0))
    with pytest.raises(UserError, match="a robot of four legs has the joints"):
        Instability(load_robot("quadrotor"), Region(0.35, 1.0, 0.15))
