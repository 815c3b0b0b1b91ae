"""From samples of a device to claims and commands: what a teleoperation node does, without the node."""

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.safety.takeover import Claim
from ros_rl.teleop.device import Button, Device, DeviceLost, Sample
from ros_rl.teleop.mapping import VelocityMapping

OnRelease = Literal["hold", "hand_back"]


class Mapping(Protocol):
    """From a sample to a command for the robot."""

    def restart(self, sent: JointCommand | None) -> None:
        """Begins anew with the next command; `sent` is the one that the robot got last, where that is known."""

    def command(self, sample: Sample, observation: Observation) -> JointCommand:
        """Returns the command that answers the observation.

        Raises:
            UserError: the sample is none for this robot, or not finite.
        """


@dataclass(frozen=True, eq=False)
class Step:
    """What follows from one sample: the claim on the robot, what to do while engaged, buttons, and what is wrong (None: nothing).

    A walking robot has a `velocity` (forward m/s, left m/s, turn rad/s) for its policy instead of a `command`.
    """

    claim: Claim
    command: JointCommand | None = None
    velocity: np.ndarray | None = None
    pressed: tuple[Button, ...] = ()
    problem: str | None = None


class Session:
    """Turns one device into claims and commands.

    The first press of the dead-man switch claims the robot. Letting go of it, or losing the device, holds the robot; the
    button ``hand_back`` gives it back to the policy, and so does letting go where told so. After that the switch has to be
    let go before it claims anew.
    """

    def __init__(self, device: Device, mapping: Mapping | VelocityMapping, timeout: float, on_release: OnRelease = "hold", name: str = ""):
        """
        Args:
            device: what a person has in hand.
            mapping: to the robot's joints, or to the velocity of a walking robot, whose legs its policy moves.
            timeout: seconds without a new sample after which the device counts as lost.
            on_release: what letting go of the dead-man switch does.
            name: the source of its commands; the device's own if empty.
        """
        self.name = name or device.name
        self._device = device
        self._mapping = mapping
        self._timeout = timeout
        self._on_release = on_release
        self._claim: Claim = "released"
        self._blocked = False  # the switch has been pressed since the robot was handed back, or since before the restart
        self._stuck = False  # it has not been seen let go since the restart
        self._looked: float | None = None  # when the device was read last, s

    def restart(self) -> None:
        """Forgets what was: the device has not the robot, and its switch counts once it has been seen let go.

        Raises:
            UserError: the device cannot be used any more.
        """
        self._reopen()
        self._claim, self._looked = "released", None
        self._blocked = self._stuck = self._device.has_switch

    def step(self, observation: Observation, now: float, sent: JointCommand | None = None) -> Step:
        """Reads the device and answers an observation.

        Args:
            observation: the robot's newest.
            now: s, on the monotonic clock of this machine.
            sent: the command that the robot got last, whoever gave it; None: unknown.
        """
        looked, self._looked = self._looked, now
        try:
            if looked is not None and now - looked > self._timeout and self._device.has_switch:
                self._reopen()  # what was typed or pressed while nobody looked must not act now
            sample = self._device.read(observation, now)
        except DeviceLost as problem:
            return self.hold(f"{self.name} is lost: {problem}")
        except UserError as problem:
            return self.hold(str(problem))
        if sample is None:
            return self.hold(f"nothing usable has come from {self.name}")
        if not now - sample.stamp <= self._timeout:
            return self.hold(f"{self.name} has been silent for more than {self._timeout:g} s", sample.pressed)
        before, self._claim = self._claim, self._next(sample)
        if self._claim != "engaged":
            stuck = f"the dead-man switch of {self.name} is pressed since before it was looked at; let go of it once"
            return Step(self._claim, pressed=sample.pressed, problem=stuck if self._stuck else None)
        if before != "engaged" and not isinstance(self._mapping, VelocityMapping):
            self._mapping.restart(sent)
        try:
            if isinstance(self._mapping, VelocityMapping):
                return Step("engaged", velocity=self._mapping.velocity(sample), pressed=sample.pressed)
            command = self._mapping.command(sample, observation)
        except UserError as problem:
            return self.hold(str(problem), sample.pressed)
        return Step("engaged", replace(command, source=self.name), pressed=sample.pressed)

    def _reopen(self) -> None:
        self._device.close()
        self._device.open()

    def _next(self, sample: Sample) -> Claim:
        self._stuck = self._stuck and sample.engaged
        self._blocked = sample.engaged and (self._blocked or "hand_back" in sample.pressed)
        if "hand_back" in sample.pressed:
            return "released"
        if sample.engaged and not self._blocked:
            return "engaged"
        if self._claim == "released" or (self._claim == "engaged" and self._on_release == "hand_back"):
            return "released"
        return "holding"

    def hold(self, problem: str, pressed: tuple[Button, ...] = ()) -> Step:
        """Returns what follows where nothing can be done with the device; the reason is the `problem`.

        Losing a device never hands the robot back: a person may be close to it.
        """
        if self._claim == "engaged":
            self._claim = "holding"
        return Step(self._claim, pressed=pressed, problem=problem)
