"""Who commands the robot, the policy or a person: takeover and hand-back without a jump."""

from typing import Literal, get_args

import numpy as np

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.guard import EASE
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.hardware.limits import CommandLimits
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.interface import RECOVERY

Claim = Literal["engaged", "holding", "released"]
Mode = Literal["policy", "takeover", "teleop", "hold", "hand_back"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
SOURCE = "teleop:"  # begins the source of every command sent while a person has control

_MET = 1e-9  # rad or m; a target this near to what is wanted is there


class Takeover:
    """Decides between a policy and the devices of people, and ramps from one to the other.

    A device claims the robot by being ``engaged`` (its dead-man switch is pressed), keeps it while ``holding`` (the
    switch is let go) and gives it back by being ``released``. While one device has the robot, no other gets it. A ramp
    starts from the command sent last, grows to full speed within a second, and ends when it has met what it goes to; in
    position mode no step exceeds v_max·dt, also after the ramp. A device that falls silent, or sends what is no command,
    makes the robot hold its target; the policy takes nothing back by itself. ``holding`` claims a robot that nobody has, too:
    whoever decides here may have been started anew while a person holds the robot.

    Attributes:
        device: the device that has, or last had, the robot; empty before the first.
        rejected: how many commands of the device were not used.
    """

    def __init__(self, spec: RobotSpec, timeout: float, lockstep: bool = False):
        """
        Args:
            spec: the robot.
            timeout: seconds of silence after which a device counts as lost, and the greatest age of its commands.
            lockstep: whether an engaged device is waited for, however long it takes.
        """
        self._spec = spec
        self._timeout = timeout
        self._lockstep = lockstep
        self._limits = CommandLimits(spec)
        self.device = ""
        self.rejected = 0
        self._problem = ""
        self._refused = (-np.inf, "")  # when a second device claimed the robot, and what to say of it
        self._claim: Claim = "released"
        self._returning = False
        self._without: set[str] = set()  # devices that claimed the robot in vain or lost it to another
        self._heard = -np.inf  # when the device last said something, on the caller's clock
        self._last: JointCommand | None = None  # what was sent last, whoever made it
        self._observation: Observation | None = None
        self._wanted: np.ndarray | None = None  # what the device commands; None while it commands nothing
        self._met = False  # the ramp has met what it goes to
        self._joined = np.zeros(len(spec.joints), dtype=bool)  # joints that have met it at full speed
        self._began: float | None = None  # stamp at which the ramp began
        self._newest = -np.inf  # stamp of the device's last command

    @property
    def mode(self) -> Mode:
        """What is going on.

        ``policy``: its actions pass. ``takeover``: the ramp to the device's commands. ``teleop``: these pass. ``hold``:
        the device has the robot and commands nothing. ``hand_back``: the ramp to the policy's actions.
        """
        if self._claim == "released":
            return "hand_back" if self._returning else "policy"
        if self._wanted is None:
            return "hold"
        return "teleop" if self._met else "takeover"

    @property
    def claimed(self) -> bool:
        """Whether a device has the robot, so that the policy's actions do not count."""
        return self._claim != "released"

    def reason(self, now: float) -> str:
        """Returns why the robot holds or waits, or what was refused of late; empty when there is nothing to say."""
        when, refusal = self._refused
        return self._problem or self._silence(now) or (refusal if now - when <= self._timeout else "")

    def _silence(self, now: float) -> str:
        """Returns who is waited for in vain."""
        if not self._lost(now):
            return ""
        if self.mode == "hand_back" and self._began is None:
            return f"the policy has not answered since '{self.device}' handed back"
        if self._observation is not None and self.waits(self._observation.stamp):
            return f"waits for '{self.device}', which has been silent for more than {self._timeout:g} s"
        return ""

    def claim(self, device: str, claim: str, now: float, reason: str = "") -> None:
        """Takes note of what a device says of itself; it repeats that while it lives.

        Args:
            device: its name.
            claim: one of `CLAIMS`.
            now: in s, on a clock that never jumps.
            reason: why it is ``holding``, where that is not because its switch was let go.

        Raises:
            UserError: there is no such claim, or the device has no name.
        """
        if claim not in CLAIMS:
            raise unknown("claim", claim, CLAIMS)
        if not device:
            raise UserError("a device that claims a robot needs a name")
        if device != self.device and claim == "engaged" and self.claimed and not self._lost(now):
            self._refused = (now, f"'{device}' is refused, '{self.device}' has control")
            self._without.add(device)
            return
        if claim == "released":
            self._without.discard(device)
        if self._takes(device, claim):
            self._begin(device)
        if device != self.device or not self.claimed:
            return
        self._heard = now
        if claim == "holding":
            self._claim = "holding"
            self._hold(reason or f"the dead-man switch of '{device}' is released")
        elif claim == "released":
            self._claim, self._returning = "released", True
            self._wanted, self._began, self._problem = None, None, ""

    def restart(self) -> None:
        """Forgets commands and observations, but not who has the robot."""
        self._forget()
        self._observation = None

    def propose(self, command: JointCommand) -> None:
        """Takes a command of the device that has the robot; those of others, and stale ones, are left out.

        What is not one finite value for each joint is rejected whole: the robot holds until a command is usable.
        """
        if self._claim != "engaged" or command.source != self.device:
            return
        if self._observation is None:
            return
        age = self._observation.stamp - command.stamp
        if command.stamp < self._newest or not abs(age) <= self._timeout:
            self.rejected += 1
            self._problem = f"a command of '{self.device}' is discarded, it answers an observation {age:.3f} s before the newest"
            return
        self._newest, self._problem = command.stamp, ""
        try:
            wanted = command.in_order_of(self._spec)
        except UserError as error:
            self.rejected += 1
            self._hold(f"a command of '{self.device}' is rejected: {error}")
            return
        if self._wanted is None:
            self._began, self._met = None, False
        self._wanted = wanted

    def waits(self, stamp: float) -> bool:
        """Whether, in lock-step, the device has yet to answer the observation of that stamp."""
        return self._lockstep and self._claim == "engaged" and stamp != self._newest

    def observe(self, observation: Observation) -> None:
        """Takes note of the newest observation: positions of all measured joints, rad (m). Time that jumps back begins anew."""
        last = self._observation
        if last is not None and observation.stamp <= last.stamp:
            again = observation.stamp == last.stamp and np.array_equal(observation.joint_position, last.joint_position)
            if not again:  # a reset at time 0 gives another one with the same stamp
                self._forget()
        self._observation = observation

    def command(self, now: float) -> JointCommand:
        """Returns what to send for the newest observation while a device has the robot; the same once more if asked again.

        Args:
            now: in s, on the clock of `claim`.
        """
        assert self._observation is not None
        stamp = self._observation.stamp
        if self._last is not None and self._last.stamp == stamp and self._last.source.startswith(SOURCE):
            return self._last
        if names := self._not_finite():
            self._hold(f"the measured position of {names} is not finite")
        elif self._claim == "engaged" and not self._lockstep:
            if self._lost(now):
                self._hold(f"'{self.device}' is lost: it has been silent for more than {self._timeout:g} s")
            elif self._wanted is not None and not stamp - self._newest <= self._timeout:
                self._hold(f"'{self.device}' has sent no command for more than {self._timeout:g} s")
        return self._towards(self._wanted, stamp)

    def hand_back(self, action: JointCommand) -> JointCommand | None:
        """Returns what to send for an action of the policy while its ramp lasts, or None where it is not to be used.

        That is where a person, or a recovery policy, has answered its observation or a newer one, or it is of another time. An
        action that is not one finite value for each joint goes on unchanged, for the guard to reject.
        """
        observation, last = self._observation, self._last
        if observation is None:  # nothing was sent for the person, so that there is nothing to go back from
            self._returning = False
            return action
        if not abs(observation.stamp - action.stamp) <= self._timeout:
            return None
        if last is not None and last.source.startswith((SOURCE, RECOVERY)) and action.stamp <= last.stamp:
            return None
        try:
            wanted = action.in_order_of(self._spec)
        except UserError:
            return action
        command = self._towards(wanted, action.stamp)
        self._returning = not self._met
        return command

    def sent(self, command: JointCommand) -> None:
        """Takes note of what was really sent: the next ramp starts from there."""
        self._last = command

    def _takes(self, device: str, claim: str) -> bool:
        if claim == "engaged":
            return device != self.device or self._claim != "engaged"
        return claim == "holding" and not self.claimed and device not in self._without

    def _lost(self, now: float) -> bool:
        return not now - self._heard <= self._timeout

    def _begin(self, device: str) -> None:
        if self.claimed and device != self.device:
            self._without.add(self.device)
        self._without.discard(device)
        self._claim, self._returning = "engaged", False
        self.device, self._problem = device, ""
        self._wanted, self._began, self._newest = None, None, -np.inf

    def _hold(self, reason: str) -> None:
        self._wanted, self._problem = None, reason

    def _forget(self) -> None:
        """Forgets a time line: no target of the old one is one of the new."""
        self._wanted = self._began = self._last = None
        self._newest = -np.inf

    def _towards(self, wanted: np.ndarray | None, stamp: float) -> JointCommand:
        """Returns the next command on the way to what is wanted; None stands for where the robot is to be held."""
        observation, count = self._observation, len(self._spec.joints)
        assert observation is not None
        position, velocity = observation.joint_position[:count], observation.joint_velocity[:count]
        target = self._target(observation)
        if wanted is None:
            wanted = target
        if self._began is None:
            self._began, self._met = stamp, self._spec.command_mode != "position"
            self._joined[:] = False
        if self._not_finite():
            return JointCommand(self._spec.joint_names, target, stamp, SOURCE + self.device)
        speed = 1.0 if self._met else np.clip((stamp - self._began) / EASE, 0.0, 1.0)
        values = self._limits.apply(wanted, target, position, velocity, speed)
        there = np.clip(wanted, *self._spec.command_limits)
        near = np.abs(there - values) <= _MET
        # At full speed a joint that has met it once is together with it from then on, but for the jumps that it makes itself: one
        # that is noisy is never met by all joints at once. Nor is one further ahead than a target may lead the robot.
        self._joined |= (speed >= 1.0) & (near | (np.abs(there - position) > self._spec.lead) & (np.abs(values - target) <= _MET))
        self._met = self._met or bool((near | self._joined).all())
        return JointCommand(self._spec.joint_names, values, stamp, SOURCE + self.device)

    def _target(self, observation: Observation) -> np.ndarray:
        """Returns the present target: what was sent last, unless that is long ago or no command; then where the robot is."""
        rest = self._spec.rest(observation.joint_position)
        if self._spec.command_mode != "position" or self._last is None:
            return rest
        if not abs(observation.stamp - self._last.stamp) <= self._timeout:
            return rest
        try:
            target = self._last.in_order_of(self._spec)
        except UserError:
            return rest
        if self._began is None and not self._last.source.startswith(SOURCE):
            # What a policy asks for may be further away than the guard has let the robot's target go.
            return np.where(np.isfinite(rest), np.clip(target, rest - self._spec.lead, rest + self._spec.lead), target)
        return target

    def _not_finite(self) -> str:
        """Returns the joints of which nobody knows where they are, in position mode."""
        if self._spec.command_mode != "position" or self._observation is None:
            return ""
        known = np.isfinite(self._observation.joint_position[: len(self._spec.joints)])
        return "" if known.all() else ", ".join(name for name, is_known in zip(self._spec.joint_names, known, strict=True) if not is_known)
