"""`ros-rl bench`: measurements, as ratios within one run."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tqdm import tqdm

from ros_rl.errors import UserError, unknown
from ros_rl.nodes.environment import isolate
from ros_rl.paths import write_atomically

if TYPE_CHECKING:
    from ros_rl.sim.film import Take


@dataclass
class BenchLoop:
    """Runs the composed graph in real time and measures period jitter, missed deadlines and the latency of every hop from
    observation to command, beside bare rclpy nodes that pass messages of the same types on.
    """

    robot: str = "arm"
    """A bring-up (arm, cartpole, quadruped, quadrotor), or a robot that one of them has tasks for, such as panda."""
    rate: float = 0.0
    """Control rate, Hz; 0: the robot's own."""
    seconds: float = 20.0
    """How long to measure the graph, s; the bare nodes take half as long again."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.nodes.bench import measure

        if not (0 <= self.rate <= 2000 and 0 < self.seconds < 3600):
            raise UserError(f"--rate must be at most 2000 Hz and --seconds above 0 and below 3600, got {self.rate:g} and {self.seconds:g}")
        isolate()
        result = measure(self.robot, self.rate, self.seconds)
        if self.json:
            print(json.dumps(result, ensure_ascii=False))
            return 0
        jitter, whole = result["jitter_us"], result["observation_to_command_us"]
        print(
            f"{self.robot} at {result['rate']:g} Hz: {result['ticks']} periods, {result['overruns']} missed ({result['overrun_share']:.3%})"
        )
        print(f"period jitter      p50 {jitter['p50']:7.1f}  p99 {jitter['p99']:7.1f}  max {jitter['max']:7.1f} µs")
        for hop, figures in [*result["hops_us"].items(), ("observation→command", {**whole, "ratio": result["ratio"]})]:
            ratio = f"{figures['ratio']:.2f} × bare rclpy ({figures['bare_p50']:.1f} µs)"
            print(f"{hop:<18} p50 {figures['p50']:7.1f}  p99 {figures['p99']:7.1f}  max {figures['max']:7.1f} µs  {ratio}")
        return 0


@dataclass
class BenchSim:
    """Steps environments of the arm, the quadruped, HalfCheetah and Ant on the batched simulator, in turns with Gymnasium's vector
    environments over the same tasks, EnvPool where it is installed, and MuJoCo's bare rollout of the same physics.
    """

    subjects: str = "arm,quadruped,half_cheetah,ant"
    """What to step, separated by commas."""
    envs: int = 64
    """How many environments step together."""
    steps: int = 50
    """Steps of each environment in a turn."""
    repetitions: int = 9
    """How many turns each contestant has."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """File to write the figures to, as JSON."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.sim.bench import SUBJECTS, measure

        names = list(dict.fromkeys(name.strip() for name in self.subjects.split(",")))
        for name in names:
            if name not in SUBJECTS:
                raise unknown("subject", name, SUBJECTS)
        if not all(1 <= number <= 10_000 for number in (self.envs, self.steps, self.repetitions)):
            raise UserError(
                f"--envs, --steps and --repetitions must be from 1 to 10000, got {self.envs}, {self.steps} and {self.repetitions}"
            )
        if self.out is not None:
            _check_writable(self.out)
        with tqdm(total=len(names) * (self.repetitions + 1), unit="turn", disable=None) as bar:
            result = measure(names, self.envs, self.steps, self.repetitions, bar.update)
        if self.out is not None:
            write_atomically(self.out, (json.dumps(result, indent=2) + "\n").encode())
        if self.json:
            print(json.dumps(result))
            return 0
        for name, figures in result["subjects"].items():
            rates, ratio = figures["steps_per_second"], figures["ratio"]
            envpool = f", {ratio['envpool']:.2f} × EnvPool" if "envpool" in ratio else ""
            gymnasium = f"{ratio['gymnasium']:.2f} × Gymnasium ({figures['faster_gymnasium']})"
            print(f"{name:<13} {rates['ours']:>8} steps/s  {gymnasium}{envpool}, {ratio['rollout']:.2f} of mujoco.rollout")
        return 0


@dataclass
class BenchSafety:
    """Measures how long one act takes, from the state to the action, for SAC, AutoSafe, Simplex and a CBF quadratic programme, one
    state at a time and 256 together. The networks have random weights.
    """

    robot: str = "cartpole"
    """A robot with a safe prior: cartpole, quadrotor_wrench or quadruped (its stance)."""
    hidden: int = 64
    """Width of the policy's two hidden layers."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning.act_time import measure

        result = measure(self.robot, self.hidden)
        if self.json:
            print(json.dumps(result))
            return 0
        for batch, rows in result["batches"].items():
            print(f"{self.robot}, hidden layers of {self.hidden}, batch {batch}")
            for name, figures in rows.items():
                print(f"  {name:<10} {figures['us']:9.1f} µs  {figures['ratio']:7.2f} × SAC")
        return 0


@dataclass
class BenchPpo:
    """Times PPO on HalfCheetah, collecting and learning, in turns with a plain PPO by autograd over Gymnasium's environments and with
    that of Stable-Baselines3 where it is installed: same networks, rollouts and minibatches.
    """

    turns: int = 9
    """Iterations of 8 × 256 steps that each contestant has."""
    threads: int = 1
    """Above 1: time ours with as many threads that step its environments, too. Everything else has one."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """File to write the figures to, as JSON."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning.ppo import PpoArgs
        from ros_rl.learning.ppo_bench import measure

        if not 1 <= self.turns <= 10_000 or self.threads < 1:
            raise UserError(f"--turns must be from 1 to 10000 and --threads at least 1, got {self.turns} and {self.threads}")
        if self.out is not None:
            _check_writable(self.out)
        with tqdm(unit="iteration", disable=None) as bar:
            result = measure(PpoArgs(target_kl=float("inf")), self.turns, self.threads, bar.update)
        if self.out is not None:
            write_atomically(self.out, (json.dumps(result, indent=2) + "\n").encode())
        if self.json:
            print(json.dumps(result))
            return 0
        threaded = result.get("threaded", {"ratio": {}})["ratio"]
        for name, rate in result["steps_per_second"].items():
            ratio = f"  ours: {result['ratio'][name]:.2f} ×" if name in result["ratio"] else ""
            more = f", with {self.threads} threads {threaded[name]:.2f} ×" if name in threaded else ""
            print(f"{name:<18} {rate:>8} steps/s{ratio}{more}")
        return 0


@dataclass
class BenchAutosafe:
    """Trains every method on a task with equal steps, all seeds and all levels of goal conflict at once, then writes results and figures.

    What was trained before is not trained again; what was stopped goes on. The whole cart-pole ladder takes hours.
    """

    task: str = "cartpole"
    """cartpole, quadrotor, glucose or quadruped."""
    methods: tuple[str, ...] = ()
    """Which methods, see `python -m ros_rl.learning.ladder --help`; none named: all on the cart-pole, sac, simplex, lagrangian and
    autosafe on the others."""
    seeds: int = 5
    """Runs at each level of conflict."""
    steps: int = 0
    """Control steps of each run; 0: the task's own number."""
    folder: Path = Path("out/autosafe")
    """Where runs, results and figures go."""
    only_trained: bool = False
    """Train nothing: summarise the methods that are trained already."""
    minimal_weight: bool = False
    """Compare the weight that trained policies give the safe action with the least that would do."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning.ladder_results import bench, markdown

        table, files = bench(self.task, self.methods, self.seeds, self.steps, self.folder, self.only_trained, self.minimal_weight)
        print(markdown(table))
        print(*files, sep="\n")
        return 0


@dataclass
class BenchVla:
    """Measures how long a chunk of action tokens takes to decode, in parallel and with cached keys and values, in turns with generate() of
    the transformers library on the same network, for one observation and 16 together; and how many episodes GRPO plays in a minute.

    The networks have random weights. They hardly ever do a task, so that GRPO would learn nothing; its advantages are drawn at random here.
    """

    turns: int = 15
    """How many turns each contestant has."""
    iterations: int = 3
    """Iterations of GRPO that are timed, after one that is not."""
    groups: int = 4
    """Groups of 8 episodes in an iteration; an episode takes a second or more."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """File to write the figures to, as JSON."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning import grpo_bench, vla_bench
        from ros_rl.learning.grpo import GrpoArgs

        if not all(1 <= number <= 10_000 for number in (self.turns, self.iterations, self.groups)):
            raise UserError(
                f"--turns, --iterations and --groups must be from 1 to 10000, got {self.turns}, {self.iterations} and {self.groups}"
            )
        if self.out is not None:
            _check_writable(self.out)
        batches = (1, 16)
        with tqdm(total=len(batches) * (self.turns + 1), unit="turn", disable=None) as bar:
            result = vla_bench.measure(batches, self.turns, bar.update)
        with tqdm(total=self.iterations + 1, unit="iteration", disable=None) as bar:
            args = GrpoArgs(iterations=self.iterations, groups=self.groups)
            result["grpo"] = grpo_bench.measure(*grpo_bench.subject(), args, bar.update)
        if self.out is not None:
            write_atomically(self.out, (json.dumps(result, indent=2) + "\n").encode())
        if self.json:
            print(json.dumps(result))
        else:
            self._print(result)
        return 0

    def _print(self, result: dict[str, Any]) -> None:
        print(f"{result['tokens']} tokens, {result['parameters'] / 1e6:.2f} M parameters, {result['threads']} threads")
        for batch, figures in result["batches"].items():
            for what, name in (("decode", "decode"), ("act", "act (images and words encoded too)")):
                print(f"batch {batch:>2}  {name}")
                for how in ("parallel", "cached", "generate"):
                    ratio = figures["generate_over"].get(f"{what}_{how}", 1.0)
                    print(f"  {how:<9} {figures['ms'][f'{what}_{how}']:9.2f} ms   generate() takes {ratio:5.2f} ×")
        grpo = result["grpo"]
        rates, seconds = grpo["episodes_per_minute"], grpo["seconds"]
        print(f"GRPO  {grpo['episodes']} episodes, {grpo['control_periods']} control periods, {grpo['decisions']} decisions")
        print(f"  {rates['rollouts']:.1f} episodes a minute, {rates['with_learning']:.1f} with learning")
        print("  " + ", ".join(f"{name} {seconds[name]:.1f} s ({share:.0%})" for name, share in grpo["shares"].items()))


@dataclass
class BenchCrash:
    """Kills a recorder with SIGKILL at random times, again and again into one dataset, and counts what is lost: committed episodes,
    readable datasets, and the end of the episode that was open.
    """

    kills: int = 200
    """How often; a kill takes about 4 s."""
    seed: int = 0
    """Of the moments at which it is killed."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Returns 1 where a committed episode is lost or a dataset was unreadable, or where too little happened to tell."""
        from ros_rl.data.crash import drill

        if not 1 <= self.kills <= 100_000:
            raise UserError(f"--kills must be from 1 to 100000, got {self.kills}")
        with tempfile.TemporaryDirectory(prefix="ros_rl-crash-") as folder, tqdm(total=self.kills, unit="kill", disable=None) as bar:
            result = drill(self.kills, self.seed, Path(folder), bar.update)
        if self.json:
            print(json.dumps(result))
        else:
            tail = result["tail_lost_s"]
            print(f"{result['kills']} kills, {result['episodes_committed']} episodes committed")
            print(f"committed episodes lost {result['committed_episodes_lost']}, unreadable datasets {result['unreadable_datasets']}")
            print(f"open episodes {result['open_episodes']}, made of logs {result['cut_off_episodes_recovered']}")
            print(f"lost at the end of an open episode: p50 {1e3 * tail['p50']:.1f} ms, max {1e3 * tail['max']:.1f} ms")
        empty = not result["episodes_committed"] or not result["open_episodes"]
        if empty:
            print("nothing was tested: no episode was committed, or none was open at a kill; --kills must be larger", file=sys.stderr)
        return 1 if empty or result["committed_episodes_lost"] or result["unreadable_datasets"] else 0


@dataclass
class BenchWalk:
    """Runs a walking robot's graph in real time, tells it random velocities and pushes it; counts falls, how far velocities are off,
    missed deadlines, and the share of a core that each process takes.
    """

    minutes: float = 10.0
    """How long, min."""
    robot: str = "quadruped"
    """quadruped, go1 or go2."""
    policy: str = "quadruped_walk"
    """Policy bundle, by name or path; it reads the command."""
    filter: Literal["none", "recovery"] = "none"
    """What keeps the robot safe before the guard."""
    recovery: str = "quadruped_recovery"
    """Bundle of the recovery policy of filter recovery."""
    push_every: float = 10.0
    """Mean time between pushes, s; 0: none."""
    push_speed: float = 0.5
    """By which a push changes the velocity, m/s."""
    seed: int = 0
    """Of commands and pushes."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """File to write the figures to, as JSON."""
    film: Path | None = None
    """MP4 file to film the first minute to."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.nodes.bench_walk import Script, measure

        if not (0 < self.minutes <= 600 and self.seed >= 0):
            raise UserError(f"--minutes must be above 0 and at most 600, --seed not negative, got {self.minutes:g} and {self.seed}")
        if not (0 <= self.push_every <= 3600 and 0 <= self.push_speed <= 10):
            raise UserError(
                f"--push-every must be from 0 to 3600 s and --push-speed from 0 to 10 m/s, got {self.push_every:g} and {self.push_speed:g}"
            )
        if self.filter == "none" and self.recovery != BenchWalk.recovery:
            raise UserError("--recovery has no effect without --filter recovery; leave it out")
        for name, path in (("--out", self.out), ("--film", self.film)):
            if path is not None:
                _check_writable(path, name)
        isolate()
        script = Script(self.push_every, self.push_speed, self.seed)
        with tqdm(total=round(60 * self.minutes), unit="s", disable=None) as bar:
            result, takes = measure(
                *(self.robot, self.policy, self.filter, self.recovery),
                *(60 * self.minutes, script, self.film is not None),
                lambda now: bar.update(now - bar.n),
            )
        result |= {"push_speed": self.push_speed, "seed": self.seed}
        if self.film is not None:
            self._write_film(self.film, result["robot"], takes)
        if self.out is not None:
            write_atomically(self.out, (json.dumps(result, indent=1) + "\n").encode())
        if self.json:
            print(json.dumps(result))
            return 0
        print(f"{result['falls']} falls and {result['pushes']} pushes of {self.push_speed:g} m/s in {result['walked']:.0f} s")
        if result["commands"]:
            share = f" ({result['linear_error_share']:.0%})" if result["linear_error_share"] is not None else ""
            off = f"off by {result['linear_error']:.3f} m/s{share} and {result['turn_error']:.3f} rad/s"
            print(f"velocities of {result['commands']} commands are {off} in the mean")
        print("share of a core:", ", ".join(f"{name} {share:.2f}" for name, share in result["cpu"].items()))
        print(f"control at {result['rate']:g} Hz: {result['overruns']} of {result['ticks']} deadlines missed")
        return 0

    def _write_film(self, path: Path, robot: str, takes: "Sequence[Take]") -> None:
        from ros_rl.nodes.bench_walk import FRAME_RATE
        from ros_rl.robots.spec import load_robot
        from ros_rl.sim.build import build
        from ros_rl.sim.film import Film

        camera = Film(build(load_robot(robot), "floor"), "follow")
        with tqdm(total=sum(len(take.moments) for take in takes), desc="rendering", unit="frame", disable=None) as bar:
            camera.write_video(path, takes, FRAME_RATE, lambda: bar.update())
        camera.close()


@dataclass
class BenchRecord:
    """Runs a robot's graph in real time, with two cameras that send test pictures of 640×480, records them, and counts what is asked
    for, delivered and lost, the share of a core that each process takes, and the longest time between two measurements.
    """

    robot: str = "arm"
    """A bring-up (arm, cartpole, quadruped, quadrotor), or a robot that one of them has tasks for."""
    seconds: float = 60.0
    """How long to record, s."""
    fps: int = 30
    """Images of each camera, and rows of the dataset, a second."""
    folder: Path | None = None
    """Where the dataset goes, a new folder; none named: it is deleted. Five minutes take about 1 GB while they are recorded."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.nodes.bench_record import measure

        if not (1 <= self.fps <= 240 and 1 <= self.seconds <= 3600):
            raise UserError(f"--fps must be from 1 to 240 and --seconds from 1 to 3600, got {self.fps} and {self.seconds:g}")
        if self.folder is not None and self.folder.exists():
            raise UserError(f"--folder {self.folder} is there already; choose a new folder")
        isolate()
        with (
            tempfile.TemporaryDirectory(prefix="ros_rl-record-") as scratch,
            tqdm(total=round(self.seconds), unit="s", disable=None) as bar,
        ):
            result = measure(self.robot, self.seconds, self.fps, self.folder or Path(scratch) / "set", lambda now: bar.update(now - bar.n))
        if self.json:
            print(json.dumps(result))
            return 0
        for name, found in result["sources"].items():
            asked = f"{found['asked']} asked, " if "asked" in found else ""
            print(f"{name:<13} {asked}{found['delivered']} delivered, {found['dropped']} dropped, gap {1e3 * found['largest_gap']:.1f} ms")
        print("share of a core:", ", ".join(f"{name} {share:.2f}" for name, share in result["cpu"].items()))
        print(f"control: {result['overruns']} of {result['ticks']} deadlines missed; {result['commit_seconds']:.1f} s to write the episode")
        return 0


@dataclass
class BenchSafeexplorer:
    """Trains SafeExplorer, its ablations and what it is compared with, with equal steps, then writes results and a figure.

    What was trained before is not trained again; what was stopped goes on. All methods of one environment take hours.
    """

    env: str = "halfcheetah"
    """halfcheetah, ant or quadruped."""
    methods: tuple[str, ...] = ()
    """Which methods, see `python -m ros_rl.learning.fall_ladder --help`; none named: all."""
    seeds: int = 3
    """Runs of each method: seeds 0 to seeds - 1."""
    steps: int = 1_000_000
    """Environment steps of each run, recovery steps included."""
    recovery: Literal["strong", "weak"] = "strong"
    """Which recovery policy."""
    folder: Path = Path("out/safeexplorer")
    """Where runs, results and figures go."""
    only_trained: bool = False
    """Train nothing: summarise the methods of which all runs are trained already."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning.fall_results import bench, markdown

        table, files = bench(self.env, self.methods, self.seeds, self.steps, self.recovery, self.folder, self.only_trained)
        print(markdown(table))
        print(*files, sep="\n")
        return 0


@dataclass
class BenchTabletop:
    """Plays the tasks of the tabletop suite in all its splits, by default with the scripted experts, and counts successes.

    A VLA plays many episodes at once, under the guard's limits alone, on images of the moment in which it decides.
    What the file named by --out holds already is not played again, so that a run that was stopped goes on.
    """

    splits: str = "train,unseen_positions,unseen_pairings,unseen_paraphrases,long_horizon"
    """Splits, separated by commas."""
    tasks: str = ""
    """Tasks without their variants, separated by commas; empty: all."""
    episodes: int = 50
    """Episodes of each task in each split, spread over its variants and instructions."""
    policy: str = ""
    """Bundle to play, by name, path or ws://host:port; empty: the expert that each task names. Its cameras take images."""
    copies: int = 32
    """Episodes of a VLA that are simulated together; other policies play one after the other."""
    json: bool = False
    """Print JSON."""
    out: Path | None = None
    """File to write the figures to, as JSON, after each task."""

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning.tabletop_bench import markdown, measure, player_for, rows_of

        if not 1 <= self.episodes <= 10_000:
            raise UserError(f"--episodes must be from 1 to 10000, got {self.episodes}")
        if self.copies < 1:
            raise UserError(f"--copies must be 1 or more, got {self.copies}")
        rows = rows_of(_words(self.splits), _words(self.tasks))
        result: dict[str, Any] = {"policy": self.policy or "scripted experts", "episodes": self.episodes, "rows": []}
        with closing(player_for(policy=self.policy, copies=self.copies)) as player:
            result |= {key: value for key, value in (("digest", player.digest), ("tokens", player.tokens)) if value}
            if self.out is not None:
                _check_writable(self.out)
                result["rows"] = _measured(self.out, result)
            done = {(row["split"], row["task"]) for row in result["rows"]}
            missing = [row for row in rows if (row.split, row.task) not in done]
            with tqdm(total=len(missing) * self.episodes, unit="episode", disable=None) as bar:
                for row in missing:
                    result["rows"].append(measure(player, row, self.episodes, bar.update))
                    if self.out is not None:
                        write_atomically(self.out, (json.dumps(result, indent=1) + "\n").encode())
        if self.json:
            print(json.dumps(result))
            return 0
        print(markdown(result["rows"]))
        return 0


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _measured(out: Path, like: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows that an earlier run left in a file.

    Raises:
        UserError: the file is of another kind, or of another policy, other weights, another choice of tokens or another number of episodes.
    """
    if not out.exists():
        return []
    try:
        found = json.loads(out.read_text(encoding="utf-8"))
        given = {key: found[key] for key in ("policy", "episodes")}
        rows: list[dict[str, Any]] = found["rows"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--out {out} is there and does not hold figures of this bench; name another file") from None
    if given != {key: like[key] for key in given}:
        raise UserError(f"--out {out} holds figures of {given['episodes']} episodes with {given['policy']}; name another file")
    if found.get("digest") != like.get("digest"):
        raise UserError(f"--out {out} holds figures of {given['policy']} with other weights; name another file")
    if found.get("tokens") != like.get("tokens"):
        raise UserError(
            f"--out {out} holds figures of {given['policy']} with tokens chosen by {found.get('tokens')}, not {like.get('tokens')}; "
            "name another file"
        )
    return rows


def _check_writable(out: Path, option: str = "--out") -> None:
    """Makes the folder of a file and refuses a place where none can be written, before minutes of measuring are lost."""
    if out.is_dir():
        raise UserError(f"{option} {out} is a folder, it must be a file")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {out}: its folder cannot be made ({error.strerror})") from None
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"{option} {out}: its folder cannot be written to")
