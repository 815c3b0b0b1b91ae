"""The tabletop suite: language tasks for an arm, and what of them a policy is trained on and judged on.

Every task is an ordinary one, usable by its name wherever a task is. A split adds which instructions it is given and which
initial states, so that training and each way of judging have no (variant, instruction, initial state) in common.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from ros_rl.errors import UserError, unknown
from ros_rl.sim.task import Task, load_task, suite_names

# What a policy is trained on, and what it is judged on; each of the others differs from training in one way.
SPLITS = {
    "train": "training variants, wordings and positions",
    "unseen_positions": "objects where training never puts them",
    "unseen_pairings": "variants that training never asks for; their objects are there all the time",
    "unseen_paraphrases": "wordings that training never uses",
    "long_horizon": "chains of 2 to 4 tasks",
}

CAMERAS = ("front", "hand")
_SEEDS = 1_000_000  # for each split
TRAINING_SEEDS = range(_SEEDS)  # also of tasks outside of the suite
JUDGING_SEEDS = range(len(SPLITS) * _SEEDS, (len(SPLITS) + 1) * _SEEDS)  # of what is judged outside of the splits


@dataclass(frozen=True)
class Item:
    """A task with one instruction and the seeds of its initial states.

    Attributes:
        family: name of the task without its variant.
        task: its `instruction` and `reset` are those of the split.
        seeds: of the initial states; those of two splits are disjoint.
    """

    family: str
    task: Task
    seeds: range


def load_split(name: str, robot: str = "arm") -> list[Item]:
    """Returns the items of a split: every task that is in it, once for each of its instructions there.

    Raises:
        UserError: there is no such split, or the suite has no tasks for the robot.
    """
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    start = list(SPLITS).index(name) * _SEEDS  # `train` is the first
    seeds = range(start, start + _SEEDS)
    return [Item(family, task, seeds) for family in suite_names() for task in _tasks(family, name, robot)]


def training_tasks(name: str, robot: str | None = None) -> list[Task]:
    """Returns what a task's name stands for in training: one of the suite without its variant is all its variants for training.

    Raises:
        UserError: there is no such task, or the suite keeps it for judging.
    """
    task = load_task(name, robot)
    if name in suite_names():
        found = [task for task in variants(name, robot) if _split_of(task) == "train"]
    else:
        found = [task] if _split_of(task) == "train" else []
    if not found:
        raise UserError(f"task '{name}' is kept for the split {_split_of(task)} of the tabletop suite; nothing may be trained on it")
    return found


def _split_of(task: Task) -> str:
    """Returns in which split a task is with its own wordings and positions."""
    if task.long_horizon:
        return "long_horizon"
    return "unseen_pairings" if task.name.partition(":")[2] in task.unseen.variants else "train"


@cache
def variants(family: str, robot: str | None = None) -> tuple[Task, ...]:
    """Returns a task of the suite in all its variants; its file is read once."""
    first = load_task(family, robot)
    return first, *(load_task(f"{family}:{variant}", robot) for variant in first.variants[1:])


def _tasks(family: str, split: str, robot: str) -> Iterator[Task]:
    for task in variants(family, robot):
        if _split_of(task) != (split if split in ("long_horizon", "unseen_pairings") else "train"):
            continue
        if split == "unseen_positions":
            if not task.unseen.objects:
                continue
            task = replace(task, reset=replace(task.reset, objects={**task.reset.objects, **task.unseen.objects}))
        wordings = task.unseen.paraphrases if split == "unseen_paraphrases" else (task.instruction, *task.paraphrases)
        for wording in wordings:
            yield replace(task, instruction=wording)
