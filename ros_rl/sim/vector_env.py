"""Gymnasium environments on many copies of one simulation: seeds, episode ends, autoreset and rendering, once for all of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.pacing import Pacer
from ros_rl.sim.batch import ModelBatch
from ros_rl.sim.camera import CameraRenderer, Scenery
from ros_rl.sim.viewer import Viewer, check_display

Info = dict[str, Any]
Judged = tuple[np.ndarray, np.ndarray, np.ndarray, Info]


class BatchVectorEnv(gymnasium.vector.VectorEnv[Any, np.ndarray, np.ndarray]):
    """n environments that are stepped together.

    Copy i, seeded with s + i, goes bit for bit the way a single environment seeded with s + i goes. What is returned shares no
    memory with the simulation or with what was returned before.

    All three autoreset modes of Gymnasium are there. In NEXT_STEP the step after an episode's end starts the next one: its action
    is not used and its reward is 0. In SAME_STEP the observation is that of the next episode already, and ``final_obs`` and
    ``final_info`` in the infos are the last of the old one. In DISABLED nothing is reset until `reset` is called with
    ``options={"reset_mask": ...}``, an array of bools that the other modes take too.

    A subclass says how episodes start (`begin`), how copies move (`advance`), what is seen (`observe`) and what it is worth (`judge`).
    """

    _renderer: CameraRenderer[Scenery] | None = None

    def __init__(
        self,
        sim: ModelBatch,
        scenery: Scenery,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.spaces.Box,
        rate: float,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        render_camera: str | None = None,
    ):
        """Prepares environments that have not begun an episode yet.

        Args:
            sim: the copies.
            scenery: their model and its cameras.
            observation_space: of one copy.
            action_space: of one copy.
            rate: environment steps per second of simulated time.
            autoreset_mode: what happens after an episode's end, as Gymnasium's enum or its value.
            render_mode: "rgb_array" or None.
            render_camera: which camera `render` uses; None takes one that follows the robot, else the first.

        Raises:
            UserError: there is no such mode or camera.
        """
        modes = [mode.value for mode in AutoresetMode]
        if getattr(autoreset_mode, "value", autoreset_mode) not in modes:
            raise unknown("autoreset mode", str(autoreset_mode), modes)
        if render_mode not in (None, "rgb_array"):
            raise unknown("render mode", str(render_mode), ["rgb_array"])
        self.sim = sim
        self.rate = rate
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": _fps(rate), "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.render_camera = _camera(scenery, render_camera)
        self.num_envs = len(sim)
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space, self.action_space = batch_space(observation_space, len(sim)), batch_space(action_space, len(sim))
        self.generators: list[np.random.Generator | None] = [None] * len(sim)
        self._ended = np.zeros(len(sim), dtype=bool)
        self._begun = np.zeros(len(sim), dtype=bool)
        self._renderer = CameraRenderer(scenery)
        self._posed = mujoco.MjData(sim.mj)

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts new episodes in some copies; where a seed is None, `generator` says what is drawn."""
        raise NotImplementedError

    def advance(self, actions: np.ndarray, copies: np.ndarray | None) -> None:
        """Moves some copies (None: all) by one environment step; `actions` are those of all copies, shape (n, k), finite."""
        raise NotImplementedError

    def observe(self) -> Any:
        """Returns what is seen in all copies, in new arrays."""
        raise NotImplementedError

    def judge(self) -> Judged:
        """Returns reward, terminated, truncated, each (n,), and infos for all copies, after `observe`, in new arrays.

        Judging the same state again changes nothing. An info whose array does not speak of every copy has a mask of its own, its
        name with an underscore before.
        """
        raise NotImplementedError

    def generator(self, copy: int) -> np.random.Generator:
        """Returns the source of randomness of one copy."""
        known = self.generators[copy]
        if known is None:
            known = self.generators[copy] = seeding.np_random()[0]
        return known

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Starts new episodes, in all copies or in those of ``options["reset_mask"]``, shape (n,).

        Args:
            seed: of the first copy, the others take those that follow; or one for each; None goes on with the randomness at hand.
            options: nothing but "reset_mask".

        Raises:
            UserError: a seed is no whole number from 0 on; seeds or mask do not fit the number of copies.
        """
        copies = np.flatnonzero(self._mask(options))
        self._begin(copies, [self._seeds(seed)[copy] for copy in copies])
        self._begun[copies] = True
        observation = self.observe()
        info = _started(self.judge()[3])
        return observation, _masked(info, np.isin(np.arange(self.num_envs), copies))

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Info]:
        """Takes an action in every copy, shape (n, k).

        Raises:
            UserError: the actions have another shape or are not finite; an episode has not begun, or has ended and autoreset is off.
            RobotFault: the simulation of a copy diverged.
        """
        actions = self._checked(actions)
        restarted = self._ended.copy()
        moving = None
        if restarted.any():
            if self.autoreset_mode is AutoresetMode.DISABLED:
                raise UserError(f"the episode of copy {np.flatnonzero(restarted)[0]} has ended; reset() starts the next one")
            moving = np.flatnonzero(~restarted)
        if moving is None or moving.size:
            self.advance(actions, moving)
        if moving is not None:
            self._begin(np.flatnonzero(restarted))
        observation = self.observe()
        reward, terminated, truncated, info = self.judge()
        if moving is not None:
            reward[restarted], terminated[restarted], truncated[restarted] = 0.0, False, False
        self._ended = terminated | truncated
        info = _masked(_ended(info, ~restarted), np.ones(self.num_envs, dtype=bool))
        if self._ended.any() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            observation, info = self._restart_at_once(observation, info)
        return observation, reward, terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Returns a picture of each copy, (height, width, 3) uint8, or None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self.picture(copy, self.render_camera) for copy in range(self.num_envs))

    def picture(self, copy: int, camera: str) -> np.ndarray:
        """Returns what a camera of one copy sees, (height, width, 3) uint8.

        Raises:
            UserError: there is no such camera, or no way to render on this machine.
        """
        self.sim.copy_into(self._posed, copy)
        assert self._renderer is not None
        return self._renderer.render(self._posed, camera)

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the renderer, if the environment ever came to have one."""
        if self._renderer is not None:
            self._renderer.close()

    def _begin(self, copies: np.ndarray, seeds: Sequence[int | None] | None = None) -> None:
        seeds = [None] * len(copies) if seeds is None else seeds
        for copy, seed in zip(copies, seeds, strict=True):
            if seed is not None:
                self.generators[copy] = seeding.np_random(seed)[0]
        self.begin(copies, list(seeds))
        self._ended[copies] = False

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, str) or not isinstance(seed, Sequence | np.ndarray):
            first = _seed(seed)
            return [first + copy for copy in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise UserError(f"{len(seed)} seeds for {self.num_envs} environments; one for each is needed, or a single number")
        return [None if entry is None else _seed(entry) for entry in seed]

    def _mask(self, options: dict[str, Any] | None) -> np.ndarray:
        unknown_options = set(options or {}) - {"reset_mask"}
        if unknown_options:
            raise unknown("reset option", unknown_options.pop(), ["reset_mask"])
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise UserError(f"reset_mask must be {self.num_envs} bools with at least one True, got {mask.dtype} of shape {mask.shape}")
        return mask

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions, dtype=np.float64)
        if actions.shape != self.action_space.shape:
            raise UserError(f"actions must have the shape {self.action_space.shape}, got {actions.shape}")
        if not np.isfinite(actions).all():
            raise UserError(f"the action of copy {np.flatnonzero(~np.isfinite(actions).all(axis=1))[0]} is not finite")
        if not self._begun.all():
            raise UserError("reset() must be called before step()")
        return actions

    def _restart_at_once(self, observation: Any, info: Info) -> tuple[Any, Info]:
        """Begins the next episode where one has just ended; what was seen last goes into the infos."""
        ended = self._ended.copy()
        final = np.full(self.num_envs, None, dtype=object)
        for copy in np.flatnonzero(ended):
            final[copy] = _row(observation, int(copy))
        final_info = {name: value & ended if name.startswith("_") else value for name, value in info.items()}
        self._begin(np.flatnonzero(ended))
        following = self.observe()
        info = _masked(_started(self.judge()[3]), np.ones(self.num_envs, dtype=bool))
        info |= {"final_obs": final, "_final_obs": ended.copy(), "final_info": final_info, "_final_info": ended.copy()}
        return following, info


class KeptVectorEnv(BatchVectorEnv):
    """Environments that can be stopped and go on: a subclass names in `_kept` what they depend on beside the simulation."""

    _kept: tuple[str, ...] = ("_elapsed", "_ended", "_begun")

    def __init__(self, *args: Any, **kwargs: Any):
        """Takes the arguments of `BatchVectorEnv`."""
        super().__init__(*args, **kwargs)
        self._elapsed = np.zeros(self.num_envs, dtype=int)

    def resume(self, copies: np.ndarray, states: np.ndarray) -> None:
        """Puts copies whose episodes have just begun into simulation states, (k, nstate)."""
        self.sim.restore(states, copies)

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything that the future depends on; what was last observed belongs to it."""
        kept = {name: np.array(getattr(self, name)) for name in self._kept}
        generators = [self.generator(copy).bit_generator.state for copy in range(self.num_envs)]
        return {"sim": self.sim.snapshot(), "generators": np.frombuffer(json.dumps(generators).encode(), np.uint8), **kept}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned, in an environment of the same kind and size.

        Raises:
            UserError: it is of another one.
        """
        sim = self.sim.snapshot()
        if sim.shape != state["sim"].shape:
            raise UserError(f"the state is of simulations of shape {state['sim'].shape}, these have {sim.shape}")
        self.sim.restore(state["sim"])
        for name in self._kept:
            getattr(self, name)[...] = state[name]
        for copy, known in enumerate(json.loads(state["generators"].tobytes())):
            self.generator(copy).bit_generator.state = known


class BatchOfOneEnv(gymnasium.Env[Any, np.ndarray]):
    """A single environment: a batch of one. After an episode's end it must be reset."""

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, vector: BatchVectorEnv, render_mode: str | None = None):
        """Takes a vector environment of one copy, without autoreset.

        Args:
            vector: the copy.
            render_mode: "rgb_array", "human" (a window, in real time), or None.

        Raises:
            UserError: there is no such mode, or no display to open a window on.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown("render mode", str(render_mode), self.metadata["render_modes"])
        self.vector = vector
        self.render_mode = render_mode
        self.metadata = {**type(self).metadata, "render_fps": _fps(vector.rate)}
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self._viewer: Viewer | None = None
        if render_mode == "human":
            check_display("render_mode 'human'", "'rgb_array' gives pictures without one")
            self._shown = vector.sim.snapshot([0])[0]
            self._viewer = Viewer(vector.sim.mj, lambda: self._shown)
        self._pacer: Pacer | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Starts a new episode; a seed gives the initial state that `MujocoRobot` has for it."""
        super().reset(seed=None if seed is None else _seed(seed))
        self.vector.generators[0] = self.np_random
        observation, info = self.vector.reset(seed=[seed], options=options)
        self._np_random = self.vector.generators[0]
        self._show()
        return _row(observation, 0), _of_one(info)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, Info]:
        """Takes an action, shape (k,); raises as `BatchVectorEnv.step` does."""
        action = np.asarray(action)
        if action.shape != self.action_space.shape:
            raise UserError(f"the action must have the shape {self.action_space.shape}, got {action.shape}")
        observation, reward, terminated, truncated, info = self.vector.step(action[None])
        self._show()
        return _row(observation, 0), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _of_one(info)

    def render(self) -> Any:
        """Returns a picture, (height, width, 3) uint8, in the mode "rgb_array"; in the mode "human" steps show themselves."""
        return self.vector.picture(0, self.vector.render_camera) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Closes window and renderer."""
        if self._viewer is not None:
            self._viewer.close()
        self.vector.close()

    def _show(self) -> None:
        if self._viewer is None:
            return
        self._pacer = self._pacer or Pacer(1.0 / self.vector.rate)
        self._shown = self.vector.sim.snapshot([0])[0]
        self._pacer.wait()


def _seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"a seed is a whole number from 0 on, got {seed!r}")
    return int(seed)


def _camera(scenery: Scenery, name: str | None) -> str:
    if name is None:
        return "follow" if "follow" in scenery.cameras else next(iter(scenery.cameras))
    if name not in scenery.cameras:
        raise unknown("camera", name, scenery.cameras)
    return name


def _fps(rate: float) -> int:
    return max(1, round(rate))


def _row(observation: Any, copy: int) -> Any:
    """Returns the observation of one copy, in an array of its own."""
    if isinstance(observation, dict):
        return {name: value[copy].copy() for name, value in observation.items()}
    return observation[copy].copy()


def _masked(info: Info, speaks: np.ndarray) -> Info:
    """Adds to every info for which copies it speaks."""
    return {f"_{name}": speaks.copy() for name in info if not name.startswith("_")} | info


def _started(info: Info) -> Info:
    """Returns the infos that make sense of an initial state: all but those that came with an end."""
    return {name: value for name, value in info.items() if not name.startswith("_") and f"_{name}" not in info}


def _ended(info: Info, running: np.ndarray) -> Info:
    """Returns the infos without the ends of episodes that are not running; an end that is nobody's is left out."""
    ends = {name: value & running for name, value in info.items() if name.startswith("_")}
    ends = {name: mask for name, mask in ends.items() if mask.any()}
    return _started(info) | {name.removeprefix("_"): info[name.removeprefix("_")] for name in ends} | ends


def _of_one(info: Info) -> Info:
    """Returns the infos of a single environment as Gymnasium has them: plain values, only those that speak."""
    plain = {name: value[0] for name, value in info.items() if not name.startswith("_") and info[f"_{name}"][0]}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in plain.items()}
