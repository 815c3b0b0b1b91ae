"""The robots of example-robot-data do every task that is for them, within the limits, on a few seeds each."""

import pytest

from ros_rl.sim.task import load_task, task_names

CASES = [
    (robot, name) for name in task_names() for robot in load_task(name).robots if robot in ("panda", "ur5", "xarm7", "so101", "go1", "go2")
]


def test_each_of_them_has_tasks():
    assert {robot for robot, _ in CASES} == {"panda", "ur5", "xarm7", "so101", "go1", "go2"}
    assert {name for robot, name in CASES if robot == "ur5"} == {"push_button", "arm_circle"}


@pytest.mark.parametrize(("robot", "name"), CASES)
def test_does_its_tasks_within_the_limits(play, robot, name):
    task = load_task(name, robot)
    for seed in range(2):
        run = play(task.policy, robot, name, task.time_limit, seed)
        assert run.state.success, f"seed {seed}: {run.state.reason}"
        assert run.counts["limited"] <= len(run.seen) // 100
        assert run.counts["rejected"] == 0


def test_the_small_arm_works_where_it_reaches():
    """A task's own area is the large arms'; the SO-101 has another, and the same instruction."""
    small, large = load_task("push_button", "so101"), load_task("push_button")
    assert small.instruction == large.instruction
    assert small.success == large.success
    assert small.reset.objects["button"] != large.reset.objects["button"]
