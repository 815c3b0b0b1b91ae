"""Tests of ros_rl.policies.scripted.instruction."""

import pytest

from ros_rl.errors import UserError
from ros_rl.policies.scripted.instruction import EXAMPLES, Goal, parse
from ros_rl.sim.task import load_task, task_names

TASKS = [task for task in map(load_task, task_names()) if task.policy == "arm_pick_place"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_paraphrases_mean_what_the_instruction_means(task):
    assert task.paraphrases
    assert {parse(text) for text in (task.instruction, *task.paraphrases)} == {parse(task.instruction)}


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("Put the blue cube into the bowl!", Goal("put", "blue_block", "bowl")),
        ("stack the blue block onto the red block", Goal("stack", "blue_block", "red_block")),
        ("PRESS the button", Goal("push", "button", "button")),
    ],
)
def test_other_objects_and_spelling(text, goal):
    assert parse(text) == goal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "put the green block in the bowl",
        "put the bowl in the red block",
        "put the red block on the red block",
        "look at the button",
        "do not push the button",
        "don't put the red block in the bowl",
        "put the red block in the bowl and push the button",
    ],
)
def test_what_it_cannot_do_is_refused_with_what_it_can(text):
    with pytest.raises(UserError) as error:
        parse(text)
    assert all(example in str(error.value) for example in EXAMPLES)
