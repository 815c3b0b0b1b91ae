"""Trains a policy that catches the quadruped when it is pushed over, and counts from how many states it does, beside its stance.

python -m ros_rl.learning.quadruped_recovery --steps 100000
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from ros_rl.errors import UserError
from ros_rl.learning.command import run_command
from ros_rl.learning.recovery import HELD_OUT, RecoveryArgs, rescue_rate, save_recovery, train_recovery
from ros_rl.learning.sac import SacArgs
from ros_rl.learning.training import save_json
from ros_rl.learning.walk import EPISODE_STEPS, Policy, still
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.quadruped_walk import correction_in, walk_in
from ros_rl.sim.walk_env import Conditions, WalkVectorEnv, walk

WALK = "quadruped_walk"  # the bundle that is pushed
REGION = 0.2  # d: from 0.35 on, hardly any state can be saved
PRICE = 0.005  # of actions, c_u
CORRECTION = 0.6  # rad that the action 1 moves a joint target by from the stance
CONDITIONS = Conditions(uneven=0.0, push=0.0, commands=False)
_COPIES = 64
_WORST, _CALM = 0.95, 0.1  # ρ of the worst states, and below which another one is looked for
_PUSHED, _SPEED, _SPIN = 0.02, (0.3, 1.5), 0.5  # share of the steps with a push, m/s, rad/s about each axis
_ODD, _ODD_STEPS = 0.005, 40  # share of the steps in which random actions begin, and how many


@dataclass
class Args:
    """What to train."""

    steps: int = 100_000
    """Environment steps."""
    snapshots: int = 2000
    """States to start from."""
    seed: int = 0
    """Of states and training."""
    folder: Path = Path("out/quadruped_recovery")
    """Where the policy and its rescue rate go."""


def make_env(copies: int) -> WalkVectorEnv:
    """Returns copies that stand, and whose joint targets an action moves by up to 0.6 rad."""
    return WalkVectorEnv(replace(walk(), correction=CORRECTION, settle=0.0), copies, CONDITIONS, 10_000)


def pushed_states(count: int, seed: int) -> np.ndarray:
    """Returns simulation states of walking robots that are pushed, or now and then act at random, (count, nstate).

    ρ is from 0.8 d to 0.95, more of them near 0.8 d; each fall or near fall gives at most one.
    """
    draw, bundle = np.random.default_rng(seed), load_bundle(WALK)
    policy, environment = correction_in(bundle), WalkVectorEnv(walk_in(bundle), _COPIES, replace(CONDITIONS, commands=True), EPISODE_STEPS)

    def levels(number: int) -> np.ndarray:
        return 0.8 * REGION + (_WORST - 0.8 * REGION) * draw.random(number) ** 2

    seen, _ = environment.reset(seed=[int(number) for number in draw.integers(2**31, size=_COPIES)])
    level, odd, found = levels(_COPIES), np.zeros(_COPIES, int), list[np.ndarray]()
    while len(found) < count:
        actions, odd = policy(seen), np.where(draw.random(_COPIES) < _ODD, _ODD_STEPS, odd - 1)
        actions[odd > 0] += draw.uniform(-1.5, 1.5, (int((odd > 0).sum()), actions.shape[1]))
        seen, _, terminated, truncated, info = environment.step(np.clip(actions, -1.0, 1.0))
        rho, pushed = info["rho"], np.flatnonzero(draw.random(_COPIES) < _PUSHED)
        caught = (rho >= level) & (rho <= _WORST)
        found.extend(environment.copies.snapshot(np.flatnonzero(caught)))
        level[caught] = np.inf
        angle, speed = draw.uniform(-np.pi, np.pi, len(pushed)), draw.uniform(*_SPEED, len(pushed))
        environment.copies.qvel[pushed, :2] += speed[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        environment.copies.qvel[pushed, 3:6] += _SPIN * draw.standard_normal((len(pushed), 3))
        over = terminated | truncated
        if over.any():
            seen, _ = environment.reset(options={"reset_mask": over})
            odd[over] = 0
        anew = over | (np.isinf(level) & (rho < _CALM))
        level[anew] = levels(int(anew.sum()))
    environment.close()
    return np.stack(found[:count])


def rates(policies: dict[str, Policy], states: np.ndarray) -> dict[str, float]:
    """Returns how often each policy brings robots back from states, (k, nstate), see `rescue_rate`."""
    return {name: round(rescue_rate(make_env, policy, states, REGION), 4) for name, policy in policies.items()}


def train(args: Args) -> dict[str, Any]:
    """Trains, writes recovery.safetensors and recovery.json to the folder, and returns what the latter holds.

    Raises:
        UserError: the numbers do not fit.
    """
    if args.steps < 1 or args.snapshots < 1 or args.seed < 0:
        raise UserError(
            f"--steps and --snapshots must be at least 1 and --seed not negative, got {args.steps}, {args.snapshots}, {args.seed}"
        )
    settings = RecoveryArgs(REGION, args.snapshots, args.steps, sac=SacArgs(learning_rate=1e-3, batch=128, hidden=(128, 64), warmup=1000))
    states = pushed_states(args.snapshots + HELD_OUT, args.seed)
    with tqdm(total=args.steps, unit="step", disable=None) as bar:
        trained = train_recovery(make_env, (PRICE,), settings, args.seed, bar.update, states)
    (policy,) = trained.policies
    save_recovery(args.folder / "recovery.safetensors", policy)
    found = {"rescue_rate": rates({"trained": policy, "stance": still}, trained.held_out), "states": HELD_OUT}
    result = {**found, "steps": args.steps, "snapshots": args.snapshots, "seed": args.seed, "region": REGION}
    save_json(args.folder / "recovery.json", result)
    return result


def main(words: list[str]) -> int:
    """Does what the words ask for; returns the exit code."""
    return run_command(lambda: print(train(tyro.cli(Args, args=words, prog="python -m ros_rl.learning.quadruped_recovery"))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
