"""Measures how a walking robot does in real time: it is told velocities and pushed, and what it does of that is counted."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy
from geometry_msgs.msg import Twist, Vector3
from sensor_msgs.msg import JointState

from ros_rl.bringup import Graph, bringup_for, graph
from ros_rl.errors import RobotFault, UserError
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import COMMAND_QOS, RECORDER_QOS, JointReader, from_privileged, from_time
from ros_rl.nodes.watcher import Load, Watcher
from ros_rl.policies.bundle import load_bundle
from ros_rl.robots.legs import legs_of
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.sim.film import Moment, Take
from ros_rl.sim.goals.quadruped import heading_velocity
from ros_rl.sim.walk_env import FALLEN_TILT, LOW, LOW_RANGE

FASTEST = np.array([0.8, 0.8])  # m/s forward and rad/s to either side, of the commands
FRAME_RATE, FILMED = 20, 60.0  # Hz, and s of robot time that a film has at most
_COMMAND_SECONDS = (3.0, 6.0)  # from one command to the next
_STANDING = 0.1  # share of the commands that are zero
_STAND_UP = 1.5  # s from the start of an episode until it is told to walk
_SETTLE = 1.5  # s after a command or push that tracking is not judged
_SHORTEST = 0.8  # s, two strides: a mean of less says little, a trot sways
_TELL_EVERY = 0.1  # s between two messages with the same command


class Script:
    """What the robot is told, and when it is pushed: the same for the same seed."""

    def __init__(self, push_every: float, push_speed: float, seed: int):
        """Draws the first command.

        Args:
            push_every: mean time between pushes, s, which are half to one and a half of that apart; 0: none.
            push_speed: by which a push changes the velocity in a random horizontal direction, m/s.
            seed: of everything.
        """
        self._draw, self._blows = (np.random.default_rng([seed, stream]) for stream in (0, 1))
        self._every, self._speed = push_every, push_speed
        self._next, self._next_push = 0.0, self._gap()
        self.command = np.zeros(3)

    def told(self, now: float) -> bool:
        """Returns whether there is a new command, forward m/s, left m/s and turn rad/s, at a time, s, which does not go back."""
        if now < self._next:
            return False
        forward, turn = self._draw.uniform([0.0, -FASTEST[1]], FASTEST)
        self.command = np.array([forward, 0.0, turn]) * (self._draw.random() >= _STANDING)
        self._next = now + self._draw.uniform(*_COMMAND_SECONDS)
        return True

    def push(self, now: float) -> np.ndarray | None:
        """Returns the change of velocity in the world, (3,), m/s, of a push that is due at a time, s; else None."""
        if now < self._next_push:
            return None
        self._next_push = now + self._gap()
        angle = self._blows.uniform(-np.pi, np.pi)
        return self._speed * np.array([np.cos(angle), np.sin(angle), 0.0])

    def _gap(self) -> float:
        return self._every * float(self._blows.uniform(0.5, 1.5)) if self._every else np.inf


class Judge:
    """Follows a script with what the simulation tells: counts falls and pushes, and compares mean velocities with commands.

    A fall is a tilt beyond 60° or a trunk lower than 0.12 m; nothing counts until the next episode, for which `fallen` asks.

    Attributes:
        command: that holds, (3,); zero while the robot stands up.
        fallen: whether the robot lies.
        falls: so far.
        pushes: so far.
        walked: robot time that was judged, s.
        reached: of each command that held for long enough, the command and the mean velocity, (2, 3).
    """

    def __init__(self, script: Script):
        """Waits for the first state."""
        self._script = script
        self.command, self.fallen = np.zeros(3), False
        self.falls = self.pushes = 0
        self.walked = 0.0
        self.reached: list[np.ndarray] = []
        self._stamp: float | None = None
        self._quiet_from = self._known_for = 0.0
        self._sum = np.zeros(3)

    def take(self, stamp: float, pose: np.ndarray, velocity: np.ndarray) -> np.ndarray | None:
        """Takes the next state; returns the change of velocity, (3,), of a push that is due.

        Args:
            stamp: s; one before the last begins an episode.
            pose: of the trunk, x y z and qw qx qy qz, (7,).
            velocity: linear in the world, angular in the body, (6,).
        """
        passed = 0.0 if self._stamp is None else stamp - self._stamp
        self._stamp = stamp
        if passed < 0.0:
            self.fallen, passed = False, 0.0
        if self.fallen:
            return None
        tilt = np.arccos(np.clip(1.0 - 2.0 * (pose[4] ** 2 + pose[5] ** 2), -1.0, 1.0))
        if tilt > FALLEN_TILT or pose[2] < LOW - LOW_RANGE:
            self._end_command()
            self.fallen, self.falls, self.command = True, self.falls + 1, np.zeros(3)
            return None
        if stamp < _STAND_UP:
            self._quiet_from = self.walked + _SETTLE
            return None
        self.walked += passed
        if self._script.told(self.walked):
            self._end_command()
            self._quiet_from = self.walked + _SETTLE
        self.command = self._script.command
        if (push := self._script.push(self.walked)) is not None:
            self.pushes += 1
            self._quiet_from = self.walked + _SETTLE
        elif self.walked >= self._quiet_from:
            self._known_for += passed
            self._sum += passed * heading_velocity(pose[None], velocity[None])[0]
        return push

    def figures(self) -> dict[str, Any]:
        """Returns JSON-ready figures: ``pushes``, ``falls``, ``walked`` (s), how many ``commands`` were judged, and the mean distances
        of the mean velocities from them, ``linear_error`` (m/s), ``linear_error_share`` (of the mean speed told) and ``turn_error``
        (rad/s); None where no command held for long enough.
        """
        self._end_command()
        found: dict[str, Any] = {"pushes": self.pushes, "falls": self.falls, "walked": round(self.walked, 1), "commands": len(self.reached)}
        if not self.reached:
            return {**found, "linear_error": None, "linear_error_share": None, "turn_error": None}
        wanted, reached = np.stack(self.reached, axis=1)
        off = np.linalg.norm((reached - wanted)[:, :2], axis=1).mean()
        told = np.linalg.norm(wanted[:, :2], axis=1).mean()
        share = round(float(off / told), 4) if told else None
        turn = np.abs(reached - wanted)[:, 2].mean()
        return {**found, "linear_error": round(float(off), 4), "linear_error_share": share, "turn_error": round(float(turn), 4)}

    def _end_command(self) -> None:
        if self._known_for >= _SHORTEST:
            self.reached.append(np.stack([self.command, self._sum / self._known_for]))
        self._known_for, self._sum = 0.0, np.zeros(3)


class WalkWatcher(Watcher):
    """Judges, tells, pushes, and keeps poses to film."""

    def __init__(self, spec: RobotSpec, namespace: str, judge: Judge, caption: str, filmed: bool):
        super().__init__("bench_walk", namespace)
        self.judge, self._caption = judge, caption
        self.heard: float | None = None
        self.takes: list[Take] = []
        self._joints, self._truth, self._last = JointReader(spec.measured_names), dict[str, np.ndarray](), 0.0
        self._frames = 0
        self._twists = self.create_publisher(Twist, "cmd_vel", COMMAND_QOS)
        self._blows = self.create_publisher(Vector3, "sim/push", 10)
        self.create_timer(_TELL_EVERY, self.tell)
        self.create_subscription(JointState, "sim/privileged", self._on_truth, RECORDER_QOS)
        if filmed:
            self.create_subscription(JointState, "joint_states", self._on_joints, RECORDER_QOS)

    def tell(self) -> None:
        """Sends the command that holds."""
        forward, left, turn = self.judge.command.tolist()
        message = Twist()
        message.linear.x, message.linear.y, message.angular.z = forward, left, turn
        self._twists.publish(message)

    def _on_truth(self, message: JointState) -> None:
        self.heard = time.monotonic()
        self._truth = from_privileged(message)
        before = self.judge.command
        push = self.judge.take(from_time(message.header.stamp), self._truth["base_pose"], self._truth["base_velocity"])
        if push is not None:
            self._blows.publish(Vector3(x=push[0], y=push[1], z=push[2]))
        if self.judge.command is not before:
            self.tell()

    def _on_joints(self, message: JointState) -> None:
        stamp = from_time(message.header.stamp)
        if not self.takes or stamp < self._last:
            self.takes.append(Take(self._caption))
        self._last, moments = stamp, self.takes[-1].moments
        if self._frames < FILMED * FRAME_RATE and (not moments or stamp >= moments[-1].stamp + 1.0 / FRAME_RATE - 1e-6):
            moments.append(Moment(stamp, self._joints.read(message)[0], self._truth))
            self._frames += 1


def described(robot: str, policy: str, safety_filter: str, recovery: str) -> tuple[Graph, RobotSpec]:
    """Returns the graph of a walking robot without a task, and the robot.

    Raises:
        UserError: the robot has no four legs, the policy takes no command, or they do not fit together.
    """
    bringup, name = bringup_for(robot)
    spec = load_robot(name)
    legs_of(spec)
    given = {"robot": name, "tasks": "none", "policy": policy, "filter": safety_filter, "namespace": "bench_walk"}
    found = graph(bringup, given | ({"recovery": recovery} if safety_filter == "recovery" else {}))
    if "command" not in [key.name for key in load_bundle(policy).spec.observation]:
        raise UserError(f"policy '{policy}' does not read the command, so it cannot be told where to walk")
    return found, spec


def measure(
    robot: str,
    policy: str,
    safety_filter: str,
    recovery: str,
    seconds: float,
    script: Script,
    filmed: bool,
    progress: Callable[[float], object],
) -> tuple[dict[str, Any], list[Take]]:
    """Lets a robot walk.

    Args:
        robot: of a bring-up, by its name or that of the bring-up.
        policy: its bundle.
        safety_filter: "none" or "recovery".
        recovery: bundle of the recovery policy.
        seconds: of real time.
        script: what it is told and when it is pushed.
        filmed: whether the first minute is kept, to be filmed.
        progress: called with the seconds that have passed.

    Returns:
        the figures of `Judge` and `Load`, and what to film: a take for every episode, which ends with a fall.

    Raises:
        UserError: see `described`.
        RobotFault: the graph does not run.
    """
    whole, spec = described(robot, policy, safety_filter, recovery)
    judge = Judge(script)
    start_ros()
    watcher = WalkWatcher(spec, whole.namespace, judge, f"{policy}, filter {safety_filter}", filmed)
    try:
        with GraphProcesses(whole, quiet=True) as running:

            def check() -> None:
                if (code := running.ended()) is not None:
                    raise RobotFault(f"the graph ended with exit code {code}: {running.last_words}")

            watcher.check = check
            watcher.until(lambda: watcher.counts and watcher.heard is not None, SILENCE, "the graph")
            load = Load(watcher, {name: process.pid for name, process in running.processes.items()})
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds:
                watcher.wait()
                if time.monotonic() - (watcher.heard or 0.0) > SILENCE:
                    raise RobotFault(f"nothing came from the graph for {SILENCE:g} s")
                if judge.fallen:
                    watcher.call("sim/reset")
                    watcher.until(lambda: not judge.fallen, SILENCE, "the robot to stand again")
                progress(round(now, 1))
            figures = {**judge.figures(), **load.figures()}
    finally:
        watcher.close()
        rclpy.shutdown()
    rate = {"rate": spec.control_rate, "overrun_share": round(figures["overruns"] / max(figures["ticks"], 1), 5)}
    return {"robot": spec.name, "policy": policy, "filter": safety_filter, "seconds": seconds, **figures, **rate}, watcher.takes
