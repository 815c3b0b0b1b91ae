"""Tests of ros_rl.teleop.mapping: twists and poses move the tool as they say, within every limit."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.teleop.device import Sample
from ros_rl.teleop.mapping import CartesianMapping, JointMapping, VelocityMapping

ARM = load_robot("arm")
MODEL = RobotModel(ARM)
COUNT = len(ARM.joints)
EVERYWHERE = (-3.0, -3.0, -3.0, 3.0, 3.0, 3.0)
GRIPPER = ARM.joint_names.index("finger_joint1")


class Arm:
    """An arm that does at once what it is told, unless a test holds it."""

    def __init__(self, spec=ARM, workspace=EVERYWHERE, speed=0.25, turn=1.0, start=None):
        self.spec = spec
        self.mapping = CartesianMapping(spec, speed, turn, workspace)
        self.q = (spec.home if start is None else start).copy()
        self.time = 0.0
        self.commands = []

    def run(self, seconds, **says):
        for _ in range(round(seconds * self.spec.control_rate)):
            observation = Observation(self.time, self.q.copy(), np.zeros_like(self.q), np.zeros_like(self.q))
            command = self.mapping.command(Sample(0.0, True, **says), observation)
            assert command.stamp == self.time
            self.commands.append(command.values)
            self.q[: len(command.values)] = command.values
            self.time += self.spec.period
        return self

    @property
    def pose(self):
        return MODEL.frame_pose(self.spec.tool_frame, self.q)

    def steps(self):
        return np.abs(np.diff(self.commands, axis=0))


HOME = MODEL.frame_pose(ARM.tool_frame, ARM.home)


@pytest.mark.parametrize("direction", np.concatenate([np.eye(3), -np.eye(3)]))
def test_a_twist_moves_the_tool_along_a_straight_line_at_its_speed(direction):
    arm = Arm().run(0.5, twist=np.concatenate([0.1 * direction, np.zeros(3)]))
    # The first command says where the arm is: no time has passed before it.
    np.testing.assert_allclose(arm.pose.position - HOME.position, 0.1 * (0.5 - ARM.period) * direction, atol=2e-3)
    assert np.linalg.norm(pin.log3(arm.pose.rotation.T @ HOME.rotation)) < 0.01


@pytest.mark.parametrize("axis", np.eye(3))
def test_a_twist_turns_the_tool_where_it_is(axis):
    arm = Arm().run(0.5, twist=np.concatenate([np.zeros(3), 0.4 * axis]))
    np.testing.assert_allclose(pin.log3(arm.pose.rotation @ HOME.rotation.T), 0.4 * (0.5 - ARM.period) * axis, atol=5e-3)
    np.testing.assert_allclose(arm.pose.position, HOME.position, atol=2e-3)


def test_a_twist_is_in_the_axes_of_its_frame():
    arm = Arm().run(0.5, twist=np.array([0.0, 0.0, 0.1, 0.0, 0.0, 0.0]), frame=ARM.tool_frame)
    forward = HOME.rotation[:, 2]
    np.testing.assert_allclose(arm.pose.position - HOME.position, 0.1 * (0.5 - ARM.period) * forward, atol=2e-3)


def test_a_twist_faster_than_the_speed_is_slowed_down():
    arm = Arm(speed=0.05).run(0.4, twist=np.array([0.0, 3.0, 4.0, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(arm.pose.position - HOME.position, 0.05 * (0.4 - ARM.period) * np.array([0, 0.6, 0.8]), atol=2e-3)


def test_a_robot_with_a_slow_control_rate_moves_at_the_same_speed_and_makes_up_for_no_gap():
    arm = Arm(load_robot("arm", 5.0)).run(1.0, twist=np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0]))
    assert arm.pose.position[1] - HOME.position[1] == pytest.approx(0.1 * (1.0 - 0.2), rel=0.1)
    for spec, longest in ((ARM, 0.05), (load_robot("arm", 5.0), 0.4)):
        arm = Arm(spec).run(2 * spec.period, twist=np.zeros(6))
        arm.time += 10.0
        arm.run(spec.period, twist=np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0]))
        assert arm.pose.position[1] - HOME.position[1] == pytest.approx(0.1 * longest, rel=0.1)


def test_a_pose_is_reached_at_the_speed_and_kept():
    goal = Pose(HOME.position + [0.0, 0.1, 0.05], pin.exp3(np.array([0.0, 0.0, 0.3])) @ HOME.rotation)
    arm = Arm(speed=0.25).run(0.3, pose=goal)
    assert np.linalg.norm(arm.pose.position - HOME.position) == pytest.approx(0.25 * (0.3 - ARM.period), rel=0.05)
    arm.run(2.0, pose=goal)
    np.testing.assert_allclose(arm.pose.position, goal.position, atol=1e-3)
    assert np.linalg.norm(pin.log3(arm.pose.rotation.T @ goal.rotation)) < 5e-3


@pytest.mark.parametrize("velocity", [[0.25, 0.0, 0.0], [0.0, 0.0, 0.25], [0.0, 0.25, 0.0], [-0.25, 0.0, 0.0], [0.0, 0.0, -0.25]])
@pytest.mark.parametrize("name", ["arm", "ur5", "xarm7", "so101"])
def test_into_a_singularity_and_back_the_joints_stay_within_their_limits(name, velocity):
    spec = load_robot(name)
    arm = Arm(spec)
    twist = np.array([*velocity, 0.0, 0.0, 0.0])
    arm.run(4.0, twist=twist)  # a metre: further than it reaches
    arm.run(1.0, twist=-twist)
    assert np.isfinite(arm.commands).all()
    assert (arm.steps() <= spec.velocity * spec.period + 1e-9).all()
    assert (np.array(arm.commands) >= spec.lower).all()
    assert (np.array(arm.commands) <= spec.upper).all()


@pytest.mark.parametrize(("name", "direction"), [("arm", 1), ("xarm7", 0), ("xarm7", 1)])
def test_near_a_singularity_the_joints_stay_slower_than_without_damping(name, direction):
    spec = load_robot(name)
    twist = np.zeros(6)
    twist[direction] = 0.25
    fastest = []
    for damped in (False, True):
        arm = Arm(spec)
        if not damped:
            arm.mapping._ik._singularity_damping = False
        fastest.append((arm.run(4.0, twist=twist).steps() / spec.velocity / spec.period).max())
    assert fastest[0] == pytest.approx(1.0)  # nothing but the limit holds them
    assert fastest[1] < 0.85


def test_out_of_reach_nothing_winds_up():
    """The way back begins at once, however long a person has pushed on: here for half a metre, two seconds, beyond the reach."""
    arm = Arm().run(4.0, twist=np.array([0.25, 0.0, 0.0, 0.0, 0.0, 0.0]))
    far = arm.pose.position
    arm.run(0.1, twist=np.array([-0.25, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert arm.pose.position[0] < far[0]
    arm.run(0.9, twist=np.array([-0.25, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert arm.pose.position[0] < far[0] - 0.08


def test_the_tool_does_not_leave_the_workspace_and_may_come_back_into_it():
    lowest = HOME.position[2] - 0.05
    arm = Arm(workspace=(-3, -3, lowest, 3, 3, 3)).run(1.0, twist=np.array([0.0, 0.1, -0.1, 0.0, 0.0, 0.0]))
    assert arm.pose.position[2] == pytest.approx(lowest, abs=2e-3)
    assert arm.pose.position[1] == pytest.approx(HOME.position[1] + 0.1, abs=5e-3)  # along the edge it goes on
    outside = Arm(workspace=(-3, -3, HOME.position[2] + 0.1, 3, 3, 3))
    outside.run(0.3, twist=np.zeros(6))
    np.testing.assert_allclose(outside.pose.position, HOME.position, atol=1e-3)
    outside.run(0.5, twist=np.array([0.0, 0.0, 0.1, 0.0, 0.0, 0.0]))
    assert outside.pose.position[2] == pytest.approx(HOME.position[2] + 0.05, abs=3e-3)


def test_the_gripper_opens_and_closes_at_its_speed_and_stays_where_it_is_told():
    arm = Arm()
    speed = ARM.velocity[GRIPPER]
    arm.run(0.05, twist=np.zeros(6), gripper=0.0)
    assert arm.q[GRIPPER] == pytest.approx(0.04 - speed * (0.05 - ARM.period))
    arm.run(1.0, twist=np.zeros(6), gripper=0.5)
    assert arm.q[GRIPPER] == pytest.approx(0.02)
    arm.run(0.1, twist=np.zeros(6))
    assert arm.q[GRIPPER] == pytest.approx(0.02)


def test_taps_do_not_let_an_arm_sag_that_gives_way_under_its_load():
    """Its controller is always 2 mrad short of the target; each tap goes on from the target."""
    arm = Arm()
    arm.run(0.1, twist=np.zeros(6))
    first = arm.commands[-1]
    for _ in range(100):
        arm.q[:7] -= 0.002
        arm.run(0.01, twist=np.zeros(6))
    np.testing.assert_allclose(arm.commands[-1], first, atol=1e-4)


def policy(values, stamp):
    return JointCommand(ARM.joint_names[::-1], np.asarray(values)[::-1], stamp, "policy")


def test_c6_a_restart_goes_back_to_nothing_that_was_commanded_before():
    arm = Arm().run(0.5, twist=np.array([0.0, 0.1, 0.0, 0.0, 0.0, 0.0]), gripper=0.0)
    arm.q[:COUNT] += 0.9 * ARM.lead  # by the policy, to which the robot was given back
    moved = arm.q[:COUNT].copy()
    arm.mapping.restart(None)
    arm.run(ARM.period, twist=np.zeros(6))
    np.testing.assert_array_equal(arm.commands[-1], moved)


def test_a_takeover_keeps_the_grip_of_the_policy_and_does_not_let_the_arm_sag():
    arm = Arm()
    arm.q[GRIPPER] = 0.0195  # a block is between the fingers
    sent = ARM.home[:COUNT] + np.where(np.arange(COUNT) == GRIPPER, -0.04, 0.5 * ARM.lead)
    arm.mapping.restart(policy(sent, -ARM.period))
    arm.run(ARM.period, twist=np.zeros(6))
    np.testing.assert_array_equal(arm.commands[-1], sent)
    arm.q[:] = ARM.home
    arm.q[GRIPPER] = 0.0195
    arm.run(0.1, twist=np.zeros(6))
    assert arm.commands[-1][GRIPPER] == sent[GRIPPER]


@pytest.mark.parametrize(
    "sent",
    [
        policy(ARM.home[:COUNT] + 0.5 * ARM.lead, -1.0),  # long ago
        policy(np.full(COUNT, np.nan), 0.0),
    ],
)
def test_a_takeover_starts_from_where_the_arm_is_where_no_command_says_more(sent):
    arm = Arm()
    arm.mapping.restart(sent)
    arm.run(ARM.period, twist=np.zeros(6))
    np.testing.assert_array_equal(arm.commands[-1], ARM.home[:COUNT])


def test_a_thing_in_the_gripper_does_not_stop_it_from_gripping():
    spec = load_robot("so101")
    arm, index = Arm(spec), spec.joint_names.index(spec.gripper.joint)
    for _ in range(200):
        arm.run(spec.period, twist=np.zeros(6), gripper=0.0)
        arm.q[index] = 0.8  # further open than a target may lead it
    assert arm.commands[-1][index] == spec.gripper.closed
    arm.q[0] += 0.5  # nor does a push at the arm
    arm.run(spec.period, twist=np.zeros(6))
    assert arm.commands[-1][index] == spec.gripper.closed


def test_an_arm_that_was_moved_meanwhile_is_taken_from_where_it_is():
    arm = Arm()
    arm.run(0.1, twist=np.zeros(6))
    arm.q[0] += 0.5
    moved = arm.q.copy()
    arm.run(0.005, twist=np.zeros(6))
    np.testing.assert_array_equal(arm.commands[-1], moved[:COUNT])


def test_the_target_does_not_run_away_from_an_arm_that_is_blocked():
    arm = Arm()
    for _ in range(300):
        arm.run(ARM.period, twist=np.array([0.0, 0.2, 0.0, 0.0, 0.0, 0.0]))
        arm.q = ARM.home.copy()
    ahead = np.abs(np.array(arm.commands) - ARM.home[:COUNT])
    assert (ahead <= ARM.lead + ARM.velocity * ARM.period).all()


def test_s5_time_that_jumps_back_starts_from_where_the_arm_is():
    arm = Arm().run(0.5, twist=np.array([0.2, 0.0, 0.0, 0.0, 0.0, 0.0]))
    arm.time, arm.q = 0.0, ARM.home.copy()
    arm.run(0.005, twist=np.zeros(6))
    np.testing.assert_array_equal(arm.commands[-1], ARM.home[:COUNT])


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ({"twist": np.array([np.nan, 0, 0, 0, 0, 0])}, "six finite numbers"),
        ({"twist": np.array([0, 0, 0, 0, 0, np.inf])}, "six finite numbers"),
        ({"twist": np.zeros(3)}, "six finite numbers"),
        ({"twist": np.zeros(6), "frame": "elbow"}, "'elbow'"),
        ({"twist": np.zeros(6), "gripper": np.nan}, "gripper's opening is not finite"),
        ({"pose": Pose(np.array([np.nan, 0, 0]), np.eye(3))}, "the pose to go to is not finite"),
        ({}, "neither a twist nor a pose"),
    ],
)
def test_c1_what_cannot_be_followed_is_refused(says, problem):
    arm = Arm().run(0.1, twist=np.zeros(6))
    with pytest.raises(UserError, match=problem):
        arm.run(0.005, **says)
    arm.run(0.005, twist=np.zeros(6))
    np.testing.assert_allclose(arm.commands[-1], ARM.home[:COUNT], atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "workspace", "problem"),
    [
        (load_robot("cartpole"), EVERYWHERE, "robot 'cartpole' has no tool_frame in its robot.yaml"),
        (replace(ARM, command_mode="velocity"), EVERYWHERE, "robot 'arm' has no command_mode position"),
        (ARM, (0.0, 0.0, 1.0, 1.0, 1.0, 0.0), "workspace must be least x, y, z, then greatest"),
    ],
)
def test_what_does_not_fit_is_refused(spec, workspace, problem):
    with pytest.raises(UserError, match=problem):
        CartesianMapping(spec, 0.2, 0.8, workspace)


def test_joints_pass_by_name_with_the_stamp_of_the_observation():
    observation = Observation(3.0, ARM.home, np.zeros_like(ARM.home), np.zeros_like(ARM.home))
    joints = JointCommand(ARM.joint_names[::-1], np.arange(8.0), 0.0)
    command = JointMapping(ARM).command(Sample(0.0, True, joints=joints), observation)
    assert (command.joint_names, command.stamp) == (ARM.joint_names, 3.0)
    np.testing.assert_array_equal(command.values, np.arange(8.0)[::-1])
    with pytest.raises(UserError, match="the device tells no joints"):
        JointMapping(ARM).command(Sample(0.0, True), observation)


def test_a_walking_robot_is_not_faster_than_its_speeds_and_moves_in_the_axes_of_its_base():
    spec = load_robot("quadruped")
    mapping, twist = VelocityMapping(spec, 0.5, 1.0), np.array([3.0, 4.0, 9.0, 9.0, 9.0, -99.0])
    for frame in ("", spec.read_urdf().root):
        np.testing.assert_allclose(mapping.velocity(Sample(0.0, True, twist=twist, frame=frame)), [0.3, 0.4, -1.0])
    with pytest.raises(UserError, match="a twist in the axes of its base"):
        mapping.velocity(Sample(0.0, True, twist=twist, frame="FL_foot"))
