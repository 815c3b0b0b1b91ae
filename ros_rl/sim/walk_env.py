"""A quadruped that walks at a commanded velocity, many times: flat and uneven ground, pushes, other masses and friction, late commands.

The joints are driven as on the robot: `ros_rl.robots.walking.Walker` makes joint targets of actions, the guard's limits hold in every
control period. What is observed is what the robot measures; velocity and height are for reward and judgement only.
"""

import copy as copying
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mujoco
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from mujoco import mjtStage

from ros_rl.errors import UserError
from ros_rl.hardware.limits import CommandLimits
from ros_rl.robots.legs import legs_of
from ros_rl.robots.spec import load_robot
from ros_rl.robots.trot import Gait
from ros_rl.robots.walking import OBSERVATIONS, Walk, Walker
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.goals.quadruped import attitude, ground_below, heading_velocity
from ros_rl.sim.observe import measured_positions, measured_velocities
from ros_rl.sim.reset import reset
from ros_rl.sim.task import BaseRange, load_task
from ros_rl.sim.terrain import Terrain, bumpy
from ros_rl.sim.vector_env import Judged, KeptVectorEnv

ROBOT, TASK = "quadruped", "quadruped_walk"
RATE = 50.0  # Hz, at which the policy acts
FALLEN_TILT, LOW, LOW_RANGE = np.deg2rad(60.0), 0.27, 0.15  # rad; m of the trunk above the ground, and m below that is a fall
_TERRAIN_SEED, _HALF_WIDTH, _EDGE = 0, 10.0, 0.5  # of the uneven ground, m; its edge is not walked on
_COMMAND_STEPS, _PUSH_STEPS = (100, 250), (75, 200)  # from one command or push to the next
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_SCALE = 0.1  # of the reward, so that returns are of the order of 10
_WIDTHS, _MEAN_WIDTHS = (0.2, 0.25), (0.08, 0.12)  # m/s and rad/s off at which a reward is 1/e: now, and in the mean


@dataclass(frozen=True)
class Conditions:
    """What is drawn for every episode; ranges are uniform.

    Attributes:
        uneven: share of the copies, the last ones, that walk on uneven ground.
        friction: of feet and ground, sliding.
        load: kg more in the trunk.
        delay: most control periods by which commands are late.
        push: largest velocity that a push changes the trunk's by, m/s; 0: none.
        spread: start anywhere within 1 m of the middle and in any direction; else as the task says.
        commands: draw velocities to walk at, and new ones on the way; else the command is what `tell` said.
    """

    uneven: float = 0.5
    friction: tuple[float, float] = (0.5, 1.25)
    load: tuple[float, float] = (-0.5, 2.0)
    delay: int = 2
    push: float = 1.0
    spread: bool = True
    commands: bool = True


NOMINAL = Conditions(uneven=0.0, friction=(1.0, 1.0), load=(0.0, 0.0), delay=0, push=0.0, commands=False)


def walk() -> Walk:
    """Returns the trot of the robot, and how much may be added to it."""
    stance = np.array([leg.hip + [0.0, leg.offset, -0.28] for leg in legs_of(load_robot(ROBOT)).values()])
    gait = Gait(frequency=2.5, duty=0.6, lift=0.06, full_lift_speed=0.1, stance=stance, phase=np.array([0.0, 0.5, 0.5, 0.0]))
    fastest = np.array([[-0.5, -0.3, -0.8], [0.8, 0.3, 0.8]])
    return Walk(gait, RATE, correction=0.3, settle=0.5, velocity_limit=fastest, acceleration_limit=np.array([1.0, 1.0, 2.0]))


@cache
def uneven_ground() -> Terrain:
    """Returns the uneven ground: bumps of 2 to 5 cm."""
    return bumpy(_TERRAIN_SEED, half_width=_HALF_WIDTH)


class WalkVectorEnv(KeptVectorEnv):
    """n robots that walk.

    An action is the correction of the trot's joint targets, see `Walker`. An episode begins as on the robot: in its home pose, from
    which it first moves to the stance. Infos hold ``rho`` (1: it has fallen, which terminates), ``velocity`` and ``command``: the
    velocity to walk at next, and that after a push that has just come.
    """

    walker_class: type[Walker] = Walker
    _kept = (
        *KeptVectorEnv._kept,
        "command",
        "_target",
        "_late_targets",
        "_changed",
        "_off",
        "_physics",
        "_delay",
        "_next_command",
        "_next_push",
    )

    def __init__(
        self,
        walk: Walk,
        num_envs: int = 1,
        conditions: Conditions = NOMINAL,
        max_episode_steps: int = 500,
        autoreset_mode: AutoresetMode | str = AutoresetMode.DISABLED,
        render_mode: str | None = None,
        threads: int | None = 1,
    ):
        """Builds the copies; `threads` step them, None means one per CPU."""
        self.robot, self.conditions = load_robot(ROBOT), conditions
        self._grounds = [Terrain(np.zeros((2, 2)), _HALF_WIDTH), uneven_ground()]
        self._built = [build(self.robot, "floor"), build(self.robot, "floor", self._grounds[1])]
        self.uneven = np.arange(num_envs) >= num_envs - round(conditions.uneven * num_envs)
        self.copies = BatchSim(self._built[0], num_envs, threads)
        self._models = [copying.copy(self._built[ground].mj) for ground in self.uneven.astype(int)]
        self.copies.set_models(self._models)
        self._scratch = [mujoco.MjData(model.mj) for model in self._built]
        self.walker, self._limits = self.walker_class(walk, self.robot, num_envs), CommandLimits(self.robot)
        task = load_task(TASK, ROBOT)
        anywhere = BaseRange(x=[-1.0, 1.0], y=[-1.0, 1.0], yaw=[-np.pi, np.pi])
        self._task = replace(task, reset=replace(task.reset, base=anywhere)) if conditions.spread else task
        self._episode_steps = max_episode_steps
        joints = len(self.robot.joints)
        self.command, self._target, self._changed = np.zeros((num_envs, 3)), np.zeros((num_envs, joints)), np.zeros(num_envs)
        self._off = np.zeros((num_envs, 3))  # what the velocity was off in the last stride or so
        self._memory = 1.0 - walk.gait.frequency / walk.rate
        self._late_targets = np.zeros((num_envs, conditions.delay + 1, joints))
        self._physics = np.tile([1.0, 0.0], (num_envs, 1))  # friction, load
        self._delay, self._next_command, self._next_push = (np.zeros(num_envs, int) for _ in range(3))
        space = Box(-np.inf, np.inf, (OBSERVATIONS,), np.float64)
        super().__init__(
            self.copies, self._built[0], space, Box(-1.0, 1.0, (self.walker.actions,), np.float32), walk.rate, autoreset_mode, render_mode
        )

    @property
    def velocity(self) -> np.ndarray:
        """Forward and to the left, m/s, and the rate of turn, rad/s, (n, 3)."""
        return heading_velocity(self.copies.qpos, self.copies.qvel)

    @property
    def heading(self) -> np.ndarray:
        """Yaw of the trunks, rad, (n,)."""
        return attitude(self.copies.qpos[:, 3:7])[2]

    def tell(self, command: np.ndarray) -> None:
        """Gives all copies a velocity to walk at, (3,) or (n, 3), that holds until the next one.

        Raises:
            UserError: the environment draws commands itself, or they have another shape or are not finite.
        """
        if self.conditions.commands:
            raise UserError("the environment draws its commands; Conditions(commands=False) takes them from tell()")
        given = np.asarray(command, dtype=float)
        if given.shape not in ((3,), self.command.shape) or not np.isfinite(given).all():
            raise UserError(f"a command must be finite and of shape (3,) or {self.command.shape}, got {given.tolist()}")
        self.command[:] = given

    def push(self, velocity: np.ndarray) -> None:
        """Changes the velocity of the trunks in the world's plane by (n, 2), m/s."""
        self.copies.qvel[:, :2] += velocity

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes: a seed gives the initial state that `MujocoRobot` has for it; the robot has moved to the stance."""
        states = np.empty((len(copies), mujoco.mj_stateSize(self.copies.mj, _STATE)))
        for state, copy, seed in zip(states, copies, seeds, strict=True):
            draw, ground = self.generator(copy), int(self.uneven[copy])
            seed = int(draw.integers(2**31)) if seed is None else seed
            self._draw(copy, draw)
            reset(self._built[ground], self._scratch[ground], self._task, seed)
            mujoco.mj_getState(self._built[ground].mj, self._scratch[ground], state, _STATE)
        self._fit(copies)
        self.copies.restore(states, copies)
        posture = measured_positions(self._built[0], self.copies.qpos[copies])
        self._target[copies], self._late_targets[copies] = posture, posture[:, None]
        self._elapsed[copies], self._changed[copies], self._off[copies] = 0, 0.0, 0.0
        self.walker.begin(copies, posture)
        for _ in range(self.walker.settling):
            self._follow(self.walker.stand_up(copies), copies)
        self.walker.listen(self.command[copies], copies)

    def resume(self, copies: np.ndarray, states: np.ndarray) -> None:
        """Puts copies into simulation states, (k, nstate): they go on from what their joints were last told, without standing up."""
        super().resume(copies, states)
        told = self.copies.ctrl[copies][:, self._built[0].actuators]
        self._target[copies], self._late_targets[copies] = told, told[:, None]
        model, qpos, qvel = self._built[0], self.copies.qpos[copies], self.copies.qvel[copies]
        self.walker.go_on(copies, measured_positions(model, qpos), measured_velocities(model, qvel))
        self.walker.listen(self.command[copies], copies)

    def advance(self, actions: np.ndarray, copies: np.ndarray | None) -> None:
        """Walks on for one action's time; then pushes and commands come that are due, for the next action.

        The mean velocity of `judge` is taken before them. Its velocity of now, and what it is compared with, are from after them.
        """
        rows: Any = np.arange(self.num_envs) if copies is None else copies
        before = self.walker.action[rows]
        self._follow(self.walker.walk_on(actions[rows], rows), copies)
        self._changed[rows] = np.square(self.walker.action[rows] - before).sum(axis=1)
        self.copies.check()
        self._elapsed[rows] += 1
        off = self.velocity[rows] - self.walker.velocity[rows]
        self._off[rows] = self._memory * self._off[rows] + (1.0 - self._memory) * off
        for copy in rows[self._elapsed[rows] >= self._next_push[rows]] if self.conditions.push else []:
            draw = self.generator(copy)
            angle, size = draw.uniform(-np.pi, np.pi), draw.uniform(0.0, self.conditions.push)
            self.copies.qvel[copy, :2] += [size * np.cos(angle), size * np.sin(angle)]
            self._next_push[copy] += draw.integers(*_PUSH_STEPS)
        for copy in rows[self._elapsed[rows] >= self._next_command[rows]] if self.conditions.commands else []:
            self._draw_command(copy, self.generator(copy))
        self.walker.listen(self.command[rows], rows)

    def observe(self) -> np.ndarray:
        """Returns what the robots measure, were told and did last, (n, 47), see `Walker.observation`."""
        imu, sensors, model = self._built[0].imu, self.copies.sensordata, self._built[0]
        joints = measured_positions(model, self.copies.qpos), measured_velocities(model, self.copies.qvel)
        return self.walker.observation(sensors[:, imu["base_quat"]], sensors[:, imu["base_gyro"]], *joints)

    def instability(self) -> np.ndarray:
        """Returns ρ of the present states, (n,): the greater of tilt / 60° and (0.27 m - height above the ground) / 0.15 m, at least 0."""
        pose = self.copies.qpos
        _, x, y, _ = (pose[:, 3:7] / np.linalg.norm(pose[:, 3:7], axis=1, keepdims=True)).T
        tilt = np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0))
        yaw, height = attitude(pose[:, 3:7])[2], pose[:, 2].copy()
        height[self.uneven] -= ground_below(self._grounds[1], pose[self.uneven, :2], yaw[self.uneven])
        return np.maximum(np.maximum(tilt / FALLEN_TILT, (LOW - height) / LOW_RANGE), 0.0)

    def judge(self) -> Judged:
        """Rewards the commanded velocity, now and in the mean of a stride; less for tilt, torque and action. A fall terminates.

        Now is after the push and the change of the velocity to walk at that `advance` ends with, which the action had no part in.
        """
        rho, velocity, wanted = self.instability(), self.velocity, self.walker.velocity
        reward = 0.5 * _closeness(velocity - wanted, *_WIDTHS) + 0.5 * _closeness(self._off, *_MEAN_WIDTHS)
        reward -= 0.3 * rho * rho + 0.02 * np.square(self.walker.action).sum(axis=1) + 0.01 * self._changed
        reward -= 2e-5 * np.square(self.copies.actuator_force).sum(axis=1)
        edge = (np.abs(self.copies.qpos[:, :2]) > _HALF_WIDTH - _EDGE).any(axis=1) & self.uneven
        late = (self._elapsed >= self._episode_steps) | edge
        return _SCALE * reward, rho >= 1.0, late, {"rho": rho, "velocity": velocity, "command": wanted.copy()}

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything that the future depends on."""
        walker = {f"walker_{name}": value for name, value in self.walker.state().items()}
        return super().state() | walker

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned."""
        self.walker.restore({name.removeprefix("walker_"): value for name, value in state.items() if name.startswith("walker_")})
        self._physics[:] = state["_physics"]
        self._fit(np.arange(self.num_envs))
        super().restore(state)

    def _follow(self, rows: np.ndarray, copies: np.ndarray | None) -> None:
        """Drives joints along targets (k, periods, joints), as late as the copy's commands are, within the guard's limits."""
        where: Any = np.arange(self.num_envs) if copies is None else copies
        for period in range(rows.shape[1]):
            self._late_targets[where] = np.concatenate([rows[:, period, None], self._late_targets[where, :-1]], axis=1)
            position = measured_positions(self._built[0], self.copies.qpos[where])
            velocity = measured_velocities(self._built[0], self.copies.qvel[where])
            wanted = self._late_targets[where, self._delay[where]]
            target = self._limits.apply(wanted, self._target[where], position, velocity)
            self._target[where] = target
            self.copies.command(target, copies)
            last = period == rows.shape[1] - 1
            self.copies.advance(self._built[0].substeps, copies, mjtStage.mjSTAGE_VEL if last else mjtStage.mjSTAGE_NONE)

    def _draw(self, copy: int, draw: np.random.Generator) -> None:
        """Draws what an episode is like."""
        conditions = self.conditions
        self._physics[copy] = draw.uniform(*conditions.friction), draw.uniform(*conditions.load)
        self._delay[copy] = draw.integers(conditions.delay + 1)
        self._next_push[copy] = draw.integers(*_PUSH_STEPS)
        self._next_command[copy] = 0
        if conditions.commands:
            self._draw_command(copy, draw)

    def _draw_command(self, copy: int, draw: np.random.Generator) -> None:
        """Draws a velocity: one in ten stands, and each part of the others is zero three times in ten."""
        command = draw.uniform(*self.walker.walk.velocity_limit) * (draw.random(3) < 0.7)
        self.command[copy] = command * (draw.random() < 0.9)
        self._next_command[copy] += draw.integers(*_COMMAND_STEPS)

    def _fit(self, copies: np.ndarray) -> None:
        """Gives the copies' models the friction and load that were drawn."""
        for copy in copies:
            ground, model = int(self.uneven[copy]), self._models[copy]
            original, (friction, load) = self._built[ground].mj, self._physics[copy]
            model.geom_friction[:, 0] = friction  # MuJoCo takes the greater of the two that touch
            base, share = self._built[ground].base, 1.0 + load / original.body_mass[self._built[ground].base]
            model.body_mass[base] = share * original.body_mass[base]
            model.body_inertia[base] = share * original.body_inertia[base]
            mujoco.mj_setConst(model, self._scratch[ground])
        self.copies.set_models(self._models)


def _closeness(off: np.ndarray, speed_width: float, turn_width: float) -> np.ndarray:
    """Returns 1.5 for velocities, (n, 3), that are off by nothing, falling with the speed and with the rate of turn."""
    speed, turn = np.square(off[:, :2]).sum(axis=1), np.square(off[:, 2])
    closeness: np.ndarray = np.exp(-speed / speed_width**2) + 0.5 * np.exp(-turn / turn_width**2)
    return closeness
