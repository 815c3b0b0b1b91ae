"""Plays a recorded episode through a node graph and watches where the robot goes."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from ros_rl.bringup import Graph
from ros_rl.errors import RobotFault
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import RECORDER_QOS, JointReader, from_time
from ros_rl.nodes.starter import NodeStarter, held_back
from ros_rl.policies.scripted.playback import ARRIVAL
from ros_rl.robots.spec import RobotSpec

_POLL = 0.1  # s
_GRACE = 5.0  # s of the robot's time that it may be late where the recording begins


class Watcher(Node):
    """Follows where the robot is, how far its policy is, and what the guard makes of it.

    Attributes:
        positions: of the measured joints by stamp (s), since time last jumped back.
        newest: the last stamp, s.
        jumped: how often time has jumped back.
        arrives: when the robot should be where the recording begins, s; None before the policy has said so.
        began: the robot's time less that of the recording, s; None before the recording is played.
        guard: the guard's newest state, and what it says of it.
        interrupted: the state and words with which the guard ceased to pass commands on after it had; None: it did not.
        heard: when the robot last said something new, s on the monotonic clock.
    """

    def __init__(self, spec: RobotSpec, namespace: str):
        """Opens the subscriptions."""
        super().__init__("replay", namespace=namespace)
        self.positions: dict[float, np.ndarray] = {}
        self.newest, self.jumped = -np.inf, 0
        self.arrives: float | None = None
        self.began: float | None = None
        self.guard = ("", "")
        self.interrupted: tuple[str, str] | None = None
        self.heard = time.monotonic()
        self._joints = JointReader(spec.measured_names)
        self.create_subscription(JointState, "joint_states", self._on_joints, RECORDER_QOS)
        self.create_subscription(DiagnosticArray, "diagnostics", self._on_diagnostics, 100)

    def _on_joints(self, message: JointState) -> None:
        stamp = from_time(message.header.stamp)
        if stamp < self.newest:
            self.positions.clear()
            self.jumped += 1
        if stamp != self.newest:
            self.heard = time.monotonic()
        self.newest = stamp
        self.positions.setdefault(stamp, self._joints.read(message)[0])

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {entry.key: entry.value for entry in status.values}
            if status.name.endswith("/policy_node"):
                self.arrives = float(values["arrives"]) if "arrives" in values else self.arrives
                self.began = float(values["began"]) if "began" in values else self.began
            elif status.name.endswith("/hardware_node") and "state" in values:
                before, self.guard = self.guard[0], (values["state"], status.message)
                if before == "ok" and values["state"] != "ok":
                    self.interrupted = self.guard


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be played.

    Attributes:
        spec: the robot.
        goal: where the recording begins, of the commanded joints, shape (n,).
        end: when it ends, s, on its own clock.
        from_reset: whether it begins with a reset of the simulation.
        lockstep: whether the simulation waits for commands, and so is still in its initial state when the policy starts.
    """

    spec: RobotSpec
    goal: np.ndarray
    end: float
    from_reset: bool
    lockstep: bool


class Playing:
    """The phases of a replay: the policy starts, the simulation is reset or the robot goes to where the recording begins, it is played.

    Each has an end. On a robot, whatever stops the guard from passing commands on ends the replay: it is not taken up again, for the
    robot would go straight from where it is then to where the recording is.
    """

    def __init__(self, watcher: Watcher, plan: Plan):
        """Opens the services."""
        self._watcher, self._plan = watcher, plan
        self._policy = NodeStarter(watcher, "policy_node")
        self._client = watcher.create_client(Trigger, "sim/reset")
        self._reset: Future | None = None
        self._jumps = 0  # before the reset
        self._started: float | None = None  # when the policy was, s on the monotonic clock

    @property
    def began(self) -> float | None:
        """The robot's time less that of the recording, s; None before the recording is played."""
        return 0.0 if self._plan.from_reset else self._watcher.began

    def done(self, progress: Callable[[float], None]) -> bool:
        """Goes on to the next phase when it is time; returns whether the last one is over.

        Args:
            progress: called with the time in the recording, s.

        Raises:
            RobotFault: a phase does not come to its end.
        """
        watcher, plan = self._watcher, self._plan
        if watcher.positions or self._started is not None:
            self._policy.start()
        if not self._policy.started:
            return False
        if self._started is None:
            self._started = time.monotonic()
            watcher.guard, watcher.interrupted = ("", ""), None  # as long as nobody commanded, there was nothing to pass on
        if plan.from_reset and not plan.lockstep and not self._was_reset():
            return False
        self._check_guard()
        if self.began is None:
            self._check_approach()
            return False
        if not watcher.positions:
            return False
        progress(min(watcher.newest - self.began, plan.end))
        return watcher.newest - self.began >= plan.end

    def _was_reset(self) -> bool:
        """Resets the simulation once; tells whether its new time has come. Joint states of the old one may come long after."""
        watcher = self._watcher
        if self._reset is None:
            # The policy acts already, so that the first command answers the first observation after the reset.
            if self._client.service_is_ready():
                self._jumps = watcher.jumped
                self._reset = self._client.call_async(Trigger.Request())
            return False
        if self._reset.done() and not self._reset.result().success:
            raise RobotFault(f"sim/reset is refused: {self._reset.result().message}")
        return watcher.jumped > self._jumps

    def _check_guard(self) -> None:
        state, words = self._watcher.guard
        if state != "estop":
            if self._plan.from_reset or self._watcher.interrupted is None:
                return
            state, words = self._watcher.interrupted
        began = self.began
        where = "before the recording was played" if began is None else f"{self._watcher.newest - began:.1f} s into the recording"
        raise RobotFault(f"the replay ended {where}: the guard said '{state}', {words}; the robot is held")

    def _check_approach(self) -> None:
        watcher, plan = self._watcher, self._plan
        assert self._started is not None
        if watcher.arrives is None:
            if time.monotonic() - self._started > SILENCE:
                raise RobotFault(f"the policy that plays the recording has not answered for {SILENCE:g} s")
            return
        if watcher.newest <= watcher.arrives + _GRACE:
            return
        joints = plan.spec.joints
        off = np.abs(watcher.positions[watcher.newest][: len(joints)] - plan.goal)
        names = [
            f"{joint.name} is {far:.3f} {'m' if joint.kind == 'prismatic' else 'rad'} off"
            for joint, far in zip(joints, off, strict=True)
            if far > ARRIVAL
        ]
        if names:
            late = f"{_GRACE:g} s after it should have, the robot has not come to where the recording begins"
            raise RobotFault(f"{late}: {', '.join(names)}; within {ARRIVAL:g} would do")


def play(described: Graph, plan: Plan, progress: Callable[[float], None]) -> tuple[np.ndarray, np.ndarray]:
    """Runs a graph whose policy is a recording until that has been played.

    Args:
        described: the graph; its policy node is started once everything it does is seen.
        plan: what its policy plays.
        progress: called with the time in the recording, s.

    Returns:
        stamps (T,) on the recording's clock, s, and positions of the measured joints (T, m).

    Raises:
        RobotFault: the graph ends early or falls silent, the robot does not get to where the recording begins, or the guard stops it.
    """
    start_ros()
    watcher = Watcher(plan.spec, described.namespace)
    playing = Playing(watcher, plan)
    executor = SingleThreadedExecutor()
    executor.add_node(watcher)
    try:
        with GraphProcesses(held_back(described, "policy_node"), quiet=True) as running:
            looked = time.monotonic()
            while not playing.done(progress):
                executor.spin_once(timeout_sec=_POLL)
                if time.monotonic() - looked > _POLL:
                    looked = time.monotonic()
                    _check(running, watcher)
    finally:
        executor.shutdown(timeout_sec=1.0)
        watcher.destroy_node()
        rclpy.shutdown()
    stamps = np.array(sorted(watcher.positions))
    return stamps - playing.began, np.array([watcher.positions[stamp] for stamp in stamps])


def _check(running: GraphProcesses, watcher: Watcher) -> None:
    code = running.ended()
    if code is None and time.monotonic() - watcher.heard <= SILENCE:
        return
    problem = "the robot fell silent" if code is None else f"the graph ended with exit code {code}"
    raise RobotFault(f"{problem}: {running.last_words}")
