"""`ros-rl parity`: in-process loop against node graph."""

import json
from dataclasses import dataclass

from tqdm import tqdm

from ros_rl.bringup import bringup_for
from ros_rl.errors import UserError


@dataclass
class Parity:
    """Runs the same policy, task and seed in one process, through the node graph in lock-step (separate processes and
    composed), and on a simulated robot behind ros2_control topics, and compares every joint position and command.
    """

    robot: str = "arm"
    """A bring-up (arm, tabletop, cartpole, quadruped, quadrotor), or a robot that one of them has tasks for, such as panda."""
    steps: int = 500
    """Control ticks to compare."""
    seed: int = 0
    """Seed of the initial state."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Returns 0 if every difference is exactly zero, else 1."""
        from ros_rl.nodes.parity import compare

        bringup_for(self.robot)  # before a progress bar appears
        if self.steps < 1 or self.seed < 0:
            raise UserError(f"--steps must be at least 1 and --seed at least 0, got {self.steps} and {self.seed}")
        with tqdm(total=3 * self.steps, unit="step", disable=None) as bar:

            def progress(kind: str, count: int) -> None:
                bar.set_description(kind)
                bar.update(count)

            differences = compare(self.robot, self.seed, self.steps, progress)
        worst = max(differences.values())
        if self.json:
            runs = {"robot": self.robot, "steps": self.steps, "seed": self.seed, "runs": differences, "max_abs_difference": worst}
            print(json.dumps(runs))
        else:
            for kind, difference in differences.items():
                print(f"{self.robot:<12} {kind:<14} largest difference {difference:g} over {self.steps} steps")
        return int(worst != 0.0)
