"""Looks for a way back from the states that a recovery policy does not rescue: how many could be rescued at all?

python -m ros_rl.learning.recovery_search --env halfcheetah

Cross-entropy search over open-loop actions, which knows the simulation. What it finds is a lower estimate of what is possible.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from ros_rl.errors import UserError
from ros_rl.learning.command import run_command
from ros_rl.learning.fall_ladder import RECOVERY, recovery_of
from ros_rl.learning.recovery import EPISODE, rescued, snapshots
from ros_rl.sim.fall_env import FallEnv, make_fall_env

_BEST = 0.15  # share of the sequences that the next ones are drawn from
_LEAST_SPREAD = 0.15


@dataclass
class SearchArgs:
    """Where to look."""

    env: str = "halfcheetah"
    """halfcheetah, ant or quadruped."""
    recovery: Literal["strong", "weak"] = "strong"
    """Which recovery policy."""
    rounds: int = 8
    """Rounds of the search."""
    sequences: int = 40
    """Sequences of actions tried from each state in a round."""
    folder: Path = Path("out/safeexplorer")
    """Where the recovery policies are, or go."""


def search(make: Callable[[int], FallEnv], states: np.ndarray, region: float, rounds: int, sequences: int, seed: int) -> np.ndarray:
    """Returns from which states, (k, nstate), some sequence of actions comes back, (k,)."""
    draw, count = np.random.default_rng(seed), len(states)
    actions = (make(1).action_space.shape or (1, 0))[1]
    mean, spread = np.zeros((count, 1, EPISODE, actions)), np.ones((count, 1, EPISODE, actions))
    found = np.zeros(count, bool)
    for _ in range(rounds):
        plans = np.clip(mean + spread * draw.standard_normal((count, sequences, EPISODE, actions)), -1.0, 1.0)
        steps = iter(plans.reshape(-1, EPISODE, actions).swapaxes(0, 1))
        back, distress = rescued(make, lambda seen, steps=steps: next(steps), np.repeat(states, sequences, axis=0), region)  # type: ignore[misc]
        found |= back.reshape(count, sequences).any(axis=1)
        best = np.argsort(distress.reshape(count, sequences), axis=1)[:, : max(1, round(_BEST * sequences))]
        chosen = np.take_along_axis(plans, best[:, :, None, None], axis=1)
        mean, spread = chosen.mean(axis=1, keepdims=True), chosen.std(axis=1, keepdims=True) + _LEAST_SPREAD
    return found


def look(args: SearchArgs) -> dict[str, Any]:
    """Returns how many of the held-out states the recovery policy rescues, and how many more the search does.

    Raises:
        UserError: a name or number is wrong.
    """
    if args.rounds < 1 or args.sequences < 1:
        raise UserError(f"--rounds and --sequences must be at least 1, got {args.rounds} and {args.sequences}")
    make = lambda copies: make_fall_env(args.env, copies)  # noqa: E731
    make(1).close()
    guard = recovery_of(args.env, args.recovery, args.folder)
    _, held_out, _ = snapshots(make, RECOVERY, 0)
    back, _ = rescued(make, guard.policy, held_out, RECOVERY.region)
    found = search(make, held_out[~back], RECOVERY.region, args.rounds, args.sequences, 0)
    return {"states": len(held_out), "rescued": int(back.sum()), "found": int(found.sum())}


def main(words: list[str]) -> int:
    """Searches, prints JSON; returns the exit code."""
    args = tyro.cli(SearchArgs, args=words, prog="python -m ros_rl.learning.recovery_search")
    return run_command(lambda: print(json.dumps(look(args))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
