"""Makes a robot worse on purpose: noise, latency, lost camera frames and late actions, to see what a policy can stand."""

import copy
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import mujoco
import numpy as np

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.interface import JointCommand, Observation, Robot, SimulatedRobot

NOISY_FIELDS = (
    "joint_position",
    "joint_velocity",
    "joint_effort",
    "base_quat",
    "base_gyro",
    "base_acc",
    "base_position",
    "base_velocity",
)


@dataclass(frozen=True)
class DisturbanceConfig:
    """What goes wrong.

    Attributes:
        noise: observation field to the standard deviation of the Gaussian noise on each of its numbers, in the field's
            unit; for `base_quat` the noise is a small rotation, rad about each axis.
        latency: s by which observations come late; they keep their stamps, so that their age can be seen.
        frame_drop: probability that a camera frame is lost; the previous image stays, with the stamp it was taken at.
        action_delay: s by which commands take effect late, rounded to whole control periods.
    """

    noise: Mapping[str, float] = field(default_factory=dict)
    latency: float = 0.0
    frame_drop: float = 0.0
    action_delay: float = 0.0

    def __post_init__(self) -> None:
        for name, deviation in self.noise.items():
            if name not in NOISY_FIELDS:
                raise unknown("observation field", name, NOISY_FIELDS)
            if not (math.isfinite(deviation) and deviation >= 0):
                raise UserError(f"the noise on {name} is {deviation}, it must be 0 or more")
        for name in ("latency", "action_delay"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise UserError(f"{name} is {getattr(self, name)} s, it must be 0 or more")
        if not 0 <= self.frame_drop <= 1:
            raise UserError(f"frame_drop is {self.frame_drop}, a probability is from 0 to 1")


class DisturbedRobot:
    """A robot as seen through bad sensors and a slow bus; `step` and, in simulation, `reset` pass through.

    The same seed and the same calls give the same disturbances. Noise is drawn once per measurement: reading again
    before the robot has measured anew gives the same numbers.
    """

    def __init__(self, robot: Robot, config: DisturbanceConfig, seed: int = 0):
        """Wraps `robot`."""
        self.robot = robot
        self.spec = robot.spec
        self.config = config
        self._delay = round(config.action_delay * self.spec.control_rate)
        self._history: deque[Observation] = deque()
        self._pending: deque[JointCommand] = deque()
        self._sent: JointCommand | None = None
        self._frames: dict[str, tuple[np.ndarray, float]] = {}
        self._newest_frame: dict[str, float] = {}
        self._start(seed)

    def connect(self) -> None:
        """Connects the robot."""
        self.robot.connect()
        self._start(self._seed)

    def read(self) -> Observation:
        """Returns the newest observation that has arrived by now; the first one arrives at once."""
        measured = self.robot.read()
        if self._history and measured.stamp < self._history[-1].stamp:
            self._start(self._seed)  # time went back: what came before belongs to another episode
        if not self._history or measured.stamp > self._history[-1].stamp:
            self._history.append(self._disturb(measured))
        arrived = measured.stamp - self.config.latency + 1e-9  # stamps are whole nanoseconds
        while len(self._history) > 1 and self._history[1].stamp <= arrived:
            self._history.popleft()
        return copy.deepcopy(self._history[0])

    def write(self, command: JointCommand) -> JointCommand:
        """Sends the command that is due now, and returns it: the one of `action_delay` ago, or at first the resting one."""
        self._pending.append(command)
        if len(self._pending) > self._delay:
            self._sent = self.robot.write(self._pending.popleft())
        elif self._sent is None:
            values = self.spec.rest(self.robot.read().joint_position)
            self._sent = self.robot.write(JointCommand(self.spec.joint_names, values, command.stamp, "resting"))
        return self._sent

    def step(self) -> None:
        """Advances to the next measurement."""
        self.robot.step()

    def reset(self, seed: int) -> None:
        """Starts a new episode of a simulated robot; its disturbances are drawn from the same seed."""
        assert isinstance(self.robot, SimulatedRobot)
        self.robot.reset(seed)
        self._start(seed)

    def stop(self) -> None:
        """Brings the robot to rest at once; commands under way are lost."""
        self._pending.clear()
        self._sent = None
        self.robot.stop()

    def close(self) -> None:
        """Stops the robot and ends the connection."""
        self.robot.close()

    def _start(self, seed: int) -> None:
        self._seed = seed
        # A stream of its own: the robot's initial state is drawn from the same seed.
        self._random = np.random.default_rng([seed, 1])
        self._history.clear()
        self._pending.clear()
        self._sent = None
        self._frames.clear()
        self._newest_frame.clear()

    def _disturb(self, measured: Observation) -> Observation:
        """Returns a measurement with noise and lost frames."""
        changed: dict[str, Any] = {}
        for name, deviation in self.config.noise.items():
            value = getattr(measured, name)
            if value is None:
                continue
            if name == "base_quat":
                changed[name] = _rotated(value, self._random.normal(0.0, deviation, 3))
            else:
                changed[name] = value + self._random.normal(0.0, deviation, value.shape)
        for name, image in measured.images.items():
            stamp = measured.image_stamps.get(name, measured.stamp)
            if stamp != self._newest_frame.get(name):
                self._newest_frame[name] = stamp
                lost = self._random.random() < self.config.frame_drop
                if not lost or name not in self._frames:
                    self._frames[name] = image, stamp
        images = {name: image for name, (image, _) in self._frames.items()}
        stamps = {name: stamp for name, (_, stamp) in self._frames.items()}
        return replace(measured, **changed, images=images, image_stamps=stamps)


def _rotated(quat: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Returns an attitude (w, x, y, z) turned by a rotation vector (rad) in its own frame."""
    step, result = np.empty(4), np.empty(4)
    angle = float(np.linalg.norm(turn))
    mujoco.mju_axisAngle2Quat(step, turn / angle if angle > 0 else np.array([1.0, 0.0, 0.0]), angle)
    mujoco.mju_mulQuat(result, quat, step)
    return result
