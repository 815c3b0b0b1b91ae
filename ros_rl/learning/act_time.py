"""How long one act takes, from the state to the action, with each way to be safe; all in one run, in turn."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ros_rl.errors import UserError
from ros_rl.learning.replay import Streams
from ros_rl.learning.shields import BarrierShield, SimplexShield
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.learned import AutoSafePolicy, prior_tensors
from ros_rl.policies.networks import GaussianActor
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.safety.cbf import Barrier
from ros_rl.safety.prior import LmiPrior, load_prior
from ros_rl.safety.simplex import Simplex
from ros_rl.safety.stance import stance_prior
from ros_rl.sim.goals import quadruped

BATCHES = (1, 256)
_ROUNDS = 30
_LEVEL = ("base_rotation.x", "base_rotation.y", "base_position.z", "base_gyro.x", "base_gyro.y", "base_velocity.z")
_SECONDS = 0.005  # of each measurement in a round: short, so that what else the machine does meets all methods alike

Act = Callable[[np.ndarray], np.ndarray]  # states (k,) or (n, k) to actions (m,) or (n, m)


def policy_of(prior: LmiPrior, robot: RobotSpec, hidden: tuple[int, ...], sharpness: bool) -> AutoSafePolicy:
    """Returns a policy with random weights; how long it takes does not depend on them."""
    actor = GaussianActor(prior.state_size + 1, prior.action_size, hidden, Streams([0]).generators, sharpness)
    tensors = {f"actor.{name}": value.numpy() for name, value in actor.state_dict().items()}
    fields = {name.partition(".")[0] for name in prior.state_names} - {"base_rotation"}
    shapes = {"joint_position": len(robot.measured_names), "joint_velocity": len(robot.measured_names), "base_quat": 4}
    keys = sorted(fields | ({"base_quat"} if robot.floating_base else set()))
    spec = PolicySpec(
        robot.name,
        robot.joint_names,
        tuple(ObservationKey(key, (shapes.get(key, 3),)) for key in keys),
        1.0 / prior.period,
        command_mode=robot.command_mode,
    )
    settings: dict[str, Any] = {"prior": prior.description(), "target": [0.1], "reach": 0.5}
    if sharpness:
        settings["sharpness"] = [0.0, prior.sharpness_bound]
    tensors |= {"scale": np.ones(prior.state_size), **prior_tensors(prior)}
    return AutoSafePolicy(Bundle("bench", "autosafe", "none", spec, settings, tensors), robot)


def methods(prior: LmiPrior, robot: RobotSpec, hidden: tuple[int, ...], batch: int) -> dict[str, Act]:
    """Returns each method as a function of the state, or of `batch` states."""
    sac, autosafe = (policy_of(prior, robot, hidden, sharpness) for sharpness in (False, True))
    barrier, simplex = Barrier(prior), Simplex(prior)
    if batch == 1:
        return {
            "sac": sac.action,
            "autosafe": autosafe.action,
            "simplex": lambda state: simplex.act(state, sac.action(state))[0],
            "cbf_qp": lambda state: barrier.act(state, sac.action(state))[0],
        }
    switch, exact = SimplexShield(prior, batch), BarrierShield(prior)
    return {
        "sac": sac.actions,
        "autosafe": autosafe.actions,
        "simplex": lambda states: switch(sac.actions(states), states, prior.safe_action(states)),
        "cbf_qp": lambda states: np.array(
            [barrier.act(state, action)[0] for state, action in zip(states, sac.actions(states), strict=True)]
        ),
        "cbf_exact": lambda states: exact(sac.actions(states), states, prior.safe_action(states)),
    }


def measure(robot_name: str, hidden: int) -> dict[str, Any]:
    """Measures all methods on one thread.

    Args:
        robot_name: a robot with a safe prior beside it, or the quadruped.
        hidden: width of the two hidden layers.

    Returns:
        for each batch size and method: the median CPU time of an act in µs, and the median ratio to that of SAC in the same round.

    Raises:
        UserError: there is no such robot or prior, or the width is none.
    """
    if hidden < 1:
        raise UserError(f"--hidden must be at least 1, got {hidden}")
    robot, prior = _subject(robot_name)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {batch: _times(methods(prior, robot, (hidden, hidden), batch), _states(prior, batch)) for batch in BATCHES}
    finally:
        torch.set_num_threads(threads)
    rows = {
        str(batch): {
            name: {"us": round(1e6 * float(np.median(t)), 2), "ratio": round(float(np.median(t / times["sac"])), 3)}
            for name, t in times.items()
        }
        for batch, times in found.items()
    }
    return {"robot": robot_name, "hidden": [hidden, hidden], "batches": rows}


def _subject(robot_name: str) -> tuple[RobotSpec, LmiPrior]:
    """Returns a robot and its safe prior.

    Of the quadruped it is the stance, standing level, as if it had odometry: then its state is made of what the robot measures. The
    stance's sharpness bound takes minutes to find and no time to use, so it is left at 1.
    """
    if robot_name == quadruped.ROBOT:
        prior = stance_prior()
        height = prior.state_equilibrium * [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
        prior = replace(prior, state_names=_LEVEL, state_equilibrium=height, sharpness_bound=1.0)
        return replace(load_robot(robot_name, quadruped.RATE), odometry=True), prior
    prior = load_prior(robot_name)
    return load_robot(robot_name, 1.0 / prior.period), prior


def _states(prior: LmiPrior, batch: int) -> np.ndarray:
    """Returns states inside the ellipsoid, near the boundary, where the filters have work to do: (k,), or (batch, k)."""
    states = np.random.default_rng(0).normal(size=(batch, prior.state_size))
    states *= 0.95 / prior.radius(states)[:, None]
    return states[0] if batch == 1 else states


def _times(acts: dict[str, Act], states: np.ndarray) -> dict[str, np.ndarray]:
    """Returns each method's mean time of an act in every round, s: CPU time, in which waiting for other processes does not count."""
    counts, times = {}, {name: np.empty(_ROUNDS) for name in acts}
    for name, act in acts.items():
        act(states)  # warms up
        start = time.perf_counter()
        act(states)
        counts[name] = max(1, round(_SECONDS / (time.perf_counter() - start)))
    for round_ in range(_ROUNDS):
        for name, act in acts.items():
            start = time.thread_time()
            for _ in range(counts[name]):
                act(states)
            times[name][round_] = (time.thread_time() - start) / counts[name]
    return times
