"""The data path in one process: the loop that the ROS graph runs, without ROS."""

from collections.abc import Callable
from dataclasses import dataclass

from ros_rl.hardware.guard import GuardedRobot
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.policies.runner import PolicyRunner
from ros_rl.safety.interface import SafetyReport
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import TaskMonitor, TaskState


@dataclass(frozen=True, eq=False)
class Step:
    """One control tick: what was seen, commanded, and sent after the guard; what safety filter and task monitor said."""

    observation: Observation
    command: JointCommand
    sent: JointCommand
    safety: SafetyReport
    task: TaskState | None


def run_episode(
    robot: GuardedRobot,
    runner: PolicyRunner,
    stage: SafetyStage,
    seed: int,
    steps: int,
    monitor: TaskMonitor | None = None,
    record: Callable[[Step], None] | None = None,
) -> TaskState | None:
    """Runs one episode of a simulated robot.

    Args:
        robot: a simulated backend behind its guard.
        runner: plays the policy.
        stage: runs the safety filter.
        seed: of the initial state.
        steps: control ticks after which the loop ends.
        monitor: judges the episode and ends it; None runs all `steps`.
        record: called with every tick.

    Returns:
        how the episode stood at its end, None without a monitor.
    """
    runner.restart()
    robot.reset(seed)
    if monitor is not None:
        monitor.reset()
    state = None
    for _ in range(steps):
        observation = robot.read()
        if monitor is not None:
            state = monitor.update(observation)
        if state is not None and state.done:
            break
        command, safety = stage.apply(observation, runner.command(observation))
        sent = robot.write(command)
        robot.step()
        if record is not None:
            record(Step(observation, command, sent, safety, state))
    return state
