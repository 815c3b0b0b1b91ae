"""An arm whose servos hang on one serial bus, Feetech or Dynamixel; the library rustypot speaks to them.

On such a bus a packet is lost or damaged now and then. What fails is tried again once, at once; what fails twice is lost: the
measurement before it then stands, with its stamp, until too many in a row are.
"""

import grp
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import JointCommand, Observation, quantise
from ros_rl.hardware.pacing import Pacer
from ros_rl.hardware.units import UnitScale
from ros_rl.robots.servos import SERVO_SPEEDS
from ros_rl.robots.spec import Joint, RobotSpec, Servo

if TYPE_CHECKING:
    from rustypot import Bus, ServoDefinition

_Answer = TypeVar("_Answer")
_ANSWER_BITS = 200  # of the longest answer to what is read here, in either protocol, start and stop bits included
_RETURN_DELAY = 0.0005  # s a Dynamixel waits before it answers, unless told otherwise
_TORQUE, _LARGEST_TORQUE = "torque_limit", "max_torque_limit"  # registers of Feetech's, in the counts of the load
_WAITS = 5  # answers that one control period may wait for in vain: each of at most four reads once, the last one twice
_BUS_ERRORS = (RuntimeError, OSError)  # what rustypot raises for a packet that is lost or damaged, and for a port that is gone


class _Lost(Exception):
    """A transaction failed twice."""


def check_servos(spec: RobotSpec) -> None:
    """Checks that a servo bus can drive a robot.

    Raises:
        UserError: its joints have no servos, or it measures what servos do not.
    """
    if not spec.servos:
        raise UserError(
            f"robot '{spec.name}' has no servos: give each joint in its robot.yaml a servo, such as {{id: 1, model: sts3215}}, "
            "or leave out servo_port for ros2_control"
        )
    for key, there in (("imu_frame", spec.imu_frame), ("odometry", spec.odometry)):
        if there:
            raise UserError(f"robot '{spec.name}' measures more than its servos ({key}); on a servo bus nothing else is read")


def check_timeout(timeout: float, max_age: float) -> None:
    """Checks how long, in s, is waited for an answer, against the age at which the guard holds the robot, s.

    Raises:
        UserError: a control period in which answers are lost may last longer; an emergency stop waits for as long.
    """
    if _WAITS * timeout > max_age * (1.0 + 1e-9):
        raise UserError(f"servo_timeout must be at most max_age / {_WAITS}, {max_age / _WAITS:g} s, got {timeout:g}")


def check_port(port: str) -> None:
    """Checks what can be known of a serial port before it is opened.

    Raises:
        UserError: rustypot is not installed, there is no such port, or it may not be used.
    """
    try:
        import rustypot  # noqa: F401
    except ImportError:
        raise UserError("a servo bus needs rustypot, which is not installed; run: pip install 'ros_rl[servo]'") from None
    path = Path(port)
    if not path.exists():
        there = sorted(str(found) for pattern in ("ttyACM*", "ttyUSB*") for found in Path("/dev").glob(pattern))
        raise UserError(f"there is no serial port {port} (there: {', '.join(there) or 'none'}); plug the adapter in, or correct servo_port")
    if not os.access(path, os.R_OK | os.W_OK):
        group = grp.getgrgid(path.stat().st_gid).gr_name
        raise UserError(f"no permission to use {port}; run 'sudo usermod -aG {group} $USER' and log in again")


class ServoBusRobot:
    """A `Robot` of servos on a serial bus, commanded by positions.

    `counts` has ``retries``, transactions that were tried again, and ``lost``, those that failed twice. `alarms` maps the
    joints whose servo reports an alarm to the byte in which it does.
    """

    def __init__(
        self,
        spec: RobotSpec,
        port: str,
        baudrate: int = 1_000_000,
        timeout: float = 0.02,
        patience: int = 5,
        release_torque: bool = False,
    ):
        """Prepares the connection.

        Args:
            spec: the robot; its joints have servos.
            port: serial port, such as ``/dev/ttyACM0``.
            baudrate: bits/s, that of all servos.
            timeout: how long to wait for an answer, s.
            patience: measurements (or commands) lost in a row that are a fault.
            release_torque: switch the servos off on `close`. They hold otherwise: an arm that drops is a hazard.

        Raises:
            UserError: a servo bus cannot drive this robot.
        """
        check_servos(spec)
        self.spec = spec
        self.counts: Counter[str] = Counter(retries=0, lost=0)
        self.alarms: dict[str, int] = {}
        self._port = port
        self._baudrate = baudrate
        self._timeout = timeout
        self._patience = patience
        self._release_torque = release_torque
        self._scale = UnitScale.of_servos(spec)
        self._speeds = np.array([SERVO_SPEEDS[servo.model] for servo in spec.servos])
        self._torques = np.array([servo.torque_per_count for servo in spec.servos])
        self._ids = [servo.id for servo in spec.servos]
        self._commanded = self._ids[: len(spec.joints)]
        # After a failure the other servos may still be answering: what comes next must not mix with that.
        self._settling = len(self._ids) * (_RETURN_DELAY + _ANSWER_BITS / baudrate)
        self._open: Bus | None = None
        self._definitions: dict[int, ServoDefinition] = {}
        self._bounded: list[int] = []  # ids whose servo keeps its goals within limits of its own
        self._observation: Observation | None = None
        self._awaited: Observation | None = None
        self._unread = self._unsent = 0
        self._goal: list[int] = []
        self._pacer = Pacer(spec.period)

    def connect(self) -> None:
        """Opens the port, looks at every servo, makes the measured positions the goals, and only then switches the torque on.

        Raises:
            UserError: the port cannot be used, or a servo is of another model or in another mode.
            RobotFault: a servo does not answer, or cannot be made to hold.
        """
        check_port(self._port)
        from rustypot import Bus

        self._definitions = {servo.id: _definition(servo)[1] for servo in self.spec.servos}
        try:
            self._open = Bus(self._port, self._baudrate, self._timeout, self._definitions)
        except OSError as error:
            raise UserError(f"{self._port} cannot be opened as a serial port at {self._baudrate} baud: {error}") from None
        self._observation = self._awaited = None
        self._unread = self._unsent = 0
        self._pacer = Pacer(self.spec.period)
        try:
            self._check_models()
            self._check_modes()
            self._take_hold()
            self.read()
        except BaseException as error:
            # Asked before the port is closed: who does not answer any more?
            fault = self._fault("a servo answered and does so no more", error) if isinstance(error, _Lost) else None
            self._open.close()
            self._open = None
            if fault is not None:
                raise fault from None
            raise

    def take_hold(self) -> None:
        """Makes the measured positions the goals and switches the torque on, once more: a servo that had no power, or an alarm, has none.

        Raises:
            RobotFault: a servo does not answer, could not hold where it is, or does not obey.
        """
        self._unread = self._unsent = 0
        try:
            self._take_hold()
        except _Lost as lost:
            raise self._fault("the servos cannot be made to hold", lost) from None

    def read(self) -> Observation:
        """Measures. Where the answers are lost it returns the measurement before, stamp included.

        Stamps are on the monotonic clock of this machine, taken when the positions were asked for.

        Raises:
            RobotFault: too many measurements in a row were lost; names the servos that do not answer.
        """
        awaited, self._awaited = self._awaited, None
        return awaited if awaited is not None else self._read()

    def write(self, command: JointCommand) -> JointCommand:
        """Sends goal positions, cut to what the encoders can count, and returns those that were sent last.

        Raises:
            UserError: the joints are not those of the robot, or a value is not finite.
            RobotFault: too many commands in a row could not be sent.
        """
        values = command.in_order_of(self.spec)
        try:
            self._send(self._scale.to_device(values))
            self._unsent = 0
        except _Lost as lost:
            self._unsent += 1
            if self._unsent >= self._patience:
                raise self._stopped(f"{self._unsent} commands in a row were lost", lost) from None
        return replace(command, joint_names=self.spec.joint_names, values=self._scale.position(np.array(self._goal)))

    def step(self) -> None:
        """Waits for the end of the control period and measures.

        Raises:
            RobotFault: too many measurements in a row were lost.
        """
        self._pacer.wait()
        before = self._observation
        while (observation := self._read()) is before:
            pass  # ends with a fault
        self._awaited = observation

    def stop(self) -> None:
        """Makes the measured positions the goals, that of a servo which is silent the one measured last.

        Raises:
            RobotFault: servos did not acknowledge their goals; names them. All others have theirs.
        """
        if self._open is not None and (unheard := self._hold_here()):
            raise self._not_stopped(unheard)

    def close(self) -> None:
        """Stops the robot and gives the port back. The servos hold on, unless they are to be released.

        Raises:
            RobotFault: servos did not acknowledge that they are stopped, or those that are to be released do not obey.
        """
        if self._open is None:
            return
        failed: dict[int, str] = {}
        try:
            unheard = self._hold_here()
            if self._release_torque:
                failed = self._open.set_torque(self._commanded, False, 1)
        finally:
            self._open.close()
            self._open = None
        if failed:
            raise RobotFault(f"the torque of {self._names(failed)} on {self._port} could not be released: {next(iter(failed.values()))}")
        if unheard:
            raise self._not_stopped(unheard)

    # --- connecting ---

    def _check_models(self) -> None:
        """Compares the servos on the bus with those in robot.yaml."""
        models: dict[int, int] = {}
        for servo in self.spec.servos:
            try:
                models[servo.id] = self._exchange(partial(self._bus.read_register, servo.id, "model_number"))
            except _Lost:
                continue
        where = f"on {self._port} at {self._baudrate} baud"
        if not models:
            raise RobotFault(f"no servo answers {where}; check that they have power, their cables, and servo_baudrate")
        if silent := [id for id in self._ids if id not in models]:
            there = ", ".join(map(str, models))
            raise RobotFault(f"{self._names(silent)} does not answer {where} (ids {there} do); check its cable, and 'servo' in robot.yaml")
        for servo, name in zip(self.spec.servos, self.spec.measured_names, strict=True):
            number, definition = _definition(servo)
            if models[servo.id] != number:
                known = next((model for model, other in definition.models.items() if other == models[servo.id]), "another model")
                raise UserError(
                    f"joint '{name}': the servo with id {servo.id} {where} is {known.lower()} (number {models[servo.id]}), "
                    f"robot.yaml says {servo.model} ({number})"
                )

    def _check_modes(self) -> None:
        """Refuses servos that would take a goal position for something else, or not at all."""
        self._bounded = []
        for id in self._commanded:
            modes = self._definitions[id].operating_modes
            mode = self._exchange(partial(self._bus.read_register, id, "operating_mode"))
            name = next((name for name, value in modes.items() if value == mode), "unknown")
            if name == "position":  # the other kinds count turns and have no limits
                self._bounded.append(id)
            if "position" not in name:
                raise UserError(
                    f"{self._names([id])} on {self._port} is in operating mode {mode} ({name}); "
                    f"set its operating_mode to {modes['position']} (position)"
                )

    def _take_hold(self) -> None:
        """Makes the measured positions the goals, makes sure of it, and switches the torque on.

        Raises:
            RobotFault: a servo could not hold where it is, or does not obey.
            _Lost: a servo does not answer.
        """
        ids = self._commanded
        present = self._exchange(partial(self._bus.sync_read_register, ids, "present_position"))
        if outside := [id for id, tick in zip(ids, present, strict=True) if not 0 <= tick <= self._last_tick(id)]:
            ticks = ", ".join(str(tick) for id, tick in zip(ids, present, strict=True) if id in outside)
            raise RobotFault(
                f"{self._names(outside)} on {self._port} reads tick {ticks}, where its encoder has 0 to {self._last_tick(outside[0])}: "
                "no goal could hold it there; set its homing_offset so that the joint's range lies within"
            )
        self._check_bounds(dict(zip(ids, present, strict=True)))
        if unheard := self._hold_at(present):
            raise RobotFault(f"{self._names(unheard)} on {self._port} do not take goal positions; check cables and power")
        self._limit_torques()
        if failed := self._bus.set_torque(ids, True, 1):
            raise RobotFault(f"the torque of {self._names(failed)} on {self._port} could not be switched on: {next(iter(failed.values()))}")

    def _check_bounds(self, present: dict[int, int]) -> None:
        """Refuses servos that are outside the limits which they keep themselves: with torque they would drive there."""
        if not (ids := self._bounded):
            return
        lower, upper = (self._exchange(partial(self._bus.sync_read_register, ids, f"{end}_position_limit")) for end in ("min", "max"))
        for id, low, high in zip(ids, lower, upper, strict=True):
            if low < high and not low <= present[id] <= high:  # Feetech: both 0 where there are none
                raise RobotFault(
                    f"{self._names([id])} on {self._port} reads tick {present[id]}, and its own limits are {low} to {high}: "
                    "with torque it would drive there; move it within by hand, or correct its min_position_limit and max_position_limit"
                )

    def _limit_torques(self) -> None:
        """Limits the torque to the joints' effort, where a servo has a register for it and it is known what its counts stand for.

        It is not raised above what the servo itself is set to. The register is one of Feetech: what goes by the same name on a
        Dynamixel is kept without power, and is not for every connection to write.
        """
        efforts = {servo.id: joint.effort / servo.torque_per_count for joint, servo in self._pairs() if servo.torque_per_count}
        if not (ids := [id for id in efforts if self._definitions[id].register(_LARGEST_TORQUE)]):
            return
        largest = self._exchange(partial(self._bus.sync_read_register, ids, _LARGEST_TORQUE))
        limits = [max(1, round(min(efforts[id], most))) for id, most in zip(ids, largest, strict=True)]
        for _ in range(self._patience):
            self._exchange(partial(self._bus.sync_write_register, ids, _TORQUE, limits))
            if self._exchange(partial(self._bus.sync_read_register, ids, _TORQUE)) == limits:
                return
        raise RobotFault(f"the servos on {self._port} do not take a {_TORQUE} of {limits}; check cables and power")

    def _pairs(self) -> list[tuple[Joint, Servo]]:
        """Returns the commanded joints with their servos."""
        return [(joint, joint.servo) for joint in self.spec.joints if joint.servo is not None]

    # --- holding ---

    def _hold_here(self) -> list[int]:
        """Makes the measured positions the goals; returns the ids of the servos that do not acknowledge theirs."""
        present = self._read_each("present_position")
        return self._hold_at([present.get(id, last) for id, last in zip(self._commanded, self._last_ticks(), strict=True)])

    def _last_ticks(self) -> list[int]:
        """Returns where the commanded servos were measured last."""
        if self._observation is None:
            return self._goal
        ticks = self._scale.to_device(self._observation.joint_position[: len(self._commanded)])
        return [round(tick) for tick in ticks]

    def _hold_at(self, ticks: list[int]) -> list[int]:
        """Sends goals in ticks until the servos have them, which nothing else acknowledges; returns the ids of those that do not say so."""
        left = self._commanded
        for attempt in range(self._patience):
            try:
                self._send(ticks)
            except _Lost:
                continue
            goals = self._read_each("goal_position")
            left = [id for id, goal in zip(self._commanded, self._goal, strict=True) if goals.get(id) != goal]
            if not left or (attempt and not any(id in goals for id in left)):  # who is silent has been asked often enough
                break
        return left

    def _not_stopped(self, ids: list[int]) -> RobotFault:
        return RobotFault(
            f"{self._names(ids)} on {self._port} did not acknowledge the stop and may still move; "
            "cut the power if it does. Every other joint is held where it is"
        )

    def _last_tick(self, id: int) -> int:
        resolution = self._definitions[id].resolution
        assert resolution is not None
        return resolution - 1

    # --- the bus ---

    @property
    def _bus(self) -> "Bus":
        if self._open is None:
            raise RobotFault(f"robot '{self.spec.name}' is not connected")
        return self._open

    def _exchange(self, call: Callable[[], _Answer]) -> _Answer:
        """Carries out one transaction, and again at once if it fails.

        Raises:
            _Lost: it failed twice.
        """
        try:
            return call()
        except _BUS_ERRORS:
            self.counts["retries"] += 1
            time.sleep(self._settling)
        try:
            return call()
        except _BUS_ERRORS as error:
            self.counts["lost"] += 1
            time.sleep(self._settling)
            raise _Lost(str(error)) from None

    def _read_each(self, register: str) -> dict[int, int]:
        """Reads a register of the commanded servos, each alone where that fails; those that are silent are left out."""
        try:
            values = self._exchange(partial(self._bus.sync_read_register, self._commanded, register))
        except _Lost:
            return self._read_alone(self._commanded, register)
        return dict(zip(self._commanded, values, strict=True))

    def _read_alone(self, ids: list[int], register: str) -> dict[int, int]:
        values = {}
        for id in ids:
            try:
                values[id] = self._bus.read_register(id, register)
            except _BUS_ERRORS:
                time.sleep(self._settling)
        return values

    def _read(self) -> Observation:
        try:
            self._observation = self._measure()
            self._unread = 0
        except _Lost as lost:
            self._unread += 1
            if self._observation is None or self._unread >= self._patience:
                raise self._stopped(f"{self._unread} measurements in a row were lost", lost) from None
        return self._observation

    def _measure(self) -> Observation:
        stamp, answers = self._exchange(self._positions)
        self.alarms = {name: alarm for name, (_, alarm) in zip(self.spec.measured_names, answers, strict=True) if alarm}
        velocity = self._exchange(partial(self._bus.sync_read_register, self._ids, "present_velocity"))
        device = Observation(
            quantise(stamp),
            np.array([position for position, _ in answers], dtype=float),
            np.array(velocity) * self._speeds,
            self._load() * self._torques,
        )
        return self._scale.to_si(device)

    def _positions(self) -> tuple[float, list[tuple[int, int]]]:
        """Returns when the positions were asked for, s, and each with the error byte of its answer."""
        began = time.monotonic()
        return began, self._bus.sync_read_register_with_error(self._ids, "present_position")

    def _load(self) -> np.ndarray:
        """Measures load or current, whichever a servo has, in its counts, shape (n + passive,); 0 where a count means nothing."""
        load = np.zeros(len(self._ids))
        registers = ["present_load" if self._definitions[id].register("present_load") else "present_current" for id in self._ids]
        for register in sorted(set(registers)):
            where = [index for index, name in enumerate(registers) if name == register and self._torques[index]]
            if where:
                ids = [self._ids[index] for index in where]
                load[where] = self._exchange(partial(self._bus.sync_read_register, ids, register))
        return load

    def _send(self, goal: Iterable[float]) -> None:
        """Sends goals in ticks, cut to what the encoders can count."""
        ticks = [min(max(round(tick), 0), self._last_tick(id)) for id, tick in zip(self._commanded, goal, strict=True)]
        self._exchange(partial(self._bus.sync_write_register, self._commanded, "goal_position", ticks))
        self._goal = ticks

    def _stopped(self, what: str, lost: _Lost) -> RobotFault:
        """Stops the robot, and only then looks for what is wrong; returns the fault."""
        self._hold_here()
        return self._fault(what, lost)

    def _fault(self, what: str, lost: _Lost) -> RobotFault:
        """Returns a fault that names the servos that do not answer when each is asked alone."""
        answers = self._read_alone(self._ids, "present_position")
        silent = [id for id in self._ids if id not in answers]
        who = f"{self._names(silent)} gives no sound answer; check cables and power" if silent else "alone, every servo answers"
        return RobotFault(f"{self._port}: {what}: {who} ({lost})")

    def _names(self, ids: "list[int] | dict[int, str]") -> str:
        joints = dict(zip(self._ids, self.spec.measured_names, strict=True))
        return ", ".join(f"joint '{joints[id]}' (servo {id})" for id in ids)


def _definition(servo: Servo) -> "tuple[int, ServoDefinition]":
    """Returns the number of a servo's model, and what rustypot knows of it."""
    from rustypot import find_model

    found = find_model(servo.model)
    assert found is not None
    return found
