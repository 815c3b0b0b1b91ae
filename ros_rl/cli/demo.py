"""`ros-rl demo`: the main job, watched."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ros_rl.bringup import bringup_for, graph, tasks_for
from ros_rl.errors import UserError
from ros_rl.nodes.environment import isolate
from ros_rl.paths import write_atomically
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.sim.build import build
from ros_rl.sim.film import Film, Take
from ros_rl.sim.tabletop import JUDGING_SEEDS
from ros_rl.sim.task import load_task

_FRAME_RATE = 20


@dataclass
class Demo:
    """Brings up a robot in MuJoCo through the ROS 2 graph, lets it carry out its instructions under the guard, and writes
    summary.json, video.mp4 and contact_sheet.png. By default a vision-language-action policy does tabletop tasks from camera images;
    the scripted expert of --robot arm reads object poses from the simulator.
    """

    robot: str = "tabletop"
    """A bring-up (tabletop, arm, cartpole, quadruped, quadrotor), or a robot that one of them has tasks for, such as panda."""
    episodes: int = 0
    """Episodes; 0: each of the bring-up's instructions once."""
    seed: int = JUDGING_SEEDS.start
    """Seed of the first episode; each further one adds 1. No tabletop policy was trained from the initial states of the default on."""
    lockstep: bool = False
    """As fast as the machine can, in lock-step, instead of real time."""
    composed: bool = False
    """All nodes in one process."""
    video: bool = True
    """Render video and contact sheet (--no-video leaves them out)."""
    out: Path = Path("out/demo")
    """Folder to write to."""

    def run(self) -> int:
        """Returns 0 if every episode succeeded, else 1."""
        from ros_rl.nodes.demo import OVER, run_episodes

        bringup, robot = bringup_for(self.robot)
        tasks = tasks_for(bringup, robot)
        if self.episodes < 0 or self.seed < 0:
            raise UserError(f"--episodes and --seed are whole numbers from 0 on, got {self.episodes} and {self.seed}")
        episodes = self.episodes or len(tasks)
        arguments = {
            "robot": robot,
            "episodes": str(episodes),
            "seed": str(self.seed),
            "lockstep": str(self.lockstep),
            "composed": str(self.composed),
        }
        spec, described = load_robot(robot), graph(bringup, arguments)
        isolate()
        self.out.mkdir(parents=True, exist_ok=True)
        with tqdm(total=episodes, unit="episode", disable=None) as bar:

            def show(state: dict[str, Any]) -> None:
                bar.set_description(state.get("instruction", "starting the graph"))
                bar.set_postfix_str(state["state"])
                bar.update(state["state"] in OVER)

            def log(text: str) -> None:
                write_atomically(self.out / "nodes.log", text.encode())

            results, takes = run_episodes(spec, described, episodes, _FRAME_RATE, show, log)
        summary = {"robot": self.robot, "episodes": [asdict(result) for result in results]}
        write_atomically(self.out / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
        print(f"\n{'instruction':<44} {'success':<8} {'seconds':>7} {'limited':>8} {'overruns':>9}")
        for result in results:
            word = "yes" if result.success else "no"
            print(f"{result.instruction:<44} {word:<8} {result.seconds:>7.1f} {result.limited:>8} {result.overruns:>9}")
            if not result.success:
                print(f"    {result.reason}")
        if self.video:
            film(spec, tasks[0], takes, self.out)
        succeeded = sum(result.success for result in results)
        print(f"\n{succeeded} of {len(results)} succeeded; see {self.out}/")
        return int(succeeded < len(results))


def film(spec: RobotSpec, task: str, takes: Sequence[Take], folder: Path) -> None:
    """Writes video.mp4 and contact_sheet.png of what was recorded in the scene of a task."""
    camera = Film(build(spec, load_task(task).scene), "follow" if spec.floating_base else "front")
    with tqdm(total=sum(len(take.moments) for take in takes), desc="rendering", unit="frame", disable=None) as bar:
        camera.write_video(folder / "video.mp4", takes, _FRAME_RATE, lambda: bar.update())
    camera.write_contact_sheet(folder / "contact_sheet.png", takes)
    camera.close()
