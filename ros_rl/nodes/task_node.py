"""The node that sets tasks: gives the instruction, starts episodes, and judges them."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.task import Future
from rclpy.timer import Timer
from std_msgs.msg import Float64, String
from std_srvs.srv import Trigger

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.nodes.assembler import ObservationAssembler
from ros_rl.nodes.base import StackNode, run
from ros_rl.nodes.messages import LATCHED_QOS, STREAM_QOS, TASK_STATE_QOS
from ros_rl.nodes.parameters import TASK_NODE
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.sim.task import Task, TaskMonitor, load_task


@dataclass
class _Episode:
    number: int
    task: Task
    seed: int
    start: float | None = None
    seconds: float = 0.0


class TaskNode(StackNode):
    """Runs tasks one after the other in simulation, and takes the judgement of a person by its services.

    `task/state` is JSON in a string: episode, task, instruction, seed, state (``waiting``, ``running``, ``success``,
    ``failure``, ``timeout``, ``discarded``, ``finished``), seconds of robot time, reason.
    """

    def __init__(self, **options: Any):
        """Declares parameters."""
        super().__init__("task_node", TASK_NODE, **options)
        self._episode: _Episode | None = None
        self._monitor: TaskMonitor | None = None
        self._starter: Timer | None = None
        self._next = 0
        self._resume_at: float | None = None
        self._last_stamp = 0.0

    def configure(self) -> None:
        """Reads the tasks and opens topics and services."""
        self._spec = load_robot(self.value("robot"), self.value("control_rate"))
        self._tasks = [load_task(name, self._spec.name) for name in self.value("tasks")]
        self._monitors = {task.name: TaskMonitor(task, self._spec) for task in self._tasks}
        if len({task.scene for task in self._tasks}) > 1:
            scenes = ", ".join(f"{task.name} in {task.scene}" for task in self._tasks)
            raise UserError(f"tasks run one after the other in one scene; these need several: {scenes}")
        self._count = self.value("episodes") or len(self._tasks)
        self._instruction = self.create_publisher(String, "task/instruction", LATCHED_QOS)
        self._state = self.create_publisher(String, "task/state", TASK_STATE_QOS)
        self._reward = self.create_publisher(Float64, "task/reward", STREAM_QOS)
        self._set_parameters = self.create_client(SetParameters, "hardware_node/set_parameters")
        self._reset = self.create_client(Trigger, "sim/reset")
        for word in ("start", "success", "failure", "discard"):
            self.create_service(Trigger, f"task/{word}", partial(self._on_word, word))
        needs = _needs(self._spec) if self._tasks else []
        ObservationAssembler(self, self._spec, needs, (), self._on_observation, self.value("lockstep"))

    def activate(self) -> None:
        """Starts with the first task as soon as the simulation answers."""
        self._next, self._resume_at = 0, None
        self._say_state("waiting")
        if self._tasks:
            self._starter = self.every(0.05, self._start_when_ready)

    def deactivate(self) -> None:
        """Lets the episode go."""
        self._episode = self._monitor = None
        self._end_waiting()

    def _start_when_ready(self) -> None:
        if self._reset.service_is_ready() and self._set_parameters.service_is_ready():
            self._end_waiting()
            self._begin()

    def _end_waiting(self) -> None:
        if self._starter is not None:
            self.destroy_timer(self._starter)
            self._starter = None

    def _begin(self) -> None:
        """Sets the next task: the instruction first, so that whoever acts knows it when the episode starts."""
        if self._monitor is not None:
            self._say_state("discarded", "another one is begun")
        task = self._tasks[self._next % len(self._tasks)]
        self._episode = _Episode(self._next, task, self.value("seed") + self._next)
        self._next += 1
        self._monitor, self._resume_at = None, None
        self._instruction.publish(String(data=task.instruction))
        changes = [Parameter("task", value=str(task.path)), Parameter("seed", value=self._episode.seed)]
        request = SetParameters.Request(parameters=[change.to_parameter_msg() for change in changes])
        self._set_parameters.call_async(request).add_done_callback(self.contained("set_parameters", self._on_set))

    def _on_set(self, future: Future) -> None:
        refused = [result.reason for result in future.result().results if not result.successful]
        if refused:
            self._refused(refused[0])
            return
        self._reset.call_async(Trigger.Request()).add_done_callback(self.contained("sim/reset", self._on_reset))

    def _on_reset(self, future: Future) -> None:
        answer = future.result()
        if not answer.success:
            self._refused(answer.message)
            return
        if self._episode is not None:
            self._monitor = self._monitors[self._episode.task.name]
            self._monitor.reset()
            self._say_state("running")

    def _refused(self, reason: str) -> None:
        """Ends the run: the episode cannot start, and neither could the next."""
        self.get_logger().error(f"the hardware node refuses: {reason}")
        self._next = self._count
        self._finish("failure", f"the hardware node refuses: {reason}")

    def _on_observation(self, observation: Observation) -> None:
        jumped_back = observation.stamp < self._last_stamp
        self._last_stamp = observation.stamp
        if not self.active:
            return
        if self._resume_at is not None:
            if jumped_back:  # someone else reset the simulation during the pause
                self._resume_at = observation.stamp + self.value("pause")
            elif observation.stamp >= self._resume_at:
                self._begin()
            return
        if self._monitor is None or self._episode is None:
            return
        if jumped_back:  # someone else reset the simulation: the episode starts again
            self._monitor.reset()
            self._episode.start = None
        if self._episode.start is None:
            self._episode.start = observation.stamp
        self._episode.seconds = observation.stamp - self._episode.start
        task = self._episode.task
        state = self._monitor.update(observation.told(np.array(task.command), task.instruction))
        self._reward.publish(Float64(data=state.reward))
        if state.done:
            self._finish("success" if state.success else "failure" if state.terminated else "timeout", state.reason)

    def _finish(self, word: str, reason: str) -> None:
        self._say_state(word, reason)
        self._monitor = None
        if self._next < self._count:
            self._resume_at = self._last_stamp + self.value("pause")
        else:
            self._say_state("finished")

    def _on_word(self, word: str, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = False
        if word == "start":
            if not self._tasks:
                response.message = "the parameter 'tasks' is empty"
            elif not self._reset.service_is_ready():
                response.message = "no simulation to reset in this namespace"
            else:
                self._begin()
                response.success = True
            return response
        if self._monitor is None:
            response.message = "no episode runs"
            return response
        response.success = True
        self._finish({"discard": "discarded"}.get(word, word), "said by a person")
        return response

    def _say_state(self, word: str, reason: str = "") -> None:
        state: dict[str, object] = {"state": word, "reason": reason}
        if self._episode is not None:
            episode = self._episode
            state |= {"episode": episode.number, "task": episode.task.name, "instruction": episode.task.instruction}
            state |= {"seed": episode.seed, "seconds": round(episode.seconds, 3)}
        self._state.publish(String(data=json.dumps(state)))


def _needs(spec: RobotSpec) -> list[str]:
    """Returns the observation fields that conditions may read: all that the simulation of a robot gives."""
    return ["privileged", *(["base_quat"] if spec.imu_frame else []), *(["base_position"] if spec.odometry else [])]


def main() -> int:
    """Runs the node; returns the exit code."""
    return run(lambda: [TaskNode()])
