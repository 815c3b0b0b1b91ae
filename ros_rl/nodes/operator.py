"""What a person may ask of a graph: start, stop, reset, emergency stop. All through services that exist anyway."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.client import Client
from std_srvs.srv import Trigger

from ros_rl.errors import RobotFault
from ros_rl.nodes.base import StackNode, describe
from ros_rl.web.view import Actions, Report

_PATIENCE = 5.0  # s for an answer


class Operator:
    """Calls the services of a graph. Emergency stop and release are sent at once, by clients of their own; the rest runs in a thread."""

    def __init__(self, node: StackNode, simulated: bool):
        """Opens the clients.

        Args:
            node: takes them; its executor must run.
            simulated: whether there is a simulation to reset and a task node that judges.
        """
        self._node = node
        self._simulated = simulated
        self._busy = threading.Lock()
        self._group = ReentrantCallbackGroup()
        self._estop, self._release = self._client(Trigger, "estop"), self._client(Trigger, "estop/reset")
        self._reset, self._start = self._client(Trigger, "sim/reset"), self._client(Trigger, "task/start")
        self._discard = self._client(Trigger, "task/discard")
        names = ("policy_node", "task_node") if simulated else ("policy_node",)
        self._lifecycles = {
            name: (self._client(GetState, f"{name}/get_state"), self._client(ChangeState, f"{name}/change_state")) for name in names
        }

    @property
    def actions(self) -> Actions:
        """The same as what the buttons of a page do."""
        return Actions(
            estop=partial(self._send, self._estop),
            release=partial(self._send, self._release),
            start=partial(self._in_thread, self._on_start),
            stop=partial(self._in_thread, self._on_stop),
            reset=partial(self._in_thread, lambda: self._trigger(self._reset)) if self._simulated else None,
        )

    def _client(self, kind: type, name: str) -> Client:
        return self._node.create_client(kind, name, callback_group=self._group)

    def _send(self, client: Client, report: Report) -> None:
        """Sends a request before anything else, in the thread of the caller; it is out when this returns."""
        answer = client.call_async(Trigger.Request())
        report("sent" if client.service_is_ready() else "sent, but no hardware node is there to hear it")
        answer.add_done_callback(lambda future: report(future.result().message))

    def _in_thread(self, work: Callable[[], str], report: Report) -> None:
        """Runs calls that wait for one another; one such row at a time."""
        if not self._busy.acquire(blocking=False):
            report("not now, the last request is still being answered")
            return
        report("asked")

        def run() -> None:
            try:
                report(work())
            except Exception as error:
                report(describe(error))
            finally:
                self._busy.release()

        threading.Thread(target=run, name="operator", daemon=True).start()

    def _on_start(self) -> str:
        """Activates the policy, then the tasks. An active task node is told to start its next episode."""
        self._change("policy_node", State.PRIMARY_STATE_INACTIVE, Transition.TRANSITION_ACTIVATE)
        if not self._simulated or self._change("task_node", State.PRIMARY_STATE_INACTIVE, Transition.TRANSITION_ACTIVATE):
            return "started"
        answer = self._call(self._start, Trigger.Request())
        return "started" if answer.success else f"the policy runs; no episode: {answer.message}"

    def _on_stop(self) -> str:
        """Deactivates the policy first: without commands the guard holds the robot, then brings it to rest."""
        self._change("policy_node", State.PRIMARY_STATE_ACTIVE, Transition.TRANSITION_DEACTIVATE)
        if self._simulated:
            self._call(self._discard, Trigger.Request())  # says no if no episode runs, which is just as well
            self._change("task_node", State.PRIMARY_STATE_ACTIVE, Transition.TRANSITION_DEACTIVATE)
        return "stopped; the guard holds the robot"

    def _change(self, name: str, only_in: int, transition: int) -> bool:
        """Takes a node through a transition if it is in the state for it; returns whether it was.

        Raises:
            RobotFault: the node is in a state from which nobody here takes it, does not answer, or refuses.
        """
        get_state, change_state = self._lifecycles[name]
        state = self._call(get_state, GetState.Request()).current_state
        if state.id not in (State.PRIMARY_STATE_INACTIVE, State.PRIMARY_STATE_ACTIVE):
            raise RobotFault(f"{name} is {state.label}, so it cannot be started or stopped")
        if state.id != only_in:
            return False
        if not self._call(change_state, ChangeState.Request(transition=Transition(id=transition))).success:
            raise RobotFault(f"{name} refuses; its log says why")
        return True

    def _trigger(self, client: Client) -> str:
        return str(self._call(client, Trigger.Request()).message)

    def _call(self, client: Client, request: Any) -> Any:
        """Returns the answer of a service.

        Raises:
            RobotFault: none came.
        """
        if not client.service_is_ready():
            raise RobotFault(f"nobody offers {client.srv_name}")
        answered = threading.Event()
        answer = client.call_async(request)
        answer.add_done_callback(lambda _: answered.set())
        if not answered.wait(_PATIENCE):
            client.remove_pending_request(answer)
            raise RobotFault(f"{client.srv_name} did not answer within {_PATIENCE:g} s")
        return answer.result()
