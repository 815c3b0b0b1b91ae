"""A quadruped that shall walk forward on uneven ground at a speed, by correcting a trot that knows nothing of the ground.

Actions are joint targets about the home pose, in [-1, 1] for ±`RANGE`. The trot and the stance that is safe are both such
targets, so that a mixture of the two is one of what the joints are told to do, and none of what is added to something else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import mujoco
import numpy as np

from ros_rl.robots.legs import LEGS, legs_of, step_cycle
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.goals.interface import SafeSet, draw_starts
from ros_rl.sim.goals.simulated import SimulatedGoal
from ros_rl.sim.reset import reset
from ros_rl.sim.terrain import Terrain, bumpy

ROBOT = "quadruped"
RATE = 50.0  # Hz
GOALS = {"low": 0.2, "mid": 0.4, "high": 0.6}  # m/s forward
STATE = ("roll", "pitch", "height", "roll_rate", "pitch_rate", "vertical_speed")  # rad, m, rad/s, m/s
SCALE = np.array([0.2, 0.2, 0.05, 2.0, 2.0, 0.5])
RANGE = 0.55  # rad from home that the action 1 stands for
CORRECTION = 0.25 / RANGE  # share of it that a policy may add to the trot
TILT, LOWEST = 0.8, 0.15  # rad of roll or pitch, and m of the trunk above the ground, beyond which the robot has fallen
TERRAIN_SEED = 0

_FREQUENCY, _DUTY, _LIFT = 2.5, 0.6, 0.05  # strides per second, part of one on the ground, m
_PHASE = np.array([0.0, 0.5, 0.5, 0.0])  # when a leg's stance begins
_STRIDE_STEPS = round(RATE / _FREQUENCY)
_START_AREA = 1.0  # m to each side of the middle
_SPEED_WIDTH = 0.2  # m/s off at which the reward is 1/e
_INSTANT = 1e-6  # s, to tell joint velocities from two postures


@dataclass(frozen=True, eq=False)
class Stance:
    """How the robot stands on level ground with the home pose as its joint targets.

    Attributes:
        state: (roll, pitch, height of the trunk above the ground, 0, 0, 0), rad and m.
        feet: from the trunk, in level axes along its heading, m, shape (4, 3), in the order of `LEGS`.
        hips: of which the mean height of the ground below is that below the trunk, likewise, shape (4, 2).
    """

    state: np.ndarray
    feet: np.ndarray
    hips: np.ndarray


@cache
def stance() -> Stance:
    """Lets the robot come to rest."""
    model = build(load_robot(ROBOT, RATE), "floor")
    data = mujoco.MjData(model.mj)
    reset(model, data, None, 0)
    mujoco.mj_step(model.mj, data, 100 * model.substeps)
    mujoco.mj_forward(model.mj, data)
    roll, pitch, yaw = attitude(data.qpos[None, 3:7])
    feet = np.array([data.body(f"{leg}_foot").xpos for leg in LEGS]) - data.qpos[:3]
    hips = np.array([leg.hip[:2] + [0.0, leg.offset] for leg in legs_of(model.spec).values()])
    return Stance(np.array([roll[0], pitch[0], data.qpos[2], 0.0, 0.0, 0.0]), feet @ _turn(yaw)[0], hips)


def uneven() -> Terrain:
    """Returns the ground of the task: bumps of 2 to 5 cm."""
    return bumpy(TERRAIN_SEED)


def attitude(quat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns roll, pitch and yaw, rad, shape (n,), of attitudes (w, x, y, z), (n, 4)."""
    w, x, y, z = quat.T
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - x * z), -1.0, 1.0))
    return roll, pitch, np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def _turn(yaw: np.ndarray) -> np.ndarray:
    """Returns the rotations about the vertical, shape (n, 3, 3)."""
    turns = np.zeros((len(yaw), 3, 3))
    turns[:, 0, 0] = turns[:, 1, 1] = np.cos(yaw)
    turns[:, 1, 0] = np.sin(yaw)
    turns[:, 0, 1], turns[:, 2, 2] = -turns[:, 1, 0], 1.0
    return turns


def heading_velocity(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Returns forward and leftward velocity, m/s, and rate of turn, rad/s, shape (n, 3), of trunks in MuJoCo's states (n, nq), (n, nv)."""
    yaw = attitude(qpos[:, 3:7])[2]
    ahead = np.stack([np.cos(yaw), np.sin(yaw)], axis=1)
    forward, left = (qvel[:, :2] * ahead).sum(axis=1), ahead[:, 0] * qvel[:, 1] - ahead[:, 1] * qvel[:, 0]
    return np.stack([forward, left, qvel[:, 5]], axis=1)


def ground_below(terrain: Terrain, position: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Returns the mean height of the ground below the hips, shape (c,), of trunks at (c, 2) with a heading (c,)."""
    below = position[:, None] + stance().hips @ _turn(yaw)[:, :2, :2].transpose(0, 2, 1)
    return terrain.height(below[..., 0], below[..., 1]).mean(axis=1)


def trot(speeds: np.ndarray) -> np.ndarray:
    """Returns the actions of a trot on level ground, one stride long, shape (n, steps, 12), at speeds (n,), m/s."""
    legs, rest = legs_of(load_robot(ROBOT, RATE)), stance()
    feet = rest.feet - [0.0, 0.0, rest.feet[:, 2].mean()] + [0.0, 0.0, -rest.state[2]]
    phase = np.arange(_STRIDE_STEPS)[:, None] / _STRIDE_STEPS - _PHASE
    tables = np.empty((len(speeds), _STRIDE_STEPS, 12))
    for table, speed in zip(tables, speeds, strict=True):
        stride = np.broadcast_to([speed * _DUTY / _FREQUENCY, 0.0], (*phase.shape, 2))
        moved, _ = step_cycle(phase, stride, _LIFT, _DUTY)
        for row, places in zip(table, feet + moved, strict=True):
            row[:] = np.concatenate([leg.joints(place) for leg, place in zip(legs.values(), places, strict=True)])
    middle = np.concatenate([leg.joints(place) for leg, place in zip(legs.values(), feet, strict=True)])
    return (tables - middle) / RANGE


class QuadrupedGoal(SimulatedGoal):
    """The environment; its state s is what `STATE` names, less the stance: the height is that above the ground below."""

    action_size = 12

    def __init__(self, goals: np.ndarray, safe: SafeSet, terrain: Terrain | None = None):
        """
        Args:
            goals: forward speed of each copy, m/s, shape (n,).
            safe: where it is safe, for the state s.
            terrain: the ground; None: `uneven`.
        """
        self.terrain = uneven() if terrain is None else terrain
        super().__init__(build(load_robot(ROBOT, RATE), "floor", self.terrain), goals, safe)
        self._stance = stance()
        self._legs = list(legs_of(self._sim.model.spec).values())
        self._trot = trot(self.goals)
        self._phase = np.zeros(len(self.goals), int)

    @property
    def nominal(self) -> np.ndarray:
        """The trot's action for the next step, shape (n, 12)."""
        return self._trot[np.arange(len(self)), (self._phase + self._steps) % _STRIDE_STEPS]

    @property
    def safety_state(self) -> np.ndarray:
        """The state s, shape (n, 6)."""
        pose, velocity = self._sim.qpos, self._sim.qvel
        roll, pitch, yaw = attitude(pose[:, 3:7])
        height = pose[:, 2] - ground_below(self.terrain, pose[:, :2], yaw)
        return np.stack([roll, pitch, height, velocity[:, 3], velocity[:, 4], velocity[:, 2]], axis=1) - self._safe.state_equilibrium

    @property
    def velocity(self) -> np.ndarray:
        """Forward and to the left, m/s, and the rate of turn, rad/s, shape (n, 3)."""
        return heading_velocity(self._sim.qpos, self._sim.qvel)

    @property
    def observation(self) -> np.ndarray:
        """State, velocity, joints, and how much too slow the robot is, scaled; last the trot's action. Shape (n, 46)."""
        joints, velocity = self._sim.model, self.velocity
        parts = [self.safety_state / SCALE, velocity, (self._sim.qpos[:, joints.qpos] - joints.spec.home) / 0.5]
        parts += [self._sim.qvel[:, joints.qvel] / 5.0, (self.goals - velocity[:, 0])[:, None] / 0.5, self.nominal]
        return np.concatenate(parts, axis=1)

    def reset(self, copies: Sequence[int] | np.ndarray, seeds: Sequence[Sequence[int]]) -> None:
        """Starts new episodes: standing somewhere, in some direction, the trot anywhere in its stride."""
        draws = [np.random.default_rng([*seed, 1]) for seed in seeds]
        places = np.array([draw.uniform([-_START_AREA, -_START_AREA, -np.pi], [_START_AREA, _START_AREA, np.pi]) for draw in draws])
        self._sim.place(copies, *self._standing(draw_starts(self._safe, seeds), places))
        self._steps[np.asarray(copies)] = 0
        self._phase[np.asarray(copies)] = [draw.integers(_STRIDE_STEPS) for draw in draws]

    def state(self) -> dict[str, np.ndarray]:
        """Returns physics, step counts and where in its stride each trot began."""
        return super().state() | {"phase": self._phase.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        super().restore(state)
        self._phase[:] = state["phase"]

    def _standing(self, states: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns positions and velocities of robots in the states s, (c, 6), whose feet stand still at x, y, yaw, (c, 3)."""
        model = self._sim.model
        qpos, qvel = np.zeros((len(states), model.mj.nq)), np.zeros((len(states), model.mj.nv))
        for row, (state, place) in enumerate(zip(states + self._safe.state_equilibrium, places, strict=True)):
            turn = _turn(place[2:])[0]
            feet = np.array([*place[:2], 0.0]) + self._stance.feet @ turn.T
            feet[:, 2] += self._stance.state[2] + self.terrain.height(feet[:, 0], feet[:, 1])
            position = np.array([*place[:2], state[2] + ground_below(self.terrain, place[None, :2], place[2:])[0]])
            quat = _quaternion(state[0], state[1], place[2])
            later, moved = quat.copy(), np.array([0.0, 0.0, state[5]])
            mujoco.mju_quatIntegrate(later, np.array([state[3], state[4], 0.0]), _INSTANT)
            joints = self._joints(feet, position, quat)
            qpos[row, :7], qpos[row, model.qpos] = [*position, *quat], joints
            qvel[row, :6] = [*moved, state[3], state[4], 0.0]
            qvel[row, model.qvel] = (self._joints(feet, position + moved * _INSTANT, later) - joints) / _INSTANT
        return qpos, qvel

    def _joints(self, feet: np.ndarray, position: np.ndarray, quat: np.ndarray) -> np.ndarray:
        """Returns the joint positions, shape (12,), with which feet in the world, (4, 3), carry the trunk."""
        matrix = np.empty(9)
        mujoco.mju_quat2Mat(matrix, quat)
        return np.concatenate([leg.joints(foot) for leg, foot in zip(self._legs, (feet - position) @ matrix.reshape(3, 3), strict=True)])

    def _violation(self, state: np.ndarray) -> np.ndarray:
        """Returns which robots have fallen."""
        roll, pitch, height, *_ = (state + self._safe.state_equilibrium).T
        return (np.abs(roll) > TILT) | (np.abs(pitch) > TILT) | (height < LOWEST)

    def _reward(self, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Returns exp(-(velocity off the goal / 0.2 m/s)²) - 0.01 |action|²."""
        off = self.velocity[:, :2] - np.stack([self.goals, np.zeros(len(self))], axis=1)
        reward: np.ndarray = np.exp(-(off**2).sum(axis=1) / _SPEED_WIDTH**2) - 0.01 * (actions**2).sum(axis=1)
        return reward


def _quaternion(roll: float, pitch: float, yaw: float) -> np.ndarray:
    quat = np.empty(4)
    mujoco.mju_euler2Quat(quat, np.array([yaw, pitch, roll]), "zyx")
    return quat
