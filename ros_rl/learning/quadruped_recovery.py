"""Trains what catches the quadruped when it is pushed over, makes the bundle `quadruped_recovery` of it, and measures it.

python -m ros_rl.learning.quadruped_recovery train       # stops and resumes anywhere
python -m ros_rl.learning.quadruped_recovery bundle      # makes the bundle, and says how many robots it brings back
python -m ros_rl.learning.quadruped_recovery evaluate    # beside the stance, the walk and no recovery at all
"""

import sys
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from ros_rl import paths
from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.learning.command import run_command
from ros_rl.learning.filtered_walk import FilteredWalk
from ros_rl.learning.ppo import Ppo, PpoArgs
from ros_rl.learning.training import save_json
from ros_rl.learning.walk import PUSHED_AT, Make, Policy, bundle_of, learn, read, survival, told, tracking
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, load_bundle, save_bundle
from ros_rl.policies.quadruped_walk import MEASURED, correction_in, walk_in
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.robots.walking import Walk
from ros_rl.safety.interface import SafetyReport
from ros_rl.safety.recovery import RecoverySettings, load_recovery
from ros_rl.safety.region import Region
from ros_rl.sim.catch_env import CatchVectorEnv, catch
from ros_rl.sim.walk_env import LOW, LOW_RANGE, NOMINAL, RATE, ROBOT, Conditions, WalkVectorEnv

NAME, WALK, STANCE = "quadruped_recovery", "quadruped_walk", "quadruped_stand"
REGION = Region(0.15, 1.047, LOW_RANGE, LOW)  # 1.047: `FALLEN_TILT`, as the bundle rounds it
CONDITIONS = Conditions(uneven=0.5, push=0.0, commands=False)
PPO = PpoArgs(copies=64, rollout=64, epochs=5, batch=512, learning_rate=5e-4, log_std=-1.5, hidden=(128, 64), target_kl=0.02)
LAST_LOG_STD = -3.0  # of the policy's spread, which is at most this at the end: what ships has none at all
_SEEN = 1_000_000  # observations that the moments of the walk count as, so that they change slowly at first

# What is asked of the bundle, set before it was trained.
MORE_BROUGHT_BACK = 0.1  # share of the held-out states, than by the stance
MORE_SURVIVAL = 0.05  # share of pushes of 1 m/s, than without recovery
LEAST_SURVIVAL = 0.95  # share of pushes of 0.5 m/s
MOST_TRIGGERS = 1.0  # per minute of walking on flat ground that nobody disturbs
PUSHES = (0.5, 0.8, 1.0, 1.2)  # m/s
UNEVEN = Conditions(uneven=1.0)  # with friction, load and late commands varied, for pushes of 1 m/s
HELD_OUT, HELD_OUT_SEED = 300, 1_000_000
RANDOM_STEPS = 500  # actions of each of 64 robots
_AFTER = 100  # actions

# States to start from.
STARTS = 4000
_COPIES = 64
_LEAST, _WORST = 0.08, 0.95  # ρ; walking on flat ground, it stays below 0.06
_MOMENTS, _APART, _WARM = 20, 17, 100  # of walking robots; actions between two, which is no whole number of strides, and before
_SPEED, _SPIN = (0.3, 1.5), 0.5  # m/s of a push, rad/s about each axis
_WILD, _KEEP = 0.25, 0.9  # share of robots that act at random instead; of the random action before in the next
_PATIENCE = 30  # actions until a state near a fall must have come


class NearFalls(NamedTuple):
    """States in which robots that walk may or may not be saved.

    Attributes:
        states: of the simulation, (k, nstate).
        clock: of the walk, (k,).
        velocity: at which it walked, (k, 3).
        action: its last one, (k, 12).
        uneven: which robots are on uneven ground, (k,); they come last.
    """

    states: np.ndarray
    clock: np.ndarray
    velocity: np.ndarray
    action: np.ndarray
    uneven: np.ndarray


def near_falls(count: int, seed: int) -> NearFalls:
    """Returns states with ρ from 0.08 to 0.95, more of them near 0.08.

    `quadruped_walk` walks about and is pushed, or acts at random; it goes on until ρ first reaches a level that is drawn for each.
    """
    draw, bundle = np.random.default_rng(seed), load_bundle(WALK)
    policy, environment = correction_in(bundle), WalkVectorEnv(walk_in(bundle), _COPIES, replace(CONDITIONS, commands=True), 10_000)
    moments, found = _moments(environment, policy, draw), list[NearFalls]()
    while sum(len(some.states) for some in found) < count:
        environment.restore(moments[draw.integers(len(moments))])
        level = _LEAST + (_WORST - _LEAST) * draw.random(_COPIES) ** 3
        wild, odd = draw.random(_COPIES) < _WILD, np.zeros((_COPIES, 12))
        _blow(environment, ~wild, draw)
        seen = environment.observe()
        for _ in range(_PATIENCE):
            odd = random_action(odd, draw)
            seen, _, terminated, _, info = environment.step(np.where(wild[:, None], odd, policy(seen)))
            caught = np.flatnonzero((info["rho"] >= level) & (info["rho"] <= _WORST))
            walker, taken = environment.walker, environment.copies.snapshot(caught)
            found.append(NearFalls(taken, walker.clock[caught], walker.velocity[caught], walker.action[caught], environment.uneven[caught]))
            level[caught], level[terminated] = np.inf, np.inf
            if np.isinf(level).all():
                break
            if terminated.any():
                seen, _ = environment.reset(options={"reset_mask": terminated})
    environment.close()
    kept = NearFalls(*(np.concatenate(parts)[:count] for parts in zip(*found, strict=True)))
    order = np.argsort(kept.uneven, kind="stable")
    return NearFalls(*(part[order] for part in kept))


def _blow(environment: WalkVectorEnv, copies: np.ndarray, draw: np.random.Generator) -> None:
    """Pushes some robots, (n,) bools, in any direction, and spins them."""
    count = environment.num_envs
    angle, speed = draw.uniform(-np.pi, np.pi, count), draw.uniform(*_SPEED, count)
    environment.push((copies * speed)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    environment.copies.qvel[:, 3:6] += copies[:, None] * _SPIN * draw.standard_normal((count, 3))


def _moments(environment: WalkVectorEnv, policy: Policy, draw: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Returns states of an environment whose robots walk."""
    seen, _ = environment.reset(seed=[int(number) for number in draw.integers(2**31, size=environment.num_envs)])
    found = []
    for step in range(_WARM + _APART * _MOMENTS):
        if step >= _WARM and (step - _WARM) % _APART == 0:
            found.append(environment.state())
        seen, _, terminated, _, _ = environment.step(policy(seen))
        if terminated.any():
            seen, _ = environment.reset(options={"reset_mask": terminated})
    return found


def random_action(before: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Returns random actions, (n, m), that go on smoothly from those before and have a spread of about 1."""
    return np.clip(_KEEP * before + np.sqrt(1.0 - _KEEP**2) * draw.standard_normal(before.shape), -1.0, 1.0)


# --- Training ---------------------------------------------------------------------------------------------------------------


@dataclass
class TrainArgs:
    """What to train."""

    steps: int = 3_500_000
    """Environment steps, of all copies together."""
    seed: int = 0
    """Of states and training."""
    folder: Path = Path("out/quadruped_recovery")
    """Where checkpoints and the policy go; a run that was stopped goes on from there."""


def begin_with(learner: Ppo, bundle: Bundle) -> None:
    """Makes the network of a walk the learner's, so that it corrects the trot as the walk does and tells it to stand."""
    ratio = walk_in(bundle).correction / catch().correction
    mean, variance = bundle.tensors["mean"].copy(), bundle.tensors["variance"].copy()
    last_action = slice(30, 42)
    mean[last_action] *= ratio
    variance[last_action] *= ratio**2
    learner.moments.restore({"count": np.array(_SEEN), "mean": mean, "variance": variance})
    for layer, (weight, bias) in enumerate(learner.actor.layers):
        found, offset = bundle.tensors[f"weight{layer}"], bundle.tensors[f"bias{layer}"]
        weight[:], bias[:] = 0.0, 0.0
        scale = ratio if layer == len(learner.actor.layers) - 1 else 1.0
        weight[:, : found.shape[1]], bias[: found.shape[1]] = found * scale, offset * scale


def train(args: TrainArgs, ppo: PpoArgs = PPO) -> Ppo:
    """Trains, or goes on; leaves a checkpoint, policy.safetensors and training.json in the folder.

    Raises:
        UserError: the numbers do not fit, or the folder holds another training.
        RobotFault: the training broke down.
    """
    if args.steps < 1 or args.seed < 0:
        raise UserError(f"--steps must be at least 1 and --seed not be negative, got {args.steps} and {args.seed}")
    iterations = -(-args.steps // (ppo.copies * ppo.rollout))
    starts = near_falls(STARTS, args.seed)
    environment = CatchVectorEnv(catch(), starts.states, starts.uneven, REGION.d, ppo.copies, CONDITIONS)
    learner = Ppo(ppo, environment, iterations, args.seed)
    begin_with(learner, load_bundle(WALK))
    learn(learner, args.folder / "recovery.npz", args.steps, LAST_LOG_STD)
    return learner


# --- The bundle -------------------------------------------------------------------------------------------------------------


@dataclass
class MakeArgs:
    """What to make the bundle of."""

    folder: Path = Path("out/quadruped_recovery")
    """What `train` wrote."""
    output: Path | None = None
    """Folder for the bundle; that of the package unless given."""


def bundled(tensors: dict[str, np.ndarray], training: dict[str, str]) -> Bundle:
    """Returns a network as a bundle without metrics."""
    return bundle_of(NAME, catch(), MEASURED, tensors, training, REGION)


def trained(folder: Path) -> Bundle:
    """Returns what a folder holds as a bundle without metrics.

    Raises:
        UserError: there is nothing, or it is damaged.
    """
    tensors, record = read(folder, "python -m ros_rl.learning.quadruped_recovery train")
    return bundled(tensors, told("ros_rl.learning.quadruped_recovery", record, f", from states of {WALK}"))


def make(args: MakeArgs) -> Bundle:
    """Makes the bundle, counts how many robots it brings back, and writes it.

    Raises:
        UserError: nothing was trained, see `trained`.
    """
    bundle, held_out = trained(args.folder), near_falls(HELD_OUT, HELD_OUT_SEED)
    rates = shares(*brought_back(bundle, held_out))
    bundle = replace(bundle, metrics={"brought_back": rates})
    save_bundle((args.output or paths.share_dir() / "policies") / NAME, bundle)
    of = f"{rates['outside']:.0%} of the {rates['of_outside']} outside the region"
    print(f"{NAME} brings back {rates['all']:.0%} of {rates['of']} robots, {of}")
    return bundle


# --- Measuring --------------------------------------------------------------------------------------------------------------


@dataclass
class EvaluateArgs:
    """What to measure."""

    bundle: str = NAME
    """Name or folder of the bundle."""
    seeds: int = 13
    """Pushes of each direction and speed."""
    output: Path | None = None
    """JSON file to write the figures to."""


class Alone:
    """A filter that always lets another policy act."""

    def __init__(self, bundle: Bundle):
        """Loads the policy of a bundle."""
        self._robot = load_robot(ROBOT)
        self._runner = PolicyRunner(load_policy(bundle, self._robot))

    def reset(self) -> None:
        """Begins an episode."""
        self._runner.restart()

    def filter(self, observation: Observation, action: np.ndarray) -> tuple[np.ndarray, SafetyReport]:
        """Returns the policy's joint targets, told to stand."""
        del action
        return self._runner.command(observation.told(np.zeros(3), "")).in_order_of(self._robot), SafetyReport()


def brought_back(bundle: Bundle | None, from_states: NearFalls) -> tuple[np.ndarray, np.ndarray]:
    """Returns which robots, (k,), have not fallen within two seconds and have ρ < d then, and which began outside the region, (k,).

    Args:
        bundle: what acts, as the filter starts it; None: the walk goes on, told to stand.
        from_states: k states.
    """
    walk, count = load_bundle(WALK), len(from_states.states)
    walked, everyone = replace(walk_in(walk), settle=0.0), np.arange(count)
    conditions = replace(NOMINAL, uneven=float(from_states.uneven.mean()))
    if bundle is None:
        environment: WalkVectorEnv = WalkVectorEnv(walked, count, conditions, 10_000)
    else:
        alone = Alone(bundle)
        environment = FilteredWalk(walked, count, conditions, 10_000, lambda: deepcopy(alone))
    policy, fallen = correction_in(walk), np.zeros(count, bool)
    environment.reset(seed=0)
    environment.resume(everyone, from_states.states)
    for name in ("clock", "velocity", "action"):
        getattr(environment.walker, name)[...] = getattr(from_states, name)
    environment.walker.clock -= round(walk_in(walk).settle * RATE)
    seen, outside = environment.observe(), environment.instability() >= REGION.d
    for _ in range(_AFTER):
        seen, _, terminated, _, info = environment.step(policy(seen))
        fallen |= terminated
        if terminated.any():
            seen, _ = environment.reset(options={"reset_mask": terminated})
    environment.close()
    return ~fallen & (info["rho"] < REGION.d), outside


def shares(back: np.ndarray, outside: np.ndarray) -> dict[str, Any]:
    """Returns the shares of robots that were brought back, of all and of those that began outside the region."""
    rate = lambda robots: round(float(robots.mean()), 4) if len(robots) else None  # noqa: E731
    return {"all": rate(back), "of": len(back), "outside": rate(back[outside]), "of_outside": int(outside.sum())}


def behind(bundle: Bundle | None) -> Make:
    """Returns what builds robots behind the filter `recovery` with a bundle; without one, as they are.

    Raises:
        UserError: the bundle cannot be used there.
    """
    if bundle is None:
        return WalkVectorEnv
    robot = load_robot(ROBOT)
    one = load_recovery(robot, bundle, RecoverySettings())

    def build(walk: Walk, count: int, conditions: Conditions, steps: int) -> FilteredWalk:
        return FilteredWalk(walk, count, conditions, steps, lambda: deepcopy(one))

    return build


def random_falls(build: Make, steps: int) -> dict[str, Any]:
    """Returns how often robots fall whose joint targets are random: the stance ± 0.3 rad, smooth."""
    draw, environment = np.random.default_rng(0), build(walk_in(load_bundle(WALK)), _COPIES, NOMINAL, 10_000)
    environment.reset(seed=0)
    action, falls = np.zeros((_COPIES, 12)), 0
    for _ in range(steps):
        action = random_action(action, draw)
        _, _, terminated, _, _ = environment.step(action)
        falls += int(terminated.sum())
        if terminated.any():
            environment.reset(options={"reset_mask": terminated})
            action[terminated] = 0.0
    environment.close()
    return {"falls": falls, "steps": steps * _COPIES, "per_1000": round(1000.0 * falls / (steps * _COPIES), 2)}


def walking(build: Make, uneven: bool) -> dict[str, Any]:
    """Returns how far robots are off their commands that nobody pushes, and how often recovery begins in a minute of walking."""
    kept: list[WalkVectorEnv] = []

    def keep(walk: Walk, count: int, conditions: Conditions, steps: int) -> WalkVectorEnv:
        kept.append(build(walk, count, conditions, steps))
        return kept[-1]

    walk = load_bundle(WALK)
    rows = tracking(walk_in(walk), correction_in(walk), 3, uneven, keep)
    (environment,) = kept
    errors = {part: round(float(np.mean([row["error"][part] for row in rows if part in row["error"]])), 4) for part in ("linear", "turn")}
    found: dict[str, Any] = {"error": errors, "fell": sum(row["fell"] for row in rows), "of": sum(row["of"] for row in rows)}
    if isinstance(environment, FilteredWalk):
        triggers = [int(report.values["triggers"]) for report in environment.reports]
        minutes = float(environment.copies.time.sum()) / 60.0
        found |= {"triggers": sum(triggers), "robots_with_triggers": sum(count > 0 for count in triggers), "minutes": round(minutes, 2)}
        found["triggers_per_minute"] = round(sum(triggers) / minutes, 3)
    return found


def missed(policies: dict[str, Any], name: str) -> list[str]:
    """Returns in words what of that which was asked, on flat ground, some figures of `measure` do not reach."""
    own, words = policies[name], []
    if (more := own["brought_back"]["all"] - policies[STANCE]["brought_back"]["all"]) < MORE_BROUGHT_BACK:
        words.append(f"brings back {100 * more:.1f} points more than the stance")
    if (more := own["pushes"]["1"]["survived"] - policies["none"]["pushes"]["1"]["survived"]) < MORE_SURVIVAL:
        words.append(f"survives {100 * more:.1f} points more of the pushes of 1 m/s than without")
    if (survived := own["pushes"]["0.5"]["survived"]) < LEAST_SURVIVAL:
        words.append(f"survives {100 * survived:.1f} % of the pushes of 0.5 m/s")
    if (triggers := own["walking"]["triggers_per_minute"]) > MOST_TRIGGERS:
        words.append(f"acts {triggers:.1f} times in a minute of walking")
    return words


def measure(args: EvaluateArgs) -> dict[str, Any]:
    """Measures a bundle beside the stance, the walk and no recovery, prints that, and writes it if there is a file to write it to.

    Raises:
        UserError: there is no such bundle, or it says no region.
    """
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {args.seeds}")
    walk, bundle = load_bundle(WALK), load_bundle(args.bundle)
    bundles = {"none": None, STANCE: replace(load_bundle(STANCE), region=REGION), bundle.name: bundle}
    builds = {name: behind(bundle) for name, bundle in bundles.items()}
    held_out, found = near_falls(HELD_OUT, HELD_OUT_SEED), dict[str, Any]()
    for name, build in builds.items():
        pushed = {f"{size:g}": survival(walk_in(walk), correction_in(walk), args.seeds, NOMINAL, size, build) for size in PUSHES}
        found[name] = {
            "brought_back": shares(*brought_back(bundles[name], held_out)),
            "pushes": pushed,
            "pushes_uneven": {"1": survival(walk_in(walk), correction_in(walk), args.seeds, UNEVEN, 1.0, build)},
            "random_targets": random_falls(build, RANDOM_STEPS),
            "walking": walking(build, uneven=False),
            "walking_uneven": walking(build, uneven=True),
        }
        back = found[name]["brought_back"]
        print(
            f"{name}: brings back {back['all']:.1%} of {back['of']}, {back['outside']:.1%} of the {back['of_outside']} outside the region"
        )
        survived = ", ".join(f"{size} m/s {row['survived']:.1%}" for size, row in pushed.items())
        print(f"  survives pushes of {survived} (of {16 * args.seeds} each)")
        print(f"  1 m/s on uneven ground, varied {found[name]['pushes_uneven']['1']['survived']:.1%}", flush=True)
        for kind in ("random_targets", "walking", "walking_uneven"):
            print(f"  {kind}: {found[name][kind]}", flush=True)
    print(f"{bundle.name}: " + ("; ".join(missed(found, bundle.name)) or "does what was asked"))
    asked = {
        "more_brought_back": MORE_BROUGHT_BACK,
        "more_survival": MORE_SURVIVAL,
        "least_survival": LEAST_SURVIVAL,
        "most_triggers": MOST_TRIGGERS,
    }
    result = {"asked": asked, "region": asdict(REGION), "seeds": args.seeds, "pushed_at": list(PUSHED_AT), "policies": found}
    if args.output is not None:
        save_json(args.output, result)
    return result


Command = (
    Annotated[TrainArgs, tyro.conf.subcommand("train")]
    | Annotated[MakeArgs, tyro.conf.subcommand("bundle")]
    | Annotated[EvaluateArgs, tyro.conf.subcommand("evaluate")]
)


def main(words: list[str]) -> int:
    """Does what the words ask for; returns the exit code."""
    args: Any = tyro.cli(Command, args=words, prog="python -m ros_rl.learning.quadruped_recovery")

    def work() -> None:
        if isinstance(args, TrainArgs):
            train(args)
        elif isinstance(args, MakeArgs):
            make(args)
        else:
            measure(args)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
