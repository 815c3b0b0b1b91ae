"""Measures how fast environments step, beside what Gymnasium, EnvPool and MuJoCo alone make of the same work."""

import importlib.util
import os
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import gymnasium
import mujoco
import numpy as np
from mujoco.rollout import Rollout

import ros_rl.sim.gym  # noqa: F401 - registers the environments
from ros_rl.sim.locomotion_env import FRAME_SKIP
from ros_rl.sim.task_env import TaskVectorEnv
from ros_rl.sim.vector_env import BatchVectorEnv

_FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION

Timed = Callable[[], float]  # does the work once and returns the seconds that it took


@dataclass(frozen=True)
class Subject:
    """What is stepped.

    Attributes:
        ours: name of our environment.
        single: name of the environment that Gymnasium makes vector environments of.
        envpool: its name in EnvPool, None where it has none.
        scale: actions are uniform between plus and minus this: tasks that a wild action would end are driven gently.
    """

    ours: str
    single: str
    envpool: str | None
    scale: float


SUBJECTS = {
    "arm": Subject("ros_rl/PutRedBlockInBowl-v0", "ros_rl/PutRedBlockInBowl-v0", None, 0.1),
    "quadruped": Subject("ros_rl/QuadrupedStand-v0", "ros_rl/QuadrupedStand-v0", None, 0.1),
    "half_cheetah": Subject("ros_rl/HalfCheetah-v0", "HalfCheetah-v5", "HalfCheetah-v5", 1.0),
    "ant": Subject("ros_rl/Ant-v0", "Ant-v5", "Ant-v5", 1.0),
}


def measure(subjects: list[str], envs: int, steps: int, repetitions: int, progress: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Measures subjects of `SUBJECTS`, one after the other.

    All contestants take the same actions from the same kind of initial state. They take turns, repetition by repetition, and
    ratios are medians over those of each turn: what else the machine does at a time hits all of them.

    Args:
        subjects: names.
        envs: number of environments that are stepped together.
        steps: of each environment in a repetition.
        repetitions: how often; the first one more is left out.
        progress: called after every turn.

    Returns:
        JSON-ready figures.
    """
    rows = {name: _subject(SUBJECTS[name], envs, steps, repetitions, progress) for name in subjects}
    packages = ["mujoco", "gymnasium", "numpy"] + ["envpool"] * _has_envpool()
    machine = {"cpus": _cpus(), "python": platform.python_version(), **{name: version(name) for name in packages}}
    return {"envs": envs, "steps": steps, "repetitions": repetitions, "machine": machine, "subjects": rows}


def _subject(subject: Subject, envs: int, steps: int, repetitions: int, progress: Callable[[], object]) -> dict[str, Any]:
    with ExitStack() as stack:
        ours = gymnasium.make_vec(subject.ours, num_envs=envs, vectorization_mode="vector_entry_point")
        stack.callback(ours.close)
        space = ours.action_space
        assert isinstance(ours, BatchVectorEnv) and space.shape is not None
        actions = np.random.default_rng(0).uniform(-subject.scale, subject.scale, (steps, *space.shape)).astype(np.float32)
        contestants = {"ours": _stepping(ours, actions)}
        for mode in ("sync", "async"):
            env = gymnasium.make_vec(subject.single, num_envs=envs, vectorization_mode=mode)
            stack.callback(env.close)
            contestants[f"gymnasium_{mode}"] = _stepping(env, actions)
        if subject.envpool is not None and _has_envpool():
            pool = _envpool(subject.envpool, envs)
            stack.callback(pool.close)
            contestants["envpool"] = _stepping(pool, actions, seed=None)  # its seeds are those it was made with
        workers = stack.enter_context(Rollout(nthread=_cpus()))
        contestants["rollout"] = _rollout(workers, ours.sim.mj, _replay(subject, ours, actions))
        turns = []
        for _ in range(repetitions + 1):
            turns.append({name: contestant() for name, contestant in contestants.items()})
            progress()
    return _figures(turns[1:], envs * steps)


def _figures(turns: list[dict[str, float]], total: int) -> dict[str, Any]:
    """Returns environment steps per second and the ratios of speeds, as medians over the turns."""
    rates = {name: round(total / float(np.median([turn[name] for turn in turns]))) for name in turns[0]}
    faster = "gymnasium_sync" if rates["gymnasium_sync"] >= rates["gymnasium_async"] else "gymnasium_async"
    rivals = {"gymnasium": faster, "rollout": "rollout"} | ({"envpool": "envpool"} if "envpool" in rates else {})
    ratios = {name: [turn[rival] / turn["ours"] for turn in turns] for name, rival in rivals.items()}
    spread = {name: [round(float(np.percentile(values, percent)), 3) for percent in (25, 50, 75)] for name, values in ratios.items()}
    return {
        "steps_per_second": rates,
        "faster_gymnasium": faster.removeprefix("gymnasium_"),
        "ratio": {name: quartiles[1] for name, quartiles in spread.items()},
        "ratio_quartiles": spread,
    }


def _stepping(env: Any, actions: np.ndarray, seed: int | None = 0) -> Timed:
    """Times steps from fresh initial states; making those is not timed."""

    def run() -> float:
        _ = env.reset() if seed is None else env.reset(seed=seed)
        start = time.perf_counter()
        for row in actions:
            env.step(row)
        return time.perf_counter() - start

    return run


@dataclass(frozen=True, eq=False)
class _Replay:
    """What MuJoCo's rollout needs to go through the same physics steps.

    Attributes:
        initial: full physics states, shape (n, nstate).
        warmstart: accelerations that the solver starts from, shape (n, nv).
        controls: what the actuators are told in every physics step, shape (n, steps, nu).
    """

    initial: np.ndarray
    warmstart: np.ndarray
    controls: np.ndarray


def _replay(subject: Subject, env: BatchVectorEnv, actions: np.ndarray) -> _Replay:
    """Records what actions, shape (steps, n, k), come to: limits cut a command by where the joints are, in every control period.

    Where an episode ends, the rollout has no initial state to go on from: it stays with the same controls.
    """
    env.reset(seed=0)
    mj, envs = env.sim.mj, len(env.sim)
    initial, warmstart = np.empty((envs, mujoco.mj_stateSize(mj, _FULL))), np.empty((envs, mj.nv))
    data = mujoco.MjData(mj)
    for copy, state in enumerate(env.sim.snapshot()):
        mujoco.mj_setState(mj, data, state, _STATE)
        mujoco.mj_getState(mj, data, initial[copy], _FULL)
        warmstart[copy] = data.qacc_warmstart
    if not isinstance(env, TaskVectorEnv):
        return _Replay(initial, warmstart, _recorded(env, actions, FRAME_SKIP))
    # One step of this one is one control period, so that what is sent in each can be seen.
    periods = gymnasium.make_vec(subject.ours, num_envs=envs, vectorization_mode="vector_entry_point", action_rate=env.robot.control_rate)
    assert isinstance(periods, TaskVectorEnv)
    try:
        return _Replay(initial, warmstart, _recorded(periods, np.repeat(actions, env.periods, axis=0), env.model.substeps))
    finally:
        periods.close()


def _recorded(env: BatchVectorEnv, actions: np.ndarray, substeps: int) -> np.ndarray:
    """Returns the controls of an environment that holds them for all physics steps of its step, shape (n, steps · substeps, nu)."""
    env.reset(seed=0)
    controls = np.empty((len(env.sim), len(actions), env.sim.mj.nu))
    for step, row in enumerate(actions):
        env.step(row)
        controls[:, step] = env.sim.ctrl
    return np.repeat(controls, substeps, axis=1)


def _rollout(pool: Rollout, mj: mujoco.MjModel, replay: _Replay) -> Timed:
    """Times MuJoCo's own threaded rollout of the same model with the same physics steps, in one call that returns all states."""
    workers = [mujoco.MjData(mj) for _ in range(_cpus())]
    states = np.empty((*replay.controls.shape[:2], replay.initial.shape[1]))

    def run() -> float:
        start = time.perf_counter()
        pool.rollout(mj, workers, replay.initial, replay.controls, initial_warmstart=replay.warmstart, state=states)
        return time.perf_counter() - start

    return run


def _has_envpool() -> bool:
    return importlib.util.find_spec("envpool") is not None


def _envpool(name: str, envs: int) -> Any:
    import envpool

    return envpool.make_gymnasium(name, num_envs=envs, num_threads=_cpus(), seed=0)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
