"""Tests of ros_rl.nodes.safety_node: the filter that the parameters name acts on every command, and says what it did."""

import json

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from harness import value
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.messages import CLAIM_QOS, COMMAND_QOS, to_joint_state, to_trajectory
from ros_rl.nodes.safety_node import SafetyNode
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import SafetyReport
from ros_rl.safety.prior import load_prior

ARM = load_robot("arm")


class Halving:
    """Halves every action."""

    reads = ()

    def reset(self):
        pass

    def filter(self, observation, action, distribution=None):
        return action / 2, SafetyReport(True, {"margin": 0.25})

    def fallback(self):
        return None


@pytest.fixture
def send(ros):
    """Gives a test a function that proposes an effort for the cart and returns what the safety node makes of it."""
    publisher, commands = (
        ros.probe.create_publisher(JointTrajectory, "policy/action", COMMAND_QOS),
        ros.hear(JointTrajectory, "joint_command"),
    )

    def ask(effort):
        ros.until(publisher.get_subscription_count)
        commands.clear()
        publisher.publish(to_trajectory(JointCommand(("slider",), np.array([effort]), 0.5, "test"), "effort"))
        ros.until(lambda: commands)
        return commands[-1].points[0].effort[0]

    return ask


def test_without_a_filter_an_action_passes_and_the_status_says_so(ros, send):
    status = ros.hear(DiagnosticStatus, "safety/status")
    ros.up("cartpole", without=("hardware_node", "policy_node", "task_node"))
    assert send(3.0) == 3.0
    count = len(status)
    ros.until(lambda: len(status) > count + 1)
    assert (status[-1].name, status[-1].level, status[-1].message) == ("none", DiagnosticStatus.OK, "active")
    assert value(status[-1], "interventions") == "0"
    ros.change("safety_node", "deactivate")
    ros.until(lambda: status[-1].message == "inactive")


def test_the_filter_of_that_name_acts_and_its_interventions_are_counted(ros, send, monkeypatch):
    monkeypatch.setattr("ros_rl.nodes.safety_node.make_filter", lambda *arguments: Halving())
    status = ros.hear(DiagnosticStatus, "safety/status")
    ros.up("cartpole", without=("hardware_node", "policy_node", "task_node"))
    assert send(3.0) == 1.5
    ros.until(lambda: status and value(status[-1], "interventions") == "1")
    assert value(status[-1], "margin") == "0.25"


class Alone:
    """The safety node of the arm, between a test's measurements, actions and claims."""

    def __init__(self, ros, **arguments):
        self._ros = ros
        given = {"tasks": "arm_circle", "teleop_timeout": 10.0, "use_sim_time": "false", **arguments}
        self.node = ros.up("arm", without=("hardware_node", "policy_node", "task_node"), **given)["safety_node"]
        self.commands = ros.hear(JointTrajectory, "joint_command")
        self.heard = []  # stamps of actions that the node has taken
        self.node.trace = lambda place, stamp: self.heard.append(stamp)
        self._states = ros.probe.create_publisher(JointState, "joint_states", COMMAND_QOS)
        self._actions = ros.probe.create_publisher(JointTrajectory, "policy/action", COMMAND_QOS)
        self._claims = ros.probe.create_publisher(String, "teleop/engaged", CLAIM_QOS)
        ros.until(lambda: self._actions.get_subscription_count() and self._claims.get_subscription_count())

    @property
    def takeover(self):
        return self.node._takeover

    def claim(self, state, mode):
        """Claims the robot, and waits until it is in that mode."""
        self._claims.publish(String(data=json.dumps({"device": "mine", "state": state})))
        self._ros.until(lambda: (self.takeover._claim, self.takeover.mode) == (state, mode))

    def look(self, stamp, position=ARM.home):
        """Shows the arm, and waits until the node has seen it."""
        self._ros.until(self._states.get_subscription_count)
        zero = np.zeros_like(position)
        self._states.publish(to_joint_state(stamp, list(ARM.measured_names), position, zero, zero))
        self._ros.until(lambda: self.node._observation is not None and self.node._observation.stamp == stamp)

    def act(self, stamp, position=ARM.home):
        """Sends an action of the policy, and waits until the node has taken it."""
        count = len(self.heard)
        command = JointCommand(ARM.joint_names, position[: len(ARM.joints)], stamp, "test")
        self._actions.publish(to_trajectory(command, "position"))
        self._ros.until(lambda: len(self.heard) > count)

    def sent(self, count):
        """Returns source and positions of the last command, once there are exactly that many."""
        self._ros.until(lambda: len(self.commands) >= count)
        assert len(self.commands) == count
        return self.commands[-1].header.frame_id, list(self.commands[-1].points[0].positions)


ARM_MOVED = ARM.home + 0.01  # m, rad


def test_c6_a_safety_node_that_starts_anew_takes_the_robot_from_nobody(ros):
    alone = Alone(ros)
    alone.claim("holding", "hold")
    alone.look(0.5)
    home, moved = (list(position[: len(ARM.joints)]) for position in (ARM.home, ARM_MOVED))
    assert alone.sent(1) == ("teleop:mine", home)
    ros.change("safety_node", "deactivate", "activate")
    assert alone.takeover.mode == "hold"
    alone.act(0.5)
    alone.look(0.51, ARM_MOVED)
    assert alone.sent(2) == ("teleop:mine", moved)  # no target is left over that it would go back to
    ros.change("safety_node", "deactivate")
    alone.claim("released", "hand_back")  # nor does an inactive one miss that it is given back


def test_a_robot_that_is_claimed_gets_no_command_of_the_policy_before_its_first_observation(ros):
    alone, diagnostics = Alone(ros), ros.diagnostics()
    alone.claim("engaged", "hold")
    alone.act(0.5)
    alone.claim("released", "hand_back")
    alone.act(0.51)
    assert alone.sent(1)[0] == "test"
    assert alone.takeover.mode == "policy"
    ros.until(lambda: diagnostics("safety_node").message == "active")


def test_in_lock_step_letting_go_answers_the_observation_that_waits(ros):
    alone = Alone(ros, lockstep=True)
    alone.claim("engaged", "hold")
    alone.look(0.5)
    assert not alone.commands
    alone.claim("holding", "hold")
    assert alone.sent(1)[0] == "teleop:mine"


def test_in_lock_step_an_action_that_overtakes_its_observation_waits_for_it_while_the_robot_is_handed_back(ros):
    alone = Alone(ros, lockstep=True)
    alone.claim("holding", "hold")
    alone.look(0.5)
    alone.claim("released", "hand_back")
    alone.act(0.505, ARM_MOVED)
    assert alone.takeover.mode == "hand_back"
    assert len(alone.commands) == 1
    alone.look(0.505, ARM_MOVED)
    assert alone.sent(2)[0] == "teleop:mine"


class Bench:
    """The safety node of the cart-pole, with the safe prior that ships, between a test's measurements and actions."""

    def __init__(self, ros, **arguments):
        self._ros = ros
        arguments = {"filter": "simplex", "use_sim_time": "false", **arguments}
        self.node = ros.up("cartpole", without=("hardware_node", "policy_node", "task_node"), **arguments)["safety_node"]
        # However long the machine takes: time passes where the test says so, and the test ticks itself.
        self.clock = 0.0
        self.node._now = lambda: self.clock
        self.node.destroy_timer(next(timer for timer in self.node.timers if timer.timer_period_ns == 10_000_000))
        self.commands = ros.hear(JointTrajectory, "joint_command")
        self.statuses = ros.hear(DiagnosticStatus, "safety/status")
        self._states = ros.probe.create_publisher(JointState, "joint_states", COMMAND_QOS)
        self._actions = ros.probe.create_publisher(JointTrajectory, "policy/action", COMMAND_QOS)
        ros.until(lambda: self._states.get_subscription_count() and self._actions.get_subscription_count())
        self._claims = ros.probe.create_publisher(String, "teleop/engaged", CLAIM_QOS)
        self._person = ros.probe.create_publisher(JointTrajectory, "teleop/action", COMMAND_QOS)
        ros.until(lambda: self._claims.get_subscription_count() and self._person.get_subscription_count())
        self._stamp = 0.0

    def claim(self, state: str, mode: str) -> None:
        """Claims the robot for a person, and waits until it is in that mode."""
        self._claims.publish(String(data=json.dumps({"device": "mine", "state": state})))
        self._ros.until(lambda: (self.node._takeover._claim, self.node._takeover.mode) == (state, mode))

    def lead(self, force: float) -> None:
        """Commands a force for the person, which acts from the next measurement on."""
        self._person.publish(to_trajectory(JointCommand(("slider",), np.array([force]), self._stamp, "mine"), "effort"))
        self._ros.until(lambda: self.node._takeover._wanted is not None and self.node._takeover._wanted[0] == force)

    def show(self, x: float) -> None:
        """Shows the cart at x m with its pole upright and at rest."""
        self._stamp += 0.01
        self._states.publish(to_joint_state(self._stamp, ["slider", "pole"], np.array([x, 0.0]), np.zeros(2), np.zeros(2)))

    def propose(self, force: float, late: float = 0.0) -> None:
        """Proposes a force for what was shown `late` s before the last."""
        self._actions.publish(to_trajectory(JointCommand(("slider",), np.array([force]), self._stamp - late, "test"), "effort"))

    def tell(self, x: float, force: float) -> None:
        """Shows the cart and proposes a force for it."""
        self.show(x)
        self.propose(force)

    def look(self, x: float) -> None:
        """Shows the cart, and waits until the node has seen it."""
        self.show(x)
        self._ros.until(lambda: self.node._observation is not None and abs(self.node._observation.stamp - self._stamp) < 1e-6)

    def tick(self, periods: float) -> None:
        """Lets time pass, at the end of which the node's timer fires."""
        self.clock += 0.01 * periods
        self.node._bridge()

    def forces(self, count: int) -> list[float]:
        """Returns the forces that were commanded, once there are that many."""
        self._ros.until(lambda: len(self.commands) >= count)
        return [command.points[0].effort[0] for command in self.commands]

    def ask(self, x: float, force: float) -> float:
        """Returns the command for that, N."""
        count = len(self.commands)
        self.tell(x, force)
        self._ros.until(lambda: len(self.commands) > count)
        return self.commands[-1].points[0].effort[0]

    def status(self, text: str, interventions: int | None = None) -> DiagnosticStatus:
        """Returns a status that comes from now on, says so, and counts that many interventions: one that is late counts fewer."""
        count = len(self.statuses)

        def found() -> list[DiagnosticStatus]:
            wanted = {str(interventions)} if interventions is not None else {value(status, "interventions") for status in self.statuses}
            return [status for status in self.statuses[count:] if text in status.message and value(status, "interventions") in wanted]

        self._ros.until(found, f"for a status '{text}'")
        return found()[0]


GAIN = load_prior("cartpole").F[0, 0]  # N of the safe action for each m; its ellipsoid reaches 0.604 m


def test_a_filter_with_a_prior_switches_at_the_boundary_and_says_what_it_watches(ros):
    bench = Bench(ros)
    assert bench.ask(0.1, 3.0) == 3.0
    assert bench.ask(0.55, 3.0) == pytest.approx(0.55 * GAIN)  # V is 0.83
    status = bench.status("active", interventions=1)
    assert (status.name, status.level) == ("simplex", DiagnosticStatus.OK)
    assert float(value(status, "lyapunov")) == pytest.approx((0.55 / 0.6042) ** 2, rel=1e-3)
    assert float(value(status, "margin")) == pytest.approx(1 - 0.55 / 0.6042, rel=1e-2)
    assert [value(status, key) for key in ("interventions", "weight", "exits", "violations")] == ["1", "1.0", "0", "0"]
    assert float(value(status, "compute_ms")) > 0.0
    assert bench.ask(0.7, 3.0) == pytest.approx(0.7 * GAIN)
    status = bench.status("outside the certified set, the safe action acts")
    assert status.level == DiagnosticStatus.WARN
    assert [value(status, key) for key in ("exits", "violations")] == ["1", "0"]


def test_a_measurement_that_is_no_number_stops_the_commands_until_there_is_one_again(ros):
    bench, diagnostics = Bench(ros), ros.diagnostics()
    bench.ask(0.1, 3.0)
    count = len(bench.commands)
    bench.tell(float("nan"), 3.0)
    assert bench.status("sends no command: joint_position.slider is not finite").level == DiagnosticStatus.ERROR
    ros.until(lambda: diagnostics("safety_node").level == DiagnosticStatus.ERROR)
    assert "joint_position.slider is not finite" in diagnostics("safety_node").message
    bench.tick(1e6)  # that it grows old as well is not what is wrong with it
    assert bench.node._halted == "joint_position.slider is not finite"
    assert len(bench.commands) == count
    assert bench.ask(0.1, 3.0) == 3.0
    bench.status("active")
    ros.until(lambda: diagnostics("safety_node").level == DiagnosticStatus.OK)


def test_outside_the_certified_set_it_holds_if_told_so(ros):
    bench = Bench(ros, outside="hold")
    bench.ask(0.1, 3.0)
    count = len(bench.commands)
    bench.tell(0.7, 3.0)
    assert bench.status("sends no command: the state is outside the certified set").level == DiagnosticStatus.ERROR
    assert len(bench.commands) == count


def test_without_news_the_safe_action_acts_for_five_periods_and_then_nothing_does(ros):
    bench = Bench(ros)
    bench.ask(0.2, 3.0)
    del bench.commands[:]
    bench.tick(1.9)
    for _ in range(4):
        bench.tick(1.0)
    assert bench.status("the safe action acts: no observation comes").level == DiagnosticStatus.WARN
    for _ in range(5):
        bench.tick(1.0)
    bench.status("sends no command: no observation comes")
    assert bench.forces(5) == pytest.approx([0.2 * GAIN] * 5)
    assert {command.header.stamp.nanosec for command in bench.commands} == {10_000_000}
    heard: list[float] = []
    bench.node.trace = lambda place, stamp: heard.append(stamp)
    bench.propose(3.0)  # for a state that is long gone
    ros.until(lambda: heard)
    assert bench.ask(0.1, 2.0) == 2.0
    assert bench.forces(6)[5:] == [2.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("x", [0.2, 0.7])
def test_c1_instead_of_an_action_that_is_no_number_the_safe_one_acts(ros, x, bad):
    bench, diagnostics = Bench(ros), ros.diagnostics()
    assert bench.ask(x, bad) == pytest.approx(x * GAIN)
    status = bench.status("the safe action acts: the command for slider is not finite", interventions=1)
    assert (status.level, value(status, "rejected"), value(status, "weight")) == (DiagnosticStatus.WARN, "1", "1.0")
    assert float(value(status, "lyapunov")) == pytest.approx((x / 0.6042) ** 2, rel=1e-3)
    ros.until(lambda: diagnostics("safety_node").level == DiagnosticStatus.WARN)
    assert bench.ask(0.1, 3.0) == 3.0
    assert value(bench.status("active"), "rejected") == "1"


def test_a_bad_action_does_not_hide_a_bad_state(ros):
    bench = Bench(ros)
    bench.ask(0.1, 3.0)
    bench.tell(float("nan"), float("nan"))
    bench.status("sends no command: joint_position.slider is not finite")
    assert bench.ask(0.2, float("nan")) == pytest.approx(0.2 * GAIN)


def test_when_no_action_comes_any_more_the_safe_one_acts_until_one_does(ros):
    bench, diagnostics = Bench(ros), ros.diagnostics()
    bench.look(0.1)
    bench.tick(5.0)
    bench.look(0.1)
    bench.tick(0.0)  # there has not been any yet: the robot rests
    assert bench.ask(0.1, 3.0) == 3.0
    del bench.commands[:]
    for x, periods in ((0.2, 1.9), (0.3, 1.0), (0.4, 1.0)):
        bench.look(x)
        bench.tick(periods)
        bench.tick(0.0)  # each state is answered once
    assert bench.forces(2) == pytest.approx([0.3 * GAIN, 0.4 * GAIN])
    assert bench.status("the safe action acts: no action comes").level == DiagnosticStatus.WARN
    ros.until(lambda: "no action comes" in diagnostics("safety_node").message)
    bench.propose(3.0, late=0.01)  # for a state whose successor has been answered
    assert bench.ask(0.1, 2.0) == 2.0
    assert bench.forces(3)[2:] == [2.0]
    bench.status("active")


def test_an_activation_is_a_new_episode(ros):
    bench = Bench(ros)
    assert bench.ask(0.55, 3.0) == pytest.approx(0.55 * GAIN)  # V is 0.83: the switch is thrown
    assert bench.ask(0.45, 3.0) == pytest.approx(0.45 * GAIN)  # V is 0.55, and it stays so
    ros.change("safety_node", "deactivate")
    ros.change("safety_node", "activate")
    status = bench.status("active")
    assert "margin" not in [entry.key for entry in status.values]
    assert bench.ask(0.45, 3.0) == 3.0


def test_the_filter_acts_on_a_person_s_commands_too(ros):
    bench = Bench(ros, teleop_timeout=10.0)
    bench.ask(0.1, 3.0)
    bench.claim("engaged", "hold")
    bench.look(0.1)
    bench.lead(2.0)
    bench.look(0.1)
    assert bench.forces(3) == [3.0, 0.0, 2.0]
    bench.look(0.55)
    assert bench.forces(4)[3] == pytest.approx(0.55 * GAIN)
    bench.status("active", interventions=1)
    assert {command.header.frame_id for command in bench.commands[1:]} == {"teleop:mine"}


def test_a_person_s_commands_end_with_the_observations_and_come_again_with_them(ros):
    bench = Bench(ros, teleop_timeout=10.0)
    bench.ask(0.1, 3.0)
    bench.claim("engaged", "hold")
    bench.look(0.2)
    bench.lead(2.0)
    assert bench.forces(2) == [3.0, 0.0]
    del bench.commands[:]
    bench.tick(2.1)
    bench.claim("holding", "hold")
    # What the filter and what the person do is both said.
    bench.status("the safe action acts: no observation comes; teleoperation: the dead-man switch of 'mine' is released")
    for _ in range(5):
        bench.tick(1.0)
    bench.status("sends no command: no observation comes; teleoperation: ")
    assert bench.forces(5) == pytest.approx([0.2 * GAIN] * 5)
    bench.claim("engaged", "hold")
    bench.lead(1.0)
    bench.look(0.1)
    assert bench.forces(6)[5:] == [1.0]


def test_a_policy_that_answers_after_the_safe_action_has_gets_the_robot_back(ros):
    bench, heard = Bench(ros, teleop_timeout=10.0), []
    bench.node.trace = lambda place, stamp: heard.append(stamp)
    bench.ask(0.1, 3.0)
    bench.claim("engaged", "hold")
    bench.look(0.1)
    bench.claim("released", "hand_back")
    bench.tick(1.0)
    for _ in range(3):  # the policy hiccups
        bench.look(0.1)
        bench.tick(1.0)
    assert bench.node._takeover.mode == "hand_back"
    assert bench.status("the safe action acts: no action comes").level == DiagnosticStatus.WARN
    for _ in range(5):  # it answers every observation just after the timer
        bench.look(0.1)
        bench.tick(1.0)
        count = len(heard)
        bench.propose(2.0)
        ros.until(lambda count=count: len(heard) > count)
    assert bench.node._takeover.mode == "policy"
    assert bench.commands[-1].points[0].effort[0] == 2.0


@pytest.mark.parametrize("name", ["autosafe", "simplex", "cbf"])
def test_a_robot_is_balanced_through_every_filter_in_lockstep(ros, name):
    ros.up("cartpole", filter=name, lockstep=True)
    states = ros.hear(JointState, "joint_states")
    status = ros.hear(DiagnosticStatus, "safety/status")
    ros.until(lambda: len(states) > 200)
    assert abs(states[-1].position[1]) < 0.1
    ros.until(lambda: status and value(status[-1], "violations") == "0")


@pytest.mark.parametrize(
    ("bringup", "arguments", "message"),
    [
        ("arm", {}, "urdf/arm/safe_prior.safetensors: there is no safe prior"),
        ("cartpole", {"control_rate": 200.0}, "the safe prior is for 100 Hz, robot 'cartpole' runs at 200 Hz"),
        ("cartpole", {"prior": "quadrotor_wrench"}, "the safe prior commands thrust, torque_x"),
        ("cartpole", {"prior": "/no/such.safetensors"}, "/no/such.safetensors: there is no safe prior"),
    ],
)
def test_a_prior_that_is_missing_or_does_not_fit_keeps_the_node_from_starting(ros, bringup, arguments, message):
    given = {"robot": bringup, "filter": "simplex", **arguments}
    node = SafetyNode(namespace="test", parameter_overrides=[Parameter(name, value=entry) for name, entry in given.items()])
    with pytest.raises(UserError, match=message):
        ros.add(node)
