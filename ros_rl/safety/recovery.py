"""Recovery switching: a task policy acts inside a region, and a recovery policy brings a legged robot back into it.

The switch of SafeExplorer, where it is deployed: whether the task policy acts is decided by the state alone, before acting.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, check_fits, load_bundle
from ros_rl.policies.interface import Policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import RobotSpec
from ros_rl.safety.instability import Instability
from ros_rl.safety.interface import RECOVERY, NoSafeAction, SafetyReport
from ros_rl.safety.region import Region

Mode = Literal["task", "recovery", "stopped"]

PARAMETER = "recovery_"  # begins the names of the settings as parameters of the safety node
_CALM = 0.8  # d_exit / d where none is given
_ROUNDING = 1e-9  # s
_PERIODS = 2  # control periods that observations and actions may take at least
_BASE = ("base_quat", "base_gyro", "base_acc")


@dataclass(frozen=True)
class RecoverySettings:
    """How the switch is set. Limits of the region that are 0 are those of the recovery policy's bundle.

    Attributes:
        d: ρ at which recovery begins.
        d_exit: ρ below which it may end; 0: 0.8·d.
        tilt_limit: tilt at which the robot has fallen, rad.
        drop_limit: how much lower it then is, m.
        dwell: least time in recovery, s.
        stuck_after: time in recovery without coming below `d_exit`, s, after which the robot is held.
        stop_after: time for which the recovery policy acts without knowing ρ, s, before the robot is held.
    """

    d: float = 0.0
    d_exit: float = 0.0
    tilt_limit: float = 0.0
    drop_limit: float = 0.0
    dwell: float = 0.2
    stuck_after: float = 3.0
    stop_after: float = 0.2

    @classmethod
    def of(cls, values: Callable[[str], Any] | Mapping[str, Any]) -> "RecoverySettings":
        """Reads them from the parameters of the safety node: a mapping, or a function of the name."""
        get = values if callable(values) else values.__getitem__
        return cls(**{setting.name: get(PARAMETER + setting.name) for setting in fields(cls)})

    def region(self, bundle: Region) -> Region:
        """Returns the region of a recovery policy's bundle, narrowed.

        Raises:
            UserError: a limit is larger than the bundle's, or `d_exit` is above d.
        """
        region = bundle.narrowed(self.d, self.tilt_limit, self.drop_limit)
        if self.d_exit > region.d:
            raise UserError(f"region: d_exit must be at most d, {region.d:g}, got {self.d_exit:g}")
        return region


def check_patience(spec: RobotSpec, timeout: float) -> None:
    """Checks for how long, in s, IMU, observations or actions may be silent before the recovery policy acts.

    Raises:
        UserError: they may not even be so from one control period to the next.
    """
    least = _PERIODS * spec.period
    if timeout < least - _ROUNDING:
        where = f"{least:g} s at {spec.control_rate:g} Hz"
        raise UserError(f"recovery_imu_timeout must be at least two control periods, {where}, got {timeout:g}")


class RecoverySwitch:
    """Decides who acts, from one state to the next.

    ``task``: the task policy. ``recovery``: the recovery policy, from the state in which ρ reaches d, is not known or there is no
    action to take, until ρ is below d_exit and the dwell time has passed. ``stopped``: nobody, from when recovery did not help,
    until `reset`: somebody has to see to the robot.

    Attributes:
        mode: who acts.
        reason: why it is not the task policy.
        triggers: how often recovery began; also over resets, as the next two.
        falls: how often ρ reached 1.
        time: spent in recovery, s.
    """

    def __init__(self, d: float, settings: RecoverySettings):
        """Takes d and the settings, of which those of the region are not read but for `d_exit`."""
        self.triggers = self.falls = 0
        self.time = 0.0
        self.set(d, settings)
        self.reset()

    def set(self, d: float, settings: RecoverySettings) -> None:
        """Changes the thresholds; from the next state on they count."""
        self.d, self.d_exit = d, settings.d_exit or _CALM * d
        self._settings = settings

    def reset(self) -> None:
        """Gives the robot to the task policy: a new episode, or somebody has seen to it."""
        self.mode: Mode = "task"
        self.reason = ""
        self._stamp: float | None = None
        self._rho = 0.0
        self._began = self._calm = 0.0  # stamps: recovery began, ρ was last below d_exit
        self._blind: float | None = None  # stamp since which ρ is not known

    def update(self, stamp: float, rho: float, action: bool = True) -> Mode:
        """Returns who acts in a state; the same once more if asked again.

        Args:
            stamp: of the state, s. One before the last is of a clock that was set back: what has lasted so far has lasted as long.
                An episode begins with `reset`.
            rho: its instability; NaN where that is not known.
            action: whether there is an action of the task policy to take.
        """
        before = self._stamp
        if before is not None and stamp < before:
            self._shift(stamp - before)
            before = self._stamp = stamp
        again = stamp == before and (rho == self._rho or (math.isnan(rho) and math.isnan(self._rho)))
        if again and (action or self.mode != "task"):
            return self.mode
        if self.mode == "recovery" and before is not None:
            self.time += stamp - before
        self.falls += rho >= 1.0 and not self._rho >= 1.0
        self._stamp, self._rho = stamp, rho
        if math.isfinite(rho):
            self._blind = None
        elif self._blind is None:
            self._blind = stamp
        if self.mode == "task":
            self._look(stamp, rho, action)
        elif self.mode == "recovery":
            self._watch(stamp, rho, action)
        return self.mode

    def _shift(self, time: float) -> None:
        """Moves all stamps by a time, s."""
        self._began, self._calm = self._began + time, self._calm + time
        self._blind = None if self._blind is None else self._blind + time

    def engage(self, reason: str) -> None:
        """Begins recovery without a new state: none comes."""
        if self.mode == "task":
            self._enter(self._stamp or 0.0, reason)

    def _look(self, stamp: float, rho: float, action: bool) -> None:
        if self._blind is not None:
            self._enter(stamp, "ρ cannot be told")
        elif rho >= self.d:
            self._enter(stamp, f"ρ reached d = {self.d:g}")
        elif not action:
            self._enter(stamp, "there is no action")

    def _enter(self, stamp: float, reason: str) -> None:
        self.mode, self.reason = "recovery", reason
        self.triggers += 1
        self._began = self._calm = stamp

    def _watch(self, stamp: float, rho: float, action: bool) -> None:
        calm, limits = rho < self.d_exit, self._settings  # NaN is not calm
        if calm:
            self._calm = stamp
        if self._blind is not None and stamp - self._blind >= limits.stop_after - _ROUNDING:
            self.mode, self.reason = "stopped", f"ρ could not be told for {limits.stop_after:g} s"
        elif stamp - self._calm >= limits.stuck_after - _ROUNDING:
            self.mode, self.reason = "stopped", f"ρ did not come below {self.d_exit:g} within {limits.stuck_after:g} s of recovery"
        elif calm and action and stamp - self._began >= limits.dwell - _ROUNDING:
            self.mode, self.reason = "task", ""


class RecoveryFilter:
    """Passes the task policy's action inside the region; outside, the recovery policy acts, from the very state on that is outside."""

    def __init__(self, spec: RobotSpec, policy: Policy, region: Region, settings: RecoverySettings, name: str = "policy"):
        """
        Args:
            spec: the robot.
            policy: what acts in recovery: any policy for that robot.
            region: in which it was found to bring the robot back.
            settings: of the switch; they may narrow the region.
            name: of the policy, for the source of its commands.

        Raises:
            UserError: the settings do not fit the region, the robot cannot tell its tilt, or more than half of its upright poses
                about home are outside the region.

        `remark` says how many of these are, where any is.
        """
        self._spec, self._largest, self._name = spec, region, name
        self._runner = PolicyRunner(policy)
        keys = [key.name for key in policy.spec.observation]
        self.reads = tuple(sorted({"base_quat", *keys} - {"command"}))
        self._instability, self.remark = self.check(settings)
        self._switch = RecoverySwitch(self._instability.region.d, settings)
        self._seen: Observation | None = None
        self._known: Observation | None = None  # the last one of which ρ was told
        self._rho = math.nan
        self._held: np.ndarray | None = None
        self._started = 0  # the trigger that the recovery policy was started for
        self.reset()

    def set(self, settings: RecoverySettings) -> None:
        """Changes the settings while it runs.

        Raises:
            UserError: as the constructor; the settings are then as before.
        """
        self._instability, self.remark = self.check(settings)
        self._switch.set(self._instability.region.d, settings)

    def check(self, settings: RecoverySettings) -> tuple[Instability, str]:
        """Returns how instability is told with other settings, and what somebody should know of their region, or nothing.

        Raises:
            UserError: as the constructor.
        """
        instability = Instability(self._spec, settings.region(self._largest))
        share, mean = instability.excluded()
        if share == 0.0:
            return instability, ""
        remark = f"the region ρ < {instability.region.d:g} excludes {share:.0%} of upright poses about home; mean ρ {mean:.3g}"
        if share > 0.5:
            raise UserError(f"recovery: {remark}: the task policy would hardly act")
        return instability, remark

    def reset(self) -> None:
        """Forgets the episode, and that the robot was held; triggers, falls and time are still counted from the beginning."""
        self._switch.reset()
        self._runner.restart()
        self._seen = self._known = self._held = None

    def urgent(self, observation: Observation, acting: bool = True) -> bool:
        """Returns whether another than the task policy acts. One that does not act any more does not get the robot back."""
        return self._decide(observation, acting or self._switch.mode == "task") != "task"

    def filter(
        self, observation: Observation | None, action: np.ndarray | None, distribution: Any = None
    ) -> tuple[np.ndarray, SafetyReport]:
        """Returns the action itself, the recovery policy's or, once that did not help, the command that holds the robot; shape (n,).

        Raises:
            NoSafeAction: the recovery policy cannot act, or the position to hold is not finite.
        """
        assert observation is not None
        mode = self._decide(observation, action is not None)
        if mode == "task":
            assert action is not None
            return action, SafetyReport(False, self._values())
        if mode == "recovery":
            command = self._recover(observation)
            return command, SafetyReport(True, self._values(), source=RECOVERY + self._name, warning=self._switch.reason)
        if self._held is None:
            self._held = self._rest(observation)
        return self._held, SafetyReport(True, self._values(), source=RECOVERY + "stopped", fault=self._switch.reason)

    def fallback(self) -> np.ndarray | None:
        """Returns what recovery does in the state last seen, for a moment without news; None before the first."""
        if self._seen is None:
            return None
        self._switch.engage("no observation comes")
        try:
            return self.filter(self._seen, None)[0]
        except NoSafeAction:
            return None

    def _decide(self, observation: Observation, action: bool) -> Mode:
        self._rho = float(self._instability(observation))
        mode = self._switch.update(observation.stamp, self._rho, action)
        self._seen = observation
        if math.isfinite(self._rho):
            self._known = observation
        return mode

    def _recover(self, observation: Observation) -> np.ndarray:
        if self._started != self._switch.triggers:
            self._started = self._switch.triggers
            self._runner.restart()
        if not math.isfinite(self._rho) and self._known is not None:  # attitude and rates as they were last known
            observation = replace(observation, **{name: getattr(self._known, name) for name in _BASE})
        try:
            return self._runner.command(observation.told(np.zeros(3), "")).in_order_of(self._spec)
        except (UserError, RobotFault) as problem:
            raise NoSafeAction(f"the recovery policy cannot act: {problem}") from None

    def _rest(self, observation: Observation) -> np.ndarray:
        rest = self._spec.rest(observation.joint_position)
        if not np.isfinite(rest).all():
            raise NoSafeAction("the measured position is not finite, so that it cannot be held")
        return rest

    def _values(self) -> dict[str, float | str]:
        switch = self._switch
        values: dict[str, float | str] = {"mode": switch.mode, "rho": round(self._rho, 6), "d": switch.d, "d_exit": switch.d_exit}
        return {**values, "triggers": switch.triggers, "falls": switch.falls, "recovery_time": round(switch.time, 6)}


def load_recovery(spec: RobotSpec, bundle: Bundle | str | Path, settings: RecoverySettings) -> RecoveryFilter:
    """Makes the filter with the recovery policy of a bundle.

    Args:
        spec: the robot.
        bundle: a bundle, the name of one that ships, or a path to its folder; its `region` says where it brings the robot back.
        settings: of the switch.

    Raises:
        UserError: there is no such bundle, it is for other joints or says no region, or see `RecoveryFilter`.
    """
    if not isinstance(bundle, Bundle):
        if not str(bundle):
            raise UserError("filter recovery: name the bundle of the recovery policy with recovery:=")
        bundle = load_bundle(bundle)
    if bundle.spec.joint_names != spec.joint_names:
        raise UserError(
            f"a recovery policy for other joints: bundle '{bundle.name}' commands {', '.join(bundle.spec.joint_names)} "
            f"(robot '{bundle.spec.robot}'), robot '{spec.name}' has {', '.join(spec.joint_names)}"
        )
    check_fits(bundle, spec)
    if bundle.region is None:
        raise UserError(f"bundle '{bundle.name}' says no region that it recovers from; its policy.yaml needs region: {{d, tilt_limit}}")
    unread = [key.name for key in bundle.spec.observation if key.name.startswith(("images.", "privileged.")) or key.name == "instruction"]
    if unread:
        raise UserError(f"bundle '{bundle.name}' reads {', '.join(unread)}, which a recovery policy must do without")
    return RecoveryFilter(spec, load_policy(bundle, spec), bundle.region, settings, bundle.name)
