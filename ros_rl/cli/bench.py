"""`ros-rl bench`: measurements, as ratios within one run."""

import json
from dataclasses import dataclass
from pathlib import Path

from ros_rl.errors import UserError
from ros_rl.nodes.environment import isolate


@dataclass
class BenchLoop:
    """Runs the composed graph in real time and measures period jitter, missed deadlines and the latency of every hop from
    observation to command, beside bare rclpy nodes that pass messages of the same types on.
    """

    robot: str = "arm"
    """The robot: arm, cartpole, quadruped or quadrotor."""
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
class BenchSafety:
    """Measures how long one act takes, from the state to the action, for SAC, AutoSafe, Simplex and a CBF quadratic programme, one
    state at a time and 256 together. The networks have random weights.
    """

    robot: str = "cartpole"
    """A robot with a safe prior: cartpole or quadrotor_wrench."""
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
class BenchAutosafe:
    """Trains every method on a task with equal steps, all seeds and all levels of goal conflict at once, then writes results and figures.

    What was trained before is not trained again; what was stopped goes on. The whole cart-pole ladder takes hours.
    """

    task: str = "cartpole"
    """cartpole, quadrotor or glucose."""
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

    def run(self) -> int:
        """Returns 0."""
        from ros_rl.learning.ladder_results import bench, markdown

        table, files = bench(self.task, self.methods, self.seeds, self.steps, self.folder, self.only_trained)
        print(markdown(table))
        print(*files, sep="\n")
        return 0
