"""Compares the weight that trained AutoSafe policies give the safe action with the least that would do.

See `ros_rl.safety.minimal_weight`.
"""

from pathlib import Path

import numpy as np
import torch

from ros_rl.errors import UserError
from ros_rl.learning.goal_tasks import GoalTask
from ros_rl.learning.ladder import Experiment, prior_of, read_networks, read_result
from ros_rl.learning.training import EVALUATION, inputs_of, look
from ros_rl.safety.minimal_weight import minimal_weight_of

SAMPLES = (4, 16)  # of a policy's action, for one estimate
_ESTIMATES = 8  # at a state, which tell how noisy one is
_EPISODES = 5


def compare(task: GoalTask, method: str, folder: Path, samples: int, episodes: int = _EPISODES) -> dict[str, dict[str, float | None]]:
    """Runs the trained policies without noise, and at every state asks what they would do with it.

    Returns:
        for each level of conflict, means over its runs, episodes and steps: `weight` λ, `minimal` λ* from `samples` actions,
        `needed` (the part of the steps in which an estimate is above 0), `noise` (standard deviation of λ* over repeated
        estimates at one state) and `noise_where_needed` (the same where the mean estimate is above 0, over the runs in which it ever
        is; None if in none).

    Raises:
        UserError: the method is not trained in the folder, beside another prior, or does not mix.
    """
    place = folder / task.name / method
    done, networks = place.with_suffix(".json"), place.with_suffix(".safetensors")
    if not (done.is_file() and networks.is_file()):
        raise UserError(f"{networks} is not there; train it with 'python -m ros_rl.learning.ladder --task {task.name} --method {method}'")
    result, prior = read_result(done), prior_of(task, folder)
    if result["prior"] != prior.digest():
        raise UserError(f"{done}: trained with the safe prior {result['prior']}, that of the folder is {prior.digest()}")
    seeds = list(dict.fromkeys(result["seeds"]))
    experiment = Experiment(task, method, len(seeds), result["steps"], prior)
    if experiment.agent.sharpness is None:
        raise UserError(f"{method} mixes no safe action, its weight cannot be compared")
    experiment.agent.load_networks(read_networks(networks))
    rows = _measure(experiment, episodes, samples)
    levels = np.array(experiment.levels)[np.arange(len(experiment.seeds)) % len(experiment.levels)]
    return {level: {name: _mean(values[levels == level]) for name, values in rows.items()} for level in experiment.levels}


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _measure(experiment: Experiment, episodes: int, samples: int) -> dict[str, np.ndarray]:
    """Returns name to figure of each run, shape (runs,)."""
    agent, prior, runs = experiment.agent, experiment.prior, len(experiment.seeds)
    copies = runs * episodes
    environment = experiment.task.environments["nominal"](np.repeat(experiment.goals, episodes), prior)
    environment.reset(np.arange(copies), [[experiment.seeds[copy // episodes], EVALUATION, copy % episodes] for copy in range(copies)])
    draw, running = torch.Generator().manual_seed(0), np.ones(copies, bool)
    sums = {name: np.zeros(copies) for name in ("steps", "weight", "minimal", "needed", "noise", "needy", "needy_noise")}
    for _ in range(environment.episode_steps):
        seen = look(environment, prior)
        inputs = inputs_of(seen, runs)
        with torch.no_grad():
            acted = agent.act(*inputs, None)
            estimates = _estimates(experiment, inputs, seen.state, samples, draw)
        assert acted.weight is not None
        needed = estimates.mean(axis=0) > 0
        figures = {"steps": 1.0, "weight": acted.weight.reshape(-1).numpy(), "minimal": estimates.mean(axis=0)}
        figures |= {"needed": (estimates > 0).mean(axis=0), "noise": estimates.std(axis=0, ddof=1), "needy": needed}
        figures["needy_noise"] = needed * figures["noise"]
        for name, value in figures.items():
            sums[name] += running * value
        outcome = environment.step(acted.action.reshape(copies, -1).numpy().astype(float))
        running &= ~(outcome.terminated | outcome.truncated)
        if not running.any():
            break
        if (over := np.flatnonzero(outcome.terminated)).size:  # what is over must not go on to diverge
            environment.reset(over, [[experiment.seeds[copy // episodes], EVALUATION, int(copy % episodes)] for copy in over])
    totals = {name: values.reshape(runs, episodes).sum(axis=1) for name, values in sums.items()}
    found = {name: totals[name] / totals["steps"] for name in ("weight", "minimal", "needed", "noise")}
    never = totals["needy"] == 0.0
    return found | {"noise_where_needed": np.where(never, np.nan, totals["needy_noise"] / np.where(never, 1.0, totals["needy"]))}


def _estimates(
    experiment: Experiment, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor], states: np.ndarray, samples: int, draw: torch.Generator
) -> np.ndarray:
    """Returns estimates of λ* for each copy, (_ESTIMATES, copies), each from `samples` actions of its policy."""
    observation, margin, safe_action = (part.repeat_interleave(_ESTIMATES * samples, dim=1) for part in inputs)
    # At a margin of 1 nothing is mixed in: this is what the policy itself would do.
    acted = experiment.agent.act(observation, torch.ones_like(margin), safe_action, torch.randn(safe_action.shape, generator=draw))
    actions = acted.action.reshape(len(states) * _ESTIMATES, samples, -1).numpy().astype(float)
    return minimal_weight_of(experiment.prior, states.repeat(_ESTIMATES, axis=0), actions).reshape(len(states), _ESTIMATES).T
