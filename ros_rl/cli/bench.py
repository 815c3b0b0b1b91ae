"""`ros-rl bench`: measurements, as ratios within one run."""

import json
from dataclasses import dataclass

from ros_rl.errors import UserError
from ros_rl.nodes.environment import isolate


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
