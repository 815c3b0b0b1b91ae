"""A trot that a policy corrects: what the policy sees, and what its actions do to the targets. The same in training and on the robot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ros_rl.robots.legs import smooth
from ros_rl.robots.spec import RobotSpec
from ros_rl.robots.trot import Gait, Trot

OBSERVATIONS = 47
_JOINTS = 12
_TIME = 0.05  # s, by which a speed counts as an angle where a stage of the stride is looked for
_LATE = 2  # actions' times by which joints follow their targets
_STRIDES = ((0.5, 0.0, 0.0), (-0.3, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, -0.2, 0.0), (0.0, 0.0, 0.5), (0.0, 0.0, -0.5))  # m/s, m/s, rad/s


@dataclass(frozen=True, eq=False)
class Walk:
    """Settings of `Walker`.

    Attributes:
        gait: the trot.
        rate: Hz, at which the policy acts.
        correction: rad that the action 1 adds to the trot's target.
        settle: time to move from the first measured posture to the stance, s; the policy acts from then on.
        velocity_limit: lowest and highest command, m/s and rad/s, shape (2, 3).
        acceleration_limit: of the velocity that is walked at, m/s² and rad/s², shape (3,).
    """

    gait: Gait
    rate: float
    correction: float
    settle: float
    velocity_limit: np.ndarray
    acceleration_limit: np.ndarray


class Mirror:
    """What a robot sees and does as a mirror shows it: left is right.

    The trot is its own mirror image half a stride later, if legs and stance are symmetric and opposite legs step in turns: so is the
    clock in the mirror. Positions are seen from home, which has to be symmetric too.
    """

    def __init__(self, joints: Sequence[str]):
        """Takes the names of the joints, 12, in the robot's order, such as FL_hip_joint; hips turn about the long axis."""
        other = {"L": "R", "R": "L"}
        joint = np.array([joints.index(name[0] + other[name[1]] + name[2:]) for name in joints])
        sign = np.where(["_hip_" in name for name in joints], -1.0, 1.0)
        start, velocity, clock = np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]), np.array([1.0, -1.0, -1.0]), -np.ones(2)  # rates, gravity
        self._signs = np.concatenate([start, *[sign] * 3, velocity, clock])
        self._order = np.concatenate([np.arange(6), *[6 + block * _JOINTS + joint for block in range(3)], np.arange(42, OBSERVATIONS)])
        self._action_signs, self._action_order = np.concatenate([sign, velocity]), np.concatenate([joint, _JOINTS + np.arange(3)])

    def action(self, actions: np.ndarray) -> np.ndarray:
        """Returns actions of `Walker` or `Catcher`, or joint angles from a symmetric posture, (n, 12 or 15), in the mirror."""
        columns = actions.shape[1]
        mirrored: np.ndarray = self._action_signs[:columns] * actions[:, self._action_order[:columns]]
        return mirrored

    def observation(self, observations: np.ndarray) -> np.ndarray:
        """Returns observations of `Walker`, (n, 47), in the mirror."""
        mirrored: np.ndarray = self._signs * observations[:, self._order]
        return mirrored


class Walker:
    """The clock, the velocity and the last action of n robots.

    Joint targets are for the control periods between two actions, one row for each. The correction moves from one action to the
    next in equal steps, so that no target jumps.

    Attributes:
        periods: control periods between two actions.
        settling: actions' time before the policy acts.
        velocity: that is walked at: the command within its limits of size and rate of change, (n, 3).
        clock: actions' times since the start of the episode, (n,).
        action: the last one, (n, 12).
        posture: joint positions at the start of the episode, (n, 12).
        actions: numbers that an action has.
    """

    actions = _JOINTS

    def __init__(self, walk: Walk, robot: RobotSpec, count: int):
        """Stands at the beginning of `count` episodes."""
        self.walk, self._trot = walk, Trot(walk.gait, robot)
        self.periods = round(robot.control_rate / walk.rate)
        self.settling = round(walk.settle * walk.rate)
        self._home, self._period = robot.home, robot.period
        self._share = (np.arange(self.periods) + 1.0)[:, None] / self.periods
        self.velocity, self.clock = np.zeros((count, 3)), np.zeros(count, int)
        self.action, self.posture = np.zeros((count, _JOINTS)), np.zeros((count, _JOINTS))

    def begin(self, copies: Any, posture: np.ndarray) -> None:
        """Starts episodes of some robots, in the posture (k, 12), from which they first move to the stance."""
        self.velocity[copies], self.clock[copies], self.action[copies], self.posture[copies] = 0.0, 0, 0.0, posture

    def go_on(self, copies: Any, posture: np.ndarray, speed: np.ndarray) -> None:
        """Starts episodes of some robots as `begin` does, but they act at once; joints move at a speed of (k, 12), rad/s."""
        del speed  # a walk begins with the beginning of a stride
        self.begin(copies, posture)
        self.clock[copies] = self.settling

    def listen(self, command: np.ndarray, copies: Any = slice(None)) -> None:
        """Moves the velocity towards a command, (k, 3): once before every action."""
        step = self.walk.acceleration_limit / self.walk.rate
        wanted = np.clip(command, *self.walk.velocity_limit)
        self.velocity[copies] += np.clip(wanted - self.velocity[copies], -step, step)

    def observation(self, quat: np.ndarray, gyro: np.ndarray, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        """Returns what the policy sees, shape (n, 47).

        These are the angular velocity, the direction of gravity, joint positions from home, joint velocities, the last action, the
        velocity to walk at, and the clock's sine and cosine.

        Args:
            quat: attitude (w, x, y, z), (n, 4).
            gyro: angular velocity in the trunk, rad/s, (n, 3).
            position: of the joints, rad, (n, 12).
            speed: of the joints, rad/s, (n, 12).
        """
        w, x, y, z = quat.T
        down = np.stack([2.0 * (w * y - x * z), -2.0 * (y * z + w * x), 2.0 * (x * x + y * y) - 1.0], axis=1)
        turn = 2.0 * np.pi * self.walk.gait.frequency / self.walk.rate * (self.clock - self.settling)
        parts = [gyro, down, position - self._home, speed, self.action, self.velocity, np.sin(turn)[:, None], np.cos(turn)[:, None]]
        return np.concatenate(parts, axis=1)

    def stand_up(self, copies: Any = slice(None)) -> np.ndarray:
        """Returns the joint targets on the way to the stance, shape (k, periods, 12), and advances the clock: `settling` times."""
        clock = self.clock[copies]
        progress = np.minimum((clock[:, None] * self.periods + np.arange(self.periods)) / (self.settling * self.periods), 1.0)
        standing = self._trot.targets(np.zeros(1), np.zeros((1, 3)))
        self.clock[copies] += 1
        first = self.posture[copies][:, None]
        return first + smooth(progress)[..., None] * (standing - first)

    def walk_on(self, actions: np.ndarray, copies: Any = slice(None)) -> np.ndarray:
        """Returns the joint targets that actions, (k, 12), within ±1 amount to, shape (k, periods, 12), and advances the clock."""
        actions, before = np.clip(actions, -1.0, 1.0), self.action[copies][:, None]
        ticks = (self.clock[copies] - self.settling)[:, None] * self.periods + np.arange(self.periods)
        targets = self._trot.targets(ticks * self._period * self.walk.gait.frequency, self.velocity[copies][:, None])
        correction = before + self._share * (actions[:, None] - before)
        self.clock[copies] += 1
        self.action[copies] = actions
        return targets + self.walk.correction * correction

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything that the future depends on."""
        return {name: getattr(self, name).copy() for name in ("velocity", "clock", "action", "posture")}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        for name in ("velocity", "clock", "action", "posture"):
            getattr(self, name)[...] = state[name]


class Catcher(Walker):
    """A walker that catches robots that are about to fall: its actions say at which velocity it trots, so that feet are set where it is
    falling to, and it begins in the middle of a stride.

    An action has 15 numbers: the corrections of the joint targets, then the velocity as a share of the largest one, which is
    followed within the limit of acceleration. Nobody else tells it where to go.
    """

    actions = _JOINTS + 3

    def __init__(self, walk: Walk, robot: RobotSpec, count: int):
        """Stands at the beginning of `count` episodes."""
        super().__init__(walk, robot, count)
        strides = np.arange(round(walk.rate / walk.gait.frequency)) * walk.gait.frequency / walk.rate
        self._stages = self._trot.targets(strides, np.array(_STRIDES)[:, None])
        self._speeds = 0.5 * walk.rate * (np.roll(self._stages, -1, axis=1) - np.roll(self._stages, 1, axis=1))

    def go_on(self, copies: Any, posture: np.ndarray, speed: np.ndarray) -> None:
        """Starts episodes of some robots at that action's time of a stride whose joint targets, and their speed, are nearest to the
        posture, (k, 12), and the joints' speed, (k, 12), rad/s.
        """
        self.begin(copies, posture)
        apart = np.square(posture[:, None, None] - self._stages) + np.square(_TIME * (speed[:, None, None] - self._speeds))
        self.clock[copies] = self.settling + np.argmin(apart.sum(axis=-1).min(axis=1), axis=1) + _LATE

    def listen(self, command: np.ndarray, copies: Any = slice(None)) -> None:
        """Does nothing: it is not told where to go."""

    def walk_on(self, actions: np.ndarray, copies: Any = slice(None)) -> np.ndarray:
        """Returns the joint targets that actions, (k, 15), within ±1 amount to, shape (k, periods, 12), and advances the clock."""
        super().listen(np.clip(actions[:, _JOINTS:], -1.0, 1.0) * self.walk.velocity_limit[1], copies)
        return super().walk_on(actions[:, :_JOINTS], copies)
