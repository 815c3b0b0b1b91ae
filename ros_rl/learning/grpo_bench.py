"""How many episodes of a VLA the batched simulator plays in a minute while GRPO trains it, and where the time of an iteration goes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ros_rl.learning.grpo import Grpo, GrpoArgs
from ros_rl.learning.objectives.frame import RolloutBatch, spread
from ros_rl.policies.action_tokens import Ranges
from ros_rl.policies.embedded_vla import EmbeddedConfig
from ros_rl.policies.language import vocabulary
from ros_rl.policies.vla import Parameters, VlaModel, relative_joints, spec_for
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import cameras_in
from ros_rl.sim.tabletop import CAMERAS
from ros_rl.sim.task import Task, load_task

ROBOT = "arm"
TASKS = ("press_button:green", "press_button:yellow")
IMAGE, TICKS, PERIOD = [64, 64], 5, 0.1
PARTS = ("simulate", "render", "decode", "learn")


class Stopwatch:
    """Adds up how long methods take.

    Attributes:
        seconds: of each part.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def on(self, part: str, owner: Any, name: str) -> None:
        """Times a method of one object from now on; two that are timed must not call each other."""
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - start

        setattr(owner, name, timed)


def subject() -> tuple[VlaModel, list[Task]]:
    """Returns a network of the default shape with random weights and the tabletop suite's two cameras, and two of its tasks."""
    robot, tasks = load_robot(ROBOT), [load_task(name, ROBOT) for name in TASKS]
    cameras = cameras_in(robot, tasks[0].scene)
    spec = spec_for(robot, {name: (cameras[name].height, cameras[name].width) for name in CAMERAS}, TICKS, PERIOD)
    words = vocabulary({said for task in tasks for said in (task.instruction, *task.paraphrases)})
    state = Ranges(robot.measured_names, *(np.full(len(robot.measured_names), end) for end in (-3.0, 3.0)))
    action = Ranges(robot.joint_names, *(np.full(len(robot.joints), end) for end in (-0.1, 0.1)))
    torch.manual_seed(0)
    return VlaModel.new(
        spec, Parameters(TICKS, PERIOD, relative_joints(robot), embedded=EmbeddedConfig(IMAGE, words=words)), state, action
    ), tasks


def measure(model: VlaModel, tasks: Sequence[Task], args: GrpoArgs, progress: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Times whole iterations of GRPO, after one that is not counted.

    A network with random weights hardly ever does a task, and groups whose episodes all failed are not learned from. Here every episode
    has an advantage drawn at random, so that all are learned from, as they are where each group has successes and failures.

    Args:
        model: that acts and is trained.
        tasks: that it does in turn, a group each.
        args: of GRPO; as many iterations are counted.
        progress: called after every iteration.

    Returns:
        JSON-ready figures: what was played; episodes per minute, of rollouts alone and of whole iterations; seconds and shares of
        physics, rendering, decoding (with the encoding of images and words), learning, and all other.
    """
    learner = Grpo(model, tasks, args)
    learner.objective = replace(learner.objective, advantage=_drawn(args.seed))
    learner.step()
    progress()
    watch, before, decisions = _timed(learner), learner.ticks, 0.0
    start = time.perf_counter()
    for _ in range(args.iterations):
        decisions += learner.step()["decisions"]
        progress()
    whole = time.perf_counter() - start
    learner.rollouts.close()
    played = args.groups * args.group
    return {
        "tasks": [task.name for task in tasks],
        "images": {key.name.removeprefix("images."): key.shape[:2] for key in model.spec.observation if key.name.startswith("images.")},
        **{name: getattr(args, name) for name in ("group", "groups", "epochs", "minibatches", "copies", "iterations")},
        "episodes": args.iterations * played,
        "decisions": round(decisions * played),
        "control_periods": learner.ticks - before,
        **figures(watch.seconds, whole, args.iterations * played),
    }


def figures(seconds: dict[str, float], whole: float, episodes: int) -> dict[str, Any]:
    """Returns episodes per minute, and seconds and shares of each part and of the rest.

    Args:
        seconds: of each part.
        whole: seconds of everything.
        episodes: that were played.
    """
    parts = {**seconds, "other": whole - sum(seconds.values())}
    return {
        "episodes_per_minute": {
            "rollouts": round(60 * episodes / (whole - seconds["learn"]), 1),
            "with_learning": round(60 * episodes / whole, 1),
        },
        "seconds": {name: round(value, 3) for name, value in parts.items()},
        "shares": {name: round(value / whole, 4) for name, value in parts.items()},
    }


def _timed(learner: Grpo) -> Stopwatch:
    watch = Stopwatch()
    for world in learner.rollouts.worlds.values():
        watch.on("simulate", world, "play")
        watch.on("render", world, "images")
    watch.on("decode", learner.model.network, "decode")
    watch.on("learn", learner, "prepare")
    watch.on("learn", learner, "learn")
    return watch


def _drawn(seed: int) -> Callable[[torch.Tensor, RolloutBatch], torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return lambda reward, batch: spread(torch.randn(len(batch), generator=draw), batch)
