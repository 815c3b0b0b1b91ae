"""What a person may ask of a graph: start, stop, reset, emergency stop. All through services that exist anyway."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.client import Client
from rclpy.duration import Duration
from rclpy.exceptions import InvalidHandle
from rclpy.task import Future
from std_msgs.msg import String
from std_srvs.srv import Trigger

from ros_rl.errors import RobotFault
from ros_rl.nodes.base import StackNode, describe
from ros_rl.nodes.messages import LATCHED_QOS
from ros_rl.web.record import WORDS
from ros_rl.web.view import Actions, Report

_PATIENCE = 5.0  # s for an answer
_CONFIRMED_WITHIN = 0.5  # s after which an emergency stop that nobody confirmed is sent again
_MOST_PENDING = 10  # emergency stops whose answers are still waited for: one may come late
_AT_REST = (State.PRIMARY_STATE_UNCONFIGURED, State.PRIMARY_STATE_INACTIVE, State.PRIMARY_STATE_FINALIZED)


class EmergencyStop:
    """Sends the emergency stop at once, and again until the hardware node confirms it.

    Attributes:
        alarm: what to tell the person while it is not confirmed in time; empty otherwise.
    """

    def __init__(self, client: Client):
        """Takes a client of `estop` that nobody else uses."""
        self.alarm = ""
        self._client = client
        self._changed = threading.Condition()
        self._pending: list[Future] = []
        self._watched = False

    def press(self, report: Report) -> None:
        """Sends a request before anything else, in the thread of the caller; it is out when this returns."""
        self._send()
        report("sent" if self._client.service_is_ready() else "sent, but no hardware node is there to hear it")
        with self._changed:
            if self._watched:
                return
            self._watched = True
        threading.Thread(target=self._watch, args=(report,), name="emergency stop", daemon=True).start()

    def withdraw(self) -> None:
        """Sends no more: the person releases it."""
        with self._changed:
            self._forget(0)
            self.alarm = ""
            self._changed.notify_all()

    def _send(self) -> None:
        answer = self._client.call_async(Trigger.Request())
        with self._changed:
            self._pending.append(answer)
            self._forget(_MOST_PENDING)
        answer.add_done_callback(self._wake)

    def _wake(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def _forget(self, kept: int) -> None:
        """Waits no longer for all but the newest requests."""
        while len(self._pending) > kept:
            self._client.remove_pending_request(self._pending.pop(0))

    def _watch(self, report: Report) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._pending or any(answer.done() for answer in self._pending), _CONFIRMED_WITHIN)
                answers = [answer.result() for answer in self._pending if answer.done()]
                confirmed = next((answer.message for answer in answers if answer.success), None)
                if confirmed is not None or not self._pending:
                    self._forget(0)
                    self.alarm, self._watched = "", False
                    break
                self._pending = [answer for answer in self._pending if not answer.done()]
                why = f"the hardware node answers '{answers[-1].message}'" if answers else "the hardware node does not answer"
                self.alarm = f"E-STOP NOT CONFIRMED: {why}; cut the power"
                if answers:  # a refusal that comes at once is no reason to send more often
                    self._changed.wait_for(lambda: not self.alarm, _CONFIRMED_WITHIN)
                    if not self.alarm:
                        self._watched = False
                        return
                try:
                    self._send()  # the lock is held: never after a release that came meanwhile
                except InvalidHandle:  # the node ends
                    return
            report("not confirmed, sent again")
        if confirmed is not None:
            report(confirmed)


class Operator:
    """Calls the services of a graph. The emergency stop is sent at once, by a client of its own; the rest runs in a thread."""

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
        self._estop, self._release = EmergencyStop(self._client(Trigger, "estop")), self._client(Trigger, "estop/reset")
        self._reset = self._client(Trigger, "sim/reset")
        self._task = {word: self._client(Trigger, f"task/{word}") for word in WORDS if word != "stop"}
        self._recorder = {word: self._client(Trigger, f"recorder/{word}") for word in WORDS}
        self._instruction = node.create_publisher(String, "task/instruction", LATCHED_QOS)
        names = ("policy_node", "task_node") if simulated else ("policy_node",)
        self._lifecycles = {
            name: (self._client(GetState, f"{name}/get_state"), self._client(ChangeState, f"{name}/change_state")) for name in names
        }

    @property
    def actions(self) -> Actions:
        """The same as what the buttons of a page do."""
        return Actions(
            estop=self._estop.press,
            release=partial(self._in_thread, self._on_release),
            start=partial(self._in_thread, self._on_start),
            stop=partial(self._in_thread, self._on_stop),
            record=lambda word, instruction, report: self._in_thread(partial(self._on_record, word, instruction), report),
            reset=partial(self._in_thread, lambda: self._trigger(self._reset)) if self._simulated else None,
            alarm=lambda: self._estop.alarm,
        )

    def _client(self, kind: type, name: str) -> Client:
        return self._node.create_client(kind, name, callback_group=self._group)

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
        """Activates the policy, then the tasks, if both can be. An active task node is told to start its next episode."""
        states = {name: self._state(name) for name in self._lifecycles}
        for name, state in states.items():
            if state.id not in (State.PRIMARY_STATE_INACTIVE, State.PRIMARY_STATE_ACTIVE):
                raise RobotFault(f"{name} is {state.label}, so it cannot be started")
        if states["policy_node"].id == State.PRIMARY_STATE_INACTIVE:
            self._change("policy_node", Transition.TRANSITION_ACTIVATE)
        if not self._simulated:
            return "started"
        try:
            if states["task_node"].id == State.PRIMARY_STATE_INACTIVE:
                self._change("task_node", Transition.TRANSITION_ACTIVATE)
                return "started"
            answer = self._call(self._task["start"], Trigger.Request())
        except RobotFault as error:
            return f"the policy runs; no episode: {error}"
        return "started" if answer.success else f"the policy runs; no episode: {answer.message}"

    def _on_stop(self) -> str:
        """Deactivates the policy first: without commands the guard holds the robot, then brings it to rest.

        Both parts are tried, whatever becomes of the other.
        """
        parts: dict[str, Callable[[], None]] = {"policy": partial(self._rest, "policy_node")}
        if self._simulated:
            parts["task"] = self._stop_task
        said, all_stopped = [], True
        for part, stop in parts.items():
            try:
                stop()
                said.append(f"the {part} is stopped")
            except RobotFault as error:
                said.append(f"the {part} is not stopped: {error}")
                all_stopped = False
        return "stopped; the guard holds the robot" if all_stopped else "; ".join(said)

    def _stop_task(self) -> None:
        with suppress(RobotFault):  # there may be no episode to discard
            self._call(self._task["discard"], Trigger.Request())
        self._rest("task_node")

    def _on_record(self, word: str, instruction: str) -> str:
        """Tells the task node, whose episodes a recorder follows; where that judges nothing, the recorder itself."""
        task, recorder = self._task.get(word), self._recorder[word]
        refusal = ""
        if task is not None and task.service_is_ready():
            answer = self._call(task, Trigger.Request())
            if answer.success:
                return "done"
            refusal = f"{answer.message}; "
        if not recorder.service_is_ready():
            raise RobotFault(f"{refusal}nobody offers {recorder.srv_name}")
        if word == "start" and instruction:
            self._instruction.publish(String(data=instruction))
            self._instruction.wait_for_all_acked(Duration(seconds=_PATIENCE))
        answer = self._call(recorder, Trigger.Request())
        return answer.message or ("done" if answer.success else "refused")

    def _on_release(self) -> str:
        """Silences the policy, then releases the emergency stop: a release alone sets nothing in motion."""
        # Without a policy node there is nobody who would send commands; one that is there and stays active keeps the stop latched.
        if self._lifecycles["policy_node"][0].service_is_ready():
            try:
                self._rest("policy_node")
            except RobotFault as error:
                raise RobotFault(f"not released, the policy may still be active: {error}") from None
        self._estop.withdraw()
        answer = self._call(self._release, Trigger.Request())
        return "released; press start to go on" if answer.success else f"not released: {answer.message}"

    def _rest(self, name: str) -> None:
        """Deactivates a node if it is active.

        Raises:
            RobotFault: it does not answer, refuses, or is between two states.
        """
        state = self._state(name)
        if state.id == State.PRIMARY_STATE_ACTIVE:
            self._change(name, Transition.TRANSITION_DEACTIVATE)
        elif state.id not in _AT_REST:
            raise RobotFault(f"{name} is {state.label}")

    def _state(self, name: str) -> State:
        return self._call(self._lifecycles[name][0], GetState.Request()).current_state

    def _change(self, name: str, transition: int) -> None:
        if not self._call(self._lifecycles[name][1], ChangeState.Request(transition=Transition(id=transition))).success:
            raise RobotFault(f"{name} refuses; its log says why")

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
