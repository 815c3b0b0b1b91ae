"""Tests of ros_rl.nodes.safety_node with filter recovery: who acts in which tick, and what is said of it."""

import json

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from harness import value, watch
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.messages import CLAIM_QOS, COMMAND_QOS, from_imu, from_time, to_imu, to_joint_state, to_trajectory
from ros_rl.nodes.safety_node import SafetyNode
from ros_rl.policies.bundle import load_bundle
from ros_rl.robots.spec import load_robot
from ros_rl.safety.instability import Instability
from ros_rl.safety.recovery import RecoverySettings, RecoverySwitch

SPEC = load_robot("quadruped")
REGION = load_bundle("quadruped_stand").region
RECOVERY = {"filter": "recovery", "recovery": "quadruped_stand"}
STATE = Observation(0.0, SPEC.home, np.zeros(12), np.zeros(12), base_gyro=np.zeros(3), base_acc=np.array([0.0, 0.0, 9.81]))


def test_in_lock_step_a_push_is_answered_by_recovery_in_the_same_tick_until_the_robot_is_well_inside_again(ros):
    commands, states = ros.hear(JointTrajectory, "joint_command"), ros.hear(JointState, "joint_states")
    attitudes, statuses = ros.hear(Imu, "imu/data"), ros.hear(DiagnosticStatus, "safety/status")
    nodes = ros.up("quadruped", tasks="quadruped_trot", lockstep=True, **RECOVERY)
    hardware = nodes["hardware_node"]
    assert isinstance(hardware, HardwareNode)
    ticks, simulation, step, count = watch(hardware), hardware._simulation, hardware.robot.step, [0]

    def push_and_step() -> None:
        count[0] += 1
        if count[0] == 300:
            simulation.data.qvel[:6] += PUSH
        step()

    hardware.robot.step = push_and_step
    for end in (300, 500, 700, 900):
        ros.until(lambda end=end: count[0] >= end, f"for tick {end}")
    joints = {from_time(state.header.stamp): np.array(state.position) for state in states}
    quats = {from_time(imu.header.stamp): from_imu(imu)["base_quat"] for imu in attitudes}
    sources = {from_time(command.header.stamp): command.header.frame_id for command in commands}
    # Who acted in each tick is what the switch says of the states of that tick, one after the other.
    instability, switch = Instability(SPEC, REGION), RecoverySwitch(REGION.d, RecoverySettings())
    stamps = sorted(joints.keys() & quats.keys() & sources.keys())
    zero = np.zeros(12)
    rho = [float(instability(Observation(stamp, joints[stamp], zero, zero, base_quat=quats[stamp]))) for stamp in stamps]
    expected = [
        "recovery:quadruped_stand" if switch.update(*pair) == "recovery" else "quadruped_trot" for pair in zip(stamps, rho, strict=True)
    ]
    assert [sources[stamp] for stamp in stamps] == expected
    first = next(index for index, entry in enumerate(rho) if entry >= REGION.d)
    assert stamps[first] >= 300 * SPEC.period
    assert expected[first - 1 : first + 1] == ["quadruped_trot", "recovery:quadruped_stand"]
    assert expected[-1] == "quadruped_trot" and rho[-1] < REGION.d
    assert max(rho) < 1.0 and switch.triggers >= 1
    assert {tick.state for tick in ticks} == {"ok"}
    ros.until(lambda: value(statuses[-1], "mode") == "task" and value(statuses[-1], "triggers") == str(switch.triggers))
    assert float(value(statuses[-1], "recovery_time")) == pytest.approx(switch.time, abs=1e-5)
    modes = [value(status, "mode") for status in statuses]
    assert "recovery" in modes  # said when it begins, not only ten times a second


PUSH = np.array([0.0, 0.5, 0.0, 0.0, 0.0, 0.0])  # m/s and rad/s


class Bench:
    """The safety node of the quadruped in real time, between a test's measurements and actions."""

    def __init__(self, ros, **arguments):
        self._ros = ros
        given = {"tasks": "quadruped_stand", "use_sim_time": "false", **RECOVERY, **arguments}
        self.node = ros.up("quadruped", without=("hardware_node", "policy_node", "task_node"), **given)["safety_node"]
        # However long the machine takes: time passes where the test says so, and the test ticks itself.
        self.clock = 0.0
        self.node._now = lambda: self.clock
        self.node.destroy_timer(next(timer for timer in self.node.timers if timer.timer_period_ns == 5_000_000))
        self.heard: list[float] = []
        self.node.trace = lambda place, stamp: self.heard.append(stamp)
        self.commands = ros.hear(JointTrajectory, "joint_command")
        self.statuses = ros.hear(DiagnosticStatus, "safety/status")
        self._states = ros.probe.create_publisher(JointState, "joint_states", COMMAND_QOS)
        self._imu = ros.probe.create_publisher(Imu, "imu/data", COMMAND_QOS)
        self._actions = ros.probe.create_publisher(JointTrajectory, "policy/action", COMMAND_QOS)
        self._claims = ros.probe.create_publisher(String, "teleop/engaged", CLAIM_QOS)
        ros.until(lambda: all(topic.get_subscription_count() for topic in (self._states, self._imu, self._actions, self._claims)))

    def look(self, stamp: float, tilt: float | None) -> None:
        """Shows the robot, without an attitude if there is no tilt, and waits until the node has seen it."""
        self.clock = stamp
        if tilt is not None:
            self._publish_attitude(stamp, tilt)
        self._states.publish(to_joint_state(stamp, list(SPEC.measured_names), SPEC.home, np.zeros(12), np.zeros(12)))
        self._ros.until(lambda: self.node._observation is not None and abs(self.node._observation.stamp - stamp) < 1e-6)

    def _publish_attitude(self, stamp: float, tilt: float) -> None:
        quat = np.array([np.cos(tilt / 2), np.sin(tilt / 2), 0.0, 0.0])
        seen = Observation(stamp, SPEC.home, STATE.joint_velocity, STATE.joint_effort, quat, STATE.base_gyro, STATE.base_acc)
        self._imu.publish(to_imu(seen, SPEC.imu_frame))

    def show_attitude(self, stamp: float) -> None:
        """Shows a level attitude alone, and waits until the node has seen it."""
        self._publish_attitude(stamp, 0.0)
        self._ros.until(lambda: abs(self.node._assembler._parts["imu"].stamp - stamp) < 1e-6)

    def miss(self, stamp: float) -> None:
        """Shows the joints alone, and waits until the node has seen them: they wait for the attitude."""
        assembler = self.node._assembler
        self._states.publish(to_joint_state(stamp, list(SPEC.measured_names), SPEC.home, np.zeros(12), np.zeros(12)))
        self._ros.until(lambda: abs(assembler._parts["joints"].stamp - stamp) < 1e-6)

    def act(self, stamp: float, target: np.ndarray = SPEC.home) -> None:
        """Sends an action of the task policy, and waits until the node has taken it."""
        count = len(self.heard)
        self._actions.publish(to_trajectory(JointCommand(SPEC.joint_names, target, stamp, "test"), "position"))
        self._ros.until(lambda: len(self.heard) > count)

    def claim(self, state: str) -> None:
        """Says what a device does, and waits until the node has heard it."""
        self._claims.publish(String(data=json.dumps({"device": "joy", "state": state})))
        self._ros.until(lambda: self.node._takeover._claim == state)

    def sent(self, count: int) -> list[tuple[float, str]]:
        """Returns stamps and sources of all commands, once there are that many."""
        self._ros.until(lambda: len(self.commands) >= count)
        assert len(self.commands) == count
        return [(from_time(command.header.stamp), command.header.frame_id) for command in self.commands]

    def last(self, stamp: float) -> str:
        """Returns the source of the last command, once that is of that stamp."""
        self._ros.until(lambda: self.commands and abs(from_time(self.commands[-1].header.stamp) - stamp) < 1e-6)
        return self.commands[-1].header.frame_id

    def status(self, text: str) -> DiagnosticStatus:
        """Returns the newest status once it says so."""
        self._ros.until(lambda: self.statuses and text in self.statuses[-1].message, f"for a status '{text}'")
        return self.statuses[-1]


STAND = "recovery:quadruped_stand"


def test_recovery_answers_at_once_and_the_action_for_that_state_is_dropped(ros):
    bench = Bench(ros)
    bench.look(1.0, 0.0)
    bench.act(1.0)
    bench.look(1.005, 0.3)
    assert bench.sent(2) == [(1.0, "test"), (1.005, STAND)]
    bench.act(1.005)
    bench.look(1.010, 0.3)
    assert bench.sent(3)[2:] == [(1.010, STAND)]
    status = bench.status("the filter acts: ρ reached d = 0.2")
    assert (status.level, value(status, "mode"), value(status, "triggers")) == (DiagnosticStatus.WARN, "recovery", "1")
    assert float(value(status, "rho")) == pytest.approx(0.3 / 1.047, abs=1e-4)
    bench.look(1.28, 0.3)
    bench.act(1.28)
    bench.look(1.3, 0.0)  # the dwell time is over: the task policy is waited for
    assert bench.sent(4)[3:] == [(1.28, STAND)]
    bench.act(1.3)
    assert bench.sent(5)[4:] == [(1.3, "test")]
    assert value(bench.status("active"), "mode") == "task"


def test_an_imu_that_is_silent_for_40_ms_and_one_that_is_no_number_bring_recovery_and_then_a_hold(ros):
    bench, diagnostics = Bench(ros), ros.diagnostics()
    bench.look(1.0, 0.0)
    bench.act(1.0)
    bench.miss(1.035)
    for stamp in (1.045, 1.05, 1.2):
        bench.look(stamp, None)
    assert bench.sent(4)[1:] == [(1.045, STAND), (1.05, STAND), (1.2, STAND)]
    bench.status("the filter acts: ρ cannot be told")
    bench.look(1.25, float("nan"))
    status = bench.status("holds the robot: ρ could not be told for 0.2 s; activate the safety node anew")
    assert (status.level, value(status, "mode"), value(status, "rho")) == (DiagnosticStatus.ERROR, "stopped", "nan")
    assert bench.last(1.25) == "recovery:stopped"
    np.testing.assert_array_equal(bench.commands[-1].points[0].positions, SPEC.home)
    ros.until(lambda: diagnostics("safety_node").level == DiagnosticStatus.ERROR)
    bench.look(1.255, 0.0)
    assert bench.last(1.255) == "recovery:stopped"  # somebody has to see to it
    ros.change("safety_node", "deactivate", "activate")
    bench.look(1.26, 0.0)
    bench.act(1.26)
    assert bench.last(1.26) == "test"


def test_a_robot_that_is_held_stays_so_while_a_person_has_it_and_when_it_is_handed_back(ros):
    bench = Bench(ros, recovery_stuck_after="0.01")
    bench.look(1.0, 0.0)
    bench.act(1.0)
    for stamp in (1.005, 1.01, 1.015):
        bench.look(stamp, 1.2)
    assert bench.last(1.015) == "recovery:stopped"
    bench.claim("engaged")
    bench.look(1.02, 1.2)
    assert bench.last(1.02) == "recovery:stopped"
    bench.claim("released")
    bench.act(1.015)  # the policy's answers are a period late
    bench.act(1.02)
    bench.look(1.025, 1.2)
    assert bench.last(1.025) == "recovery:stopped"
    assert [command.header.frame_id for command in bench.commands][-3:] == ["recovery:stopped"] * 3
    assert [stamp for stamp, _ in bench.sent(6)][-3:] == [1.015, 1.02, 1.025]
    bench.look(0.5, 0.0)  # the robot's clock is set back, nobody has seen to it
    assert bench.last(0.5) == "recovery:stopped"
    bench.status("holds the robot: ρ did not come below")


def test_nobody_acts_and_nothing_is_judged_before_the_policy_has_acted(ros):
    bench = Bench(ros, recovery_stuck_after="0.01")
    for stamp in (1.0, 1.005, 1.01, 1.015, 1.02):
        bench.look(stamp, 1.2)  # it lies where somebody has laid it
    for bench.clock in (1.05, 1.1):
        bench.node._bridge()
    bench.status("sends no command: no observation comes")
    bench.look(1.105, 0.0)
    bench.act(1.105)
    assert bench.sent(1) == [(1.105, "test")]
    assert (value(bench.status("active"), "triggers"), value(bench.status("active"), "falls")) == ("0", "0")


def test_a_policy_that_has_died_does_not_get_the_robot_back_again_and_again(ros):
    bench = Bench(ros)
    bench.look(1.0, 0.0)
    bench.act(1.0)
    stamps = [round(1.001 + 0.005 * index, 3) for index in range(99)]
    for stamp in stamps:
        bench.look(stamp, 0.0)
        bench.node._bridge()
    began = next(stamp for stamp in stamps if stamp > 1.04)
    assert bench.sent(1 + len(stamps) - stamps.index(began))[1:] == [(stamp, STAND) for stamp in stamps if stamp >= began]
    status = bench.status("the filter acts: there is no action")
    assert (value(status, "mode"), value(status, "triggers")) == ("recovery", "1")
    bench.act(stamps[-1])  # it lives again
    bench.look(1.5, 0.0)
    bench.act(1.5)
    assert bench.last(1.5) == "test"


def test_a_robot_that_is_held_is_said_to_be_while_no_observation_comes(ros):
    bench = Bench(ros, recovery_stuck_after="0.01")
    bench.look(1.0, 0.0)
    bench.act(1.0)
    for stamp in (1.005, 1.01, 1.015):
        bench.look(stamp, 1.2)
    bench.status("holds the robot: ρ did not come below")
    count = len(bench.statuses)
    bench.clock = 1.06
    bench.node._bridge()
    ros.until(lambda: len(bench.statuses) > count + 1)
    status = bench.status("holds the robot: ρ did not come below")
    assert (status.level, value(status, "mode")) == (DiagnosticStatus.ERROR, "stopped")
    bench.clock = 1.3
    bench.node._bridge()
    assert bench.status("sends no command: no observation comes; it held the robot: ρ did not").level == DiagnosticStatus.ERROR


def test_a_joint_state_before_its_attitude_waits_for_it(ros):
    bench = Bench(ros)
    bench.look(1.0, 0.0)
    bench.act(1.0)
    bench.miss(1.035)
    bench.look(1.036, 0.0)
    bench.act(1.036)
    bench.show_attitude(1.046)  # one that is ahead is no sign of silence
    bench.miss(1.038)
    bench.miss(1.041)
    bench.look(1.047, 0.0)
    bench.act(1.047)
    assert bench.sent(3)[2:] == [(1.047, "test")]
    del bench.commands[:]
    bench.look(2.0, 0.0)  # after a pause, too
    bench.act(2.0)
    assert bench.sent(1) == [(2.0, "test")]


def test_without_observations_or_actions_for_40_ms_the_recovery_policy_acts(ros):
    bench = Bench(ros)
    bench.look(1.0, 0.0)
    bench.act(1.0)
    bench.clock = 1.039
    bench.node._bridge()
    bench.clock = 1.041
    bench.node._bridge()
    bench.status("the safe action acts: no observation comes")
    bench.clock = 1.25
    bench.node._bridge()
    assert bench.sent(2) == [(1.0, "test"), (1.0, "safety")]
    bench.status("sends no command: no observation comes")
    bench.look(1.3, 0.0)  # the policy has yet to show that it acts
    bench.act(1.3)
    bench.look(1.305, 0.0)
    bench.act(1.305)
    assert bench.sent(4)[2:] == [(1.3, STAND), (1.305, "test")]
    bench.look(1.35, 0.0)
    bench.node._bridge()
    assert bench.sent(5)[4:] == [(1.35, STAND)]
    bench.look(1.355, 0.0)  # recovery has begun, and lasts
    assert bench.sent(6)[5:] == [(1.355, STAND)]
    assert value(bench.status("the filter acts: there is no action"), "mode") == "recovery"


def test_the_region_is_set_by_parameters_while_the_node_runs_never_wider_than_the_bundles(ros):
    bench = Bench(ros)

    def set_to(**values: float) -> tuple[bool, str]:
        request = SetParameters.Request(parameters=[Parameter(name, value=entry).to_parameter_msg() for name, entry in values.items()])
        result = ros.call(SetParameters, "safety_node/set_parameters", request).results[0]
        return result.successful, result.reason

    assert set_to(recovery_d=0.21) == (False, "region: d may be at most 0.2, that of the recovery policy's bundle, got 0.21")
    assert set_to(recovery_d_exit=0.3) == (False, "region: d_exit must be at most d, 0.2, got 0.3")
    assert not set_to(recovery_d=1.5)[0]
    bench.look(1.0, 0.15)
    bench.act(1.0)
    assert set_to(recovery_d=0.1) == (True, "")
    bench.look(1.005, 0.15)
    assert bench.sent(2) == [(1.0, "test"), (1.005, STAND)]
    status = bench.status("ρ reached d = 0.1")
    assert [float(value(status, key)) for key in ("d", "d_exit")] == pytest.approx([0.1, 0.08])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recovery": ""}, "name the bundle of the recovery policy with recovery:="),
        ({"recovery": "arm_circle"}, "a recovery policy for other joints: bundle 'arm_circle'"),
        ({"recovery": "quadruped_trot"}, "bundle 'quadruped_trot' says no region"),
        ({"recovery_d": 0.3}, "d may be at most 0.2"),
        ({"recovery_drop_limit": 0.2}, "drop_limit may be at most 0.15"),
        ({"recovery_imu_timeout": 0.009}, "recovery_imu_timeout must be at least two control periods, 0.01 s at 200 Hz, got 0.009"),
    ],
)
def test_a_recovery_policy_that_does_not_fit_keeps_the_node_from_starting(ros, arguments, message):
    given = {"robot": "quadruped", **RECOVERY, **arguments}
    node = SafetyNode(namespace="test", parameter_overrides=[Parameter(name, value=entry) for name, entry in given.items()])
    with pytest.raises(UserError, match=message):
        ros.add(node)
