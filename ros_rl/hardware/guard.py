"""Last check before the robot: no command reaches a backend without passing here."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation, Robot, SimulatedRobot
from ros_rl.hardware.limits import CommandLimits
from ros_rl.robots.spec import RobotSpec

GuardState = Literal["ok", "hold", "stop", "estop"]

EASE = 1.0  # s over which a robot that was stopped gets its full speed back


@dataclass(frozen=True)
class GuardReport:
    """What the guard did to one command.

    Attributes:
        limited: the joints whose value was cut.
        rejected: why the command was not used at all, or None.
        state: ``ok``: the command was sent; ``hold``: the last safe target is; ``stop``: nothing usable came for so
            long that the robot is brought to rest; ``estop``: latched until `Guard.release`.
    """

    limited: tuple[str, ...] = ()
    rejected: str | None = None
    state: GuardState = "ok"


class Guard:
    """Limits a joint command to what the robot may do in one control period.

    Rejects a command whole when a joint is missing, unknown or not finite: a half-understood command is worse than
    none. The robot then keeps its last safe target: the last position in position mode, the joint's `hold` command
    (zero unless the robot says otherwise) in velocity and effort mode.

    A position target moves by at most v_max·dt for each call, and does not move further away from the measured position
    than `RobotSpec.lead`: a blocked robot, or one whose controller was away, is not thrown after a target that ran off.
    """

    def __init__(self, spec: RobotSpec, max_age: float = 0.1, stop_after: float = 1.0):
        """Keeps the limits of one robot.

        Args:
            spec: limits and joint order; positions in rad (m for prismatic joints), velocities per second.
            max_age: seconds after which a command or an observation is stale and the target is held.
            stop_after: seconds without a usable command after which the robot is brought to rest.
        """
        self.spec = spec
        self.max_age = max_age
        self.stop_after = stop_after
        self.counts: Counter[str] = Counter()
        self._limits = CommandLimits(spec)
        self._target = None if spec.command_mode == "position" else spec.rest(spec.home)
        self._blind = False
        self._eased_from = -np.inf
        self._previous: JointCommand | None = None
        self._estop: str | None = None
        self._stopped = True
        self._last_good = -np.inf
        self._newest_answer = -np.inf
        self._newest_seen = -np.inf

    def reset(self, observation: Observation) -> None:
        """Makes the measured position the target: on activation, resume and reset nothing may jump.

        Where a measured position is not finite, the last safe target stays and the robot is at rest until one is.
        """
        self._stopped = self._not_finite(observation) is not None
        if self.spec.command_mode != "position" or not self._stopped:
            self._target = self.spec.rest(observation.joint_position)
        self._last_good = self._newest_seen = observation.stamp
        self._newest_answer = self._eased_from = -np.inf

    def estop(self, reason: str) -> None:
        """Latches the emergency stop: every command is rejected until `release`."""
        if self._estop is None:
            self._estop = reason
            self.counts["estops"] += 1

    def release(self, observation: Observation) -> None:
        """Unlatches the emergency stop, with the measured position as the target; full speed comes back gradually."""
        self._estop = None
        self._resume(observation, observation.stamp)

    def _resume(self, observation: Observation, now: float) -> None:
        """Makes the measured position the target; full speed comes back gradually from `now` on."""
        self.reset(observation)
        self._eased_from = now

    def check(self, command: JointCommand | None, observation: Observation, now: float) -> tuple[np.ndarray, GuardReport]:
        """Returns the target that is safe to send, shape (n,), in `spec.joints` order; called once in a control period.

        Args:
            command: the newest command, or None when none has come since the last reset.
            observation: the newest measurement.
            now: the robot's time, s; command and observation must not be older than `max_age`.

        Raises:
            RobotFault: the robot has never told a finite position, so that there is nothing to hold.
        """
        if observation.stamp < self._newest_seen:
            self.reset(observation)
        self._newest_seen = observation.stamp
        fault = self._observation_fault(observation, now)
        if fault is None and self._blind and not self._near(observation):
            stopped = self._stopped
            self._resume(observation, now)  # it was moved while nobody saw it
            self._stopped = self._stopped or stopped
        self._blind = fault is not None
        if self._estop is not None:
            if not self._stopped and self._not_finite(observation) is None:
                self.reset(observation)  # also to an old one: it is nearer to where the robot is than a target ahead of it
            self._stopped = True
            return self._held(f"emergency stop: {self._estop}", "estop", observation)
        try:
            if fault is not None:
                raise UserError(fault)
            wanted = self._wanted(command, now)
        except UserError as error:
            return self._refuse(command, str(error), observation, now)
        if self._stopped:
            self._resume(observation, now)
        assert command is not None
        assert self._target is not None
        self.counts["starved"] += command is self._previous
        self._previous = command
        self._last_good, self._newest_answer = now, min(command.stamp, observation.stamp)
        count, speed = len(wanted), np.clip((now - self._eased_from) / EASE, 0.0, 1.0)
        position, velocity = observation.joint_position[:count], observation.joint_velocity[:count]
        target = self._limits.apply(wanted, self._target, position, velocity, speed)
        limited = tuple(name for name, cut in zip(self.spec.joint_names, np.abs(target - wanted) > 1e-9, strict=True) if cut)
        self.counts["limited"] += bool(limited)
        self._target = target
        return target.copy(), GuardReport(limited)

    def _near(self, observation: Observation) -> bool:
        """Whether the target is where the robot is, as far as a position target may lead it."""
        if self.spec.command_mode != "position" or self._target is None:
            return False
        return bool((np.abs(self._target - self.spec.rest(observation.joint_position)) <= self.spec.lead).all())

    def _wanted(self, command: JointCommand | None, now: float) -> np.ndarray:
        """Returns what a command asks for, shape (n,), in the order of `spec.joints`.

        Raises:
            UserError: the command cannot be used; says why.
        """
        if command is None:
            raise UserError("no command")
        wanted = command.in_order_of(self.spec)
        if (fault := self._time_fault(command, now)) is not None:
            raise UserError(fault)
        return wanted

    def _observation_fault(self, observation: Observation, now: float) -> str | None:
        if (names := self._not_finite(observation)) is not None:
            return f"the measured position of {names} is not finite"
        if not now - observation.stamp <= self.max_age:
            return f"the observation is {now - observation.stamp:.3f} s old, more than {self.max_age} s"
        if not observation.stamp - now <= self.max_age:
            return f"the observation is {observation.stamp - now:.3f} s in the future"
        return None

    def _not_finite(self, observation: Observation) -> str | None:
        if np.isfinite(observation.joint_position).all():
            return None
        pairs = zip(self.spec.measured_names, observation.joint_position, strict=True)
        return ", ".join(name for name, position in pairs if not np.isfinite(position))

    def _time_fault(self, command: JointCommand, now: float) -> str | None:
        """Returns why a command is of the wrong time, or None. Written so that a comparison with NaN refuses."""
        if not now - command.stamp <= self.max_age:
            return f"the command answers an observation {now - command.stamp:.3f} s old, more than {self.max_age} s"
        if not command.stamp - now <= self.max_age:
            return f"the command answers an observation {command.stamp - now:.3f} s in the future"
        if command.stamp < self._newest_answer:
            return f"the command answers an observation {self._newest_answer - command.stamp:.3f} s before that of the last one"
        return None

    def _refuse(self, command: JointCommand | None, reason: str, observation: Observation, now: float) -> tuple[np.ndarray, GuardReport]:
        """Holds the last safe target; after `stop_after` without a usable command, brings the robot to rest."""
        if command is not None:
            self.counts["rejected"] += 1
        if self._stopped or not now - self._last_good <= self.stop_after:
            self.counts["stops"] += not self._stopped
            if not self._stopped and not self._blind and not self._near(observation):
                self.reset(observation)
            self._stopped = True
            return self._held(reason, "stop", observation)
        return self._held(reason, "hold", observation)

    def _held(self, reason: str, state: GuardState, observation: Observation) -> tuple[np.ndarray, GuardReport]:
        if self.spec.command_mode != "position":
            self._target = self.spec.rest(observation.joint_position)
        elif self._target is None:
            self.reset(observation)
            self._stopped = True
        if self._target is None:
            raise RobotFault(f"the measured position of {self._not_finite(observation)} is not finite, and there is no target to hold")
        self.counts["held"] += 1
        return self._target.copy(), GuardReport(rejected=reason, state=state)


class GuardedRobot:
    """A robot behind its guard: the only way in which the stack drives a backend.

    Has the shape of the `Robot` protocol.
    """

    def __init__(self, robot: Robot, guard: Guard, clock: Callable[[], float] | None = None):
        """Puts a guard before a backend.

        Args:
            robot: the backend.
            guard: made from the same spec.
            clock: the robot's time in s, as in its stamps; None where time stands still between observations, as in a
                simulation that the caller steps.
        """
        self.robot = robot
        self.guard = guard
        self.spec = robot.spec
        self.report = GuardReport()
        self._clock = clock
        self._observation: Observation | None = None

    def connect(self) -> None:
        """Connects the backend and makes the measured position the target."""
        self.robot.connect()
        self.activate()

    def activate(self) -> Observation:
        """Makes the measured position the target: after every pause, reset or hand move."""
        observation = self.read()
        self.guard.reset(observation)
        return observation

    def read(self) -> Observation:
        """Returns the newest measurement."""
        self._observation = self.robot.read()
        return self._observation

    def write(self, command: JointCommand | None) -> JointCommand:
        """Sends what the guard lets through and returns it; None means that no command has come."""
        observation = self._observation if self._observation is not None else self.read()
        now = observation.stamp if self._clock is None else self._clock()
        target, self.report = self.guard.check(command, observation, now)
        if command is not None and self.report.state == "ok":
            return self.robot.write(JointCommand(self.spec.joint_names, target, command.stamp, command.source))
        return self.robot.write(JointCommand(self.spec.joint_names, target, observation.stamp, "guard"))

    def step(self) -> None:
        """Advances to the next measurement."""
        self.robot.step()

    def reset(self, seed: int) -> Observation:
        """Starts a new episode of a simulated backend; targets of the old one are forgotten."""
        assert isinstance(self.robot, SimulatedRobot)
        self.robot.reset(seed)
        return self.activate()

    def estop(self, reason: str) -> None:
        """Latches the emergency stop and brings the robot to rest at once."""
        self.guard.estop(reason)
        self.robot.stop()

    def release(self) -> None:
        """Unlatches the emergency stop, with the measured position as the target."""
        self.guard.release(self.read())

    def stop(self) -> None:
        """Brings the robot to rest."""
        self.robot.stop()

    def close(self) -> None:
        """Stops the robot and ends the connection."""
        self.robot.close()
