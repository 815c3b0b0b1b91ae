"""What the nodes share: declared parameters, lifecycle with one-line errors, diagnostics, and a clean end."""

import gc
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException, ParameterException
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.signals import SignalHandlerOptions
from rclpy.timer import Timer
from rclpy.utilities import ok
from rosgraph_msgs.msg import Clock as ClockMessage

from ros_rl.errors import RobotFault, UserError
from ros_rl.nodes.environment import BAD_INPUT, FAILURE, LAUNCHER, ros_domain
from ros_rl.nodes.executor import spin_nodes
from ros_rl.nodes.parameters import Parameter, Value
from ros_rl.sim.gl import check_variable

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
_DIAGNOSTICS_PERIOD = 1.0
REPEAT_AFTER = 0.1  # s after which lock-step publishes again what nobody answered
# Threads take turns often: the control loop must not wait 5 ms for a callback to let go of the interpreter.
SWITCH_INTERVAL = 2e-4  # s
_DECIMAL = re.compile(r"\d+\.\d+")


def declare(node: Node, table: Sequence[Parameter]) -> None:
    """Declares the parameters of a node, each with description, type and range.

    Raises:
        UserError: a value given at start does not fit.
    """
    known = {parameter.name: parameter for parameter in table}
    for parameter in table:
        descriptor = ParameterDescriptor(
            description=parameter.description,
            additional_constraints=parameter.expected(),
            read_only=not parameter.dynamic,
        )
        bounded = abs(parameter.minimum) < 1e300 and abs(parameter.maximum) < 1e300
        if isinstance(parameter.default, float) and bounded:
            descriptor.floating_point_range = [FloatingPointRange(from_value=parameter.minimum, to_value=parameter.maximum)]
        elif isinstance(parameter.default, int) and not isinstance(parameter.default, bool) and bounded:
            descriptor.integer_range = [IntegerRange(from_value=int(parameter.minimum), to_value=int(parameter.maximum))]
        try:
            node.declare_parameter(parameter.name, parameter.default, descriptor)
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            given = re.search(r"(?:to|value) [('](.*?)[)'] (?:of|for)", str(error))
            raise UserError(
                f"{node.get_name()}: {parameter.name} must be {parameter.expected()}, got '{given[1] if given else ''}'"
            ) from None
        try:
            parameter.check(value_of(node, parameter.name))
        except UserError as error:
            raise UserError(f"{node.get_name()}: {error}") from None

    def check(changes: list[RosParameter]) -> SetParametersResult:
        try:
            for change in changes:
                if change.name in known:
                    known[change.name].check(change.value)
        except UserError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(check)


def value_of(node: Node, name: str) -> Any:
    """Returns the value of a parameter; lists without their empty names (ROS has no type for an empty list)."""
    value: Value = node.get_parameter(name).value
    if isinstance(value, str | bool | int | float):
        return value
    return [entry for entry in value if entry != ""]


def describe(error: Exception) -> str:
    """Returns an error as one line; one that nobody foresaw with its type and where it came from."""
    if isinstance(error, UserError | RobotFault):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}{place}".split())


class StackNode(LifecycleNode):
    """A lifecycle node of the stack.

    A subclass implements `configure`, `activate`, `deactivate` and `release`; the last two also clean up after a
    transition that failed half way. Topics, services, clients and timers that were opened since `configure` began are
    closed after `release`. What a transition raises becomes one logged line and a failed transition; with `autostart`
    the process then ends with the matching exit code. An exception in a callback is reported and does not end the node.
    """

    def __init__(self, name: str, table: Sequence[Parameter], **options: Any):
        """Declares the parameters.

        Args:
            name: of the node.
            table: its parameters.
            options: for `rclpy`'s node, such as `namespace` or `parameter_overrides`.

        Raises:
            UserError: a value given at start does not fit.
        """
        try:
            super().__init__(name, **options)
            declare(self, table)
        except ParameterException as error:
            raise UserError(f"{name}: {error}") from None
        self.active = False
        self.failure: Exception | None = None
        self.trace: Callable[[str, float], None] | None = None
        self._starting = False
        self._said: dict[str, str] = {}
        self._own: set[object] | None = None  # what the node had before `configure`
        self._diagnostics = self.create_publisher(DiagnosticArray, "diagnostics", 10)
        self.every(_DIAGNOSTICS_PERIOD, self.publish_diagnostics)

    def every(self, period: float, action: Callable[[], None]) -> Timer:
        """Calls `action` every `period` seconds of real time: simulated time may stand still."""
        return self.create_timer(period, self.contained(action.__name__, action), clock=Clock(clock_type=ClockType.STEADY_TIME))

    def contained(self, place: str, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `callback` so that what it raises is reported under the name of `place` and goes no further."""
        place = f"{place} callback"

        def call(*arguments: Any) -> Any:
            try:
                result = callback(*arguments)
            except Exception as error:
                self.say(place, describe(error))
                return None
            self.say(place, None)
            return result

        return call

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., None], *arguments: Any, with_info: bool = False, **options: Any
    ) -> Any:
        """Subscribes with a callback that cannot end the node; `with_info` it also gets what is known of the way of a message."""
        contained = self.contained(topic, callback)

        def receive(message: Any) -> None:
            contained(message)

        def receive_with_info(message: Any, info: dict[str, int]) -> None:
            contained(message, info)

        return super().create_subscription(msg_type, topic, receive_with_info if with_info else receive, *arguments, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Callable[[Any, Any], Any], *arguments: Any, **options: Any) -> Any:
        """Offers a service whose callback cannot end the node: whoever asks gets an answer in any case."""

        def answer(request: Any, response: Any) -> Any:
            try:
                return callback(request, response)
            except Exception as error:
                self.get_logger().error(f"{srv_name}: {describe(error)}")
                for field, value in (("success", False), ("message", describe(error))):
                    if hasattr(response, field):
                        setattr(response, field, value)
                return response

        return super().create_service(srv_type, srv_name, answer, *arguments, **options)

    def value(self, name: str) -> Any:
        """Returns the value of a parameter."""
        return value_of(self, name)

    def say(self, topic: str, problem: str | None) -> None:
        """Logs a problem when it begins or becomes another one, not at every tick; None when it is over."""
        before = self._said.get(topic)
        if problem is None:
            if before is not None:
                self.get_logger().info(f"{topic}: recovered")
                del self._said[topic]
            return
        # An age that grows from tick to tick does not make it another problem.
        if before is None or _DECIMAL.sub("", before) != _DECIMAL.sub("", problem):
            self.get_logger().warning(f"{topic}: {problem}")
        self._said[topic] = problem

    def status(self) -> tuple[bytes, str, Mapping[str, object]]:
        """Returns level, message and values for the diagnostics."""
        if self.failure is not None:
            return ERROR, describe(self.failure), {}
        for topic, problem in self._said.items():
            return WARN, f"{topic}: {problem}", {}
        return OK, "active" if self.active else "inactive", {}

    def publish_diagnostics(self) -> None:
        """Publishes how the node is."""
        level, message, values = self.status()
        status = DiagnosticStatus(level=level, name=self.get_fully_qualified_name(), message=message)
        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)

    def autostart(self) -> None:
        """Configures and activates the node if its parameters say so.

        Raises:
            UserError, RobotFault: what kept it from starting.
        """
        if not self.value("autostart"):
            return
        self._starting = True  # whoever starts the node reports what it raises
        try:
            for transition in (self.trigger_configure, self.trigger_activate):
                transition()
                if self.failure is not None:
                    raise self.failure
        finally:
            self._starting = False

    def configure(self) -> None:
        """Loads what the node needs and opens its topics."""

    def activate(self) -> None:
        """Starts work."""

    def deactivate(self) -> None:
        """Pauses work."""

    def release(self) -> None:
        """Gives back what `configure` took, other than topics, services, clients and timers."""

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """ROS lifecycle: unconfigured to inactive."""
        self._own = self._entities()
        result = self._transition(self.configure)
        if result != TransitionCallbackReturn.SUCCESS:
            try:
                self._release()
            except Exception as error:
                self.get_logger().error(describe(error))
        return result

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """ROS lifecycle: inactive to active."""
        result = self._transition(self.activate)
        self.active = result == TransitionCallbackReturn.SUCCESS
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """ROS lifecycle: active to inactive."""
        self.active = False
        return self._transition(self.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """ROS lifecycle: inactive to unconfigured."""
        return self._transition(self._release)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """ROS lifecycle: any state to finalized."""
        return self._transition(self.end)

    def end(self) -> None:
        """Brings the node to rest from whatever state it is in."""
        self.active = False
        try:
            self.deactivate()
        finally:
            self._release()

    def _release(self) -> None:
        try:
            self.release()
        finally:
            self._close_opened()

    def _entities(self) -> set[Any]:
        return {*self.publishers, *self.subscriptions, *self.services, *self.clients, *self.timers}

    def _close_opened(self) -> None:
        """Closes whatever was opened since `configure` began."""
        if self._own is None:
            return
        own, self._own = self._own, None
        pairs: tuple[tuple[Iterable[Any], Callable[[Any], bool]], ...] = (
            (self.publishers, self.destroy_publisher),
            # A subscription to /clock is rclpy's: it opens one when `use_sim_time` is set later on.
            ([entry for entry in self.subscriptions if entry.msg_type is not ClockMessage], self.destroy_subscription),
            (self.services, self.destroy_service),
            (self.clients, self.destroy_client),
            (self.timers, self.destroy_timer),
        )
        for entities, destroy in pairs:
            for entity in set(entities) - own:
                destroy(entity)

    def _transition(self, action: Callable[[], None]) -> TransitionCallbackReturn:
        self.failure = None
        try:
            action()
        except Exception as error:
            self.failure = error
            if not self._starting:
                self.get_logger().fatal(describe(error))
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS


def start_ros(arguments: Sequence[str] = ()) -> None:
    """Starts ROS in this process; signals stay ours, so that a robot can be stopped over ROS when the process ends.

    Raises:
        UserError: the environment or the arguments do not fit; the message names the variable.
    """
    ros_domain()
    try:
        rclpy.init(args=list(arguments), signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # rclpy raises bare exceptions of its C layer here
        raise UserError(f"ROS does not start: {str(error).splitlines()[0]}") from None


def spin(nodes: Sequence[StackNode], until: Callable[[], bool] = lambda: False) -> None:
    """Starts nodes and runs them until a signal or `until`, then brings all of them to rest.

    Raises:
        UserError, RobotFault: what kept a node from starting.
    """
    stop, starting = threading.Event(), True

    def on_signal(*_: object) -> None:
        stop.set()
        if starting:
            raise KeyboardInterrupt  # a node that waits for its robot need not wait to the end

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        for node in nodes:
            node.autostart()
        starting = False
        # What was made so far stays to the end: the collector need not look through it again and hold up the control loop.
        gc.collect()
        gc.freeze()
        launcher = os.environ.get(LAUNCHER)
        # A launcher that was killed could not end its nodes: they notice, and bring the robot to rest themselves.
        spin_nodes(nodes, lambda: stop.is_set() or (launcher is not None and str(os.getppid()) != launcher) or until())
    except (ExternalShutdownException, KeyboardInterrupt):
        pass
    finally:
        starting = False
        for node in reversed(nodes):
            try:
                node.end()
            except Exception as error:
                node.get_logger().error(describe(error))


def run(make: Callable[[], Sequence[StackNode]]) -> int:
    """The `main` of a process: runs the nodes that `make` returns, and returns the exit code, 2 for bad input and 1 for a fault."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        check_variable()
        start_ros(sys.argv)
        nodes = make()
        try:
            spin(nodes)
        finally:
            for node in nodes:
                node.destroy_node()
    except KeyboardInterrupt:
        return 0
    except UserError as error:
        print(f"ros_rl: {error}", file=sys.stderr)
        return BAD_INPUT
    except RobotFault as error:
        print(f"ros_rl: {error}", file=sys.stderr)
        return FAILURE
    finally:
        if ok():
            rclpy.shutdown()
    return 0
