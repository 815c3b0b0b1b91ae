"""Measures the control loop and the hops of the node graph, against bare rclpy nodes that pass the same messages on."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from ros_rl.bringup import BRINGUPS, Graph, bringup_for, graph
from ros_rl.errors import RobotFault
from ros_rl.hardware.interface import JointCommand
from ros_rl.hardware.pacing import Pacer
from ros_rl.nodes.base import SWITCH_INTERVAL, StackNode, spin, start_ros
from ros_rl.nodes.composed_node import make
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.messages import COMMAND_QOS, STREAM_QOS, from_time, to_joint_state, to_trajectory
from ros_rl.robots.spec import RobotSpec, load_robot

HOPS = (("observation", "policy"), ("policy", "safety"), ("safety", "command"))
_SETTLE = 1.0  # s at the start of every measurement that are left out: discovery, first inference, caches


class Trace:
    """When each tick of the loop passed each place, by the stamp of its observation."""

    def __init__(self) -> None:
        """Starts empty."""
        self.times: dict[str, dict[float, float]] = {place: {} for place in ("observation", "policy", "safety", "command")}

    def __call__(self, place: str, stamp: float) -> None:
        """Notes the time at a place."""
        self.times[place].setdefault(stamp, time.perf_counter())

    def periods(self) -> np.ndarray:
        """Returns the times between observations, s."""
        starts = np.array(list(self.times["observation"].values()))
        return np.diff(starts[starts > starts[0] + _SETTLE])

    def latency(self, start: str, end: str) -> np.ndarray:
        """Returns how long ticks took from one place to another, s."""
        begun = next(iter(self.times["observation"].values())) + _SETTLE
        pairs = ((at, self.times[end].get(stamp)) for stamp, at in self.times[start].items())
        return np.array([then - at for at, then in pairs if then is not None and at > begun])


class _Echo(Node):
    """A bare node that passes a message on, turned into the next hop's type."""

    def __init__(self, place: str, source: str, kind: type, target: str, turn: Callable[[Any], JointTrajectory], trace: Trace):
        super().__init__(f"echo_{place}")
        publisher = self.create_publisher(JointTrajectory, target, STREAM_QOS)

        def receive(message: Any) -> None:
            trace(place, from_time(message.header.stamp))
            publisher.publish(turn(message))

        self.create_subscription(kind, source, receive, COMMAND_QOS)


def bare_loop(spec: RobotSpec, seconds: float) -> Trace:
    """Runs three bare nodes and a paced publisher, and nothing else."""
    trace, stop = Trace(), threading.Event()
    home = spec.home
    positions = np.array(home[: len(spec.joints)])
    source = Node("echo_source")
    publisher = source.create_publisher(JointState, "echo/state", STREAM_QOS)

    def arrive(message: JointTrajectory) -> None:
        trace("command", from_time(message.header.stamp))

    source.create_subscription(JointTrajectory, "echo/command", arrive, COMMAND_QOS)

    def turn(message: JointState) -> JointTrajectory:
        turned = to_trajectory(JointCommand(spec.joint_names, positions, 0.0), spec.command_mode)
        turned.header = message.header
        return turned

    nodes = [
        source,
        _Echo("policy", "echo/state", JointState, "echo/action", turn, trace),
        _Echo("safety", "echo/action", JointTrajectory, "echo/command", lambda message: message, trace),
    ]

    def publish() -> None:
        pacer = Pacer(spec.period)
        tick = 0
        while not stop.is_set():
            tick += 1
            message = to_joint_state(tick * spec.period, spec.measured_names, home, home, home)
            trace("observation", from_time(message.header.stamp))
            publisher.publish(message)
            pacer.wait()

    thread = threading.Thread(target=publish, daemon=True)
    executor = SingleThreadedExecutor()
    for node in nodes:
        executor.add_node(node)
    deadline = time.monotonic() + seconds
    thread.start()
    while time.monotonic() < deadline:
        executor.spin_once(timeout_sec=0.1)
    stop.set()
    thread.join()
    executor.shutdown()
    for node in nodes:
        node.destroy_node()
    return trace


def stack_loop(described: Graph, seconds: float) -> tuple[Trace, int, int]:
    """Runs a graph composed in this process, in real time.

    Returns:
        its trace, the number of control periods, and the number of missed deadlines.
    """
    trace = Trace()
    nodes: list[StackNode] = []
    for description in described.nodes:
        if description.executable != "task_node":
            node = make(description.executable, dict(description.parameters), described.namespace)
            node.trace = trace
            nodes.append(node)
    hardware = nodes[0]
    assert isinstance(hardware, HardwareNode)
    start = time.monotonic()
    settled: list[tuple[int, int]] = []

    def over() -> bool:
        now = time.monotonic()
        if not settled and now > start + _SETTLE:
            settled.append((hardware.pacer.ticks, hardware.pacer.overruns))
        return now > start + seconds

    spin(nodes, until=over)
    for node in nodes:
        node.destroy_node()
    return trace, hardware.pacer.ticks - settled[0][0], hardware.pacer.overruns - settled[0][1]


def measure(name: str, rate: float, seconds: float) -> dict[str, Any]:
    """Measures the stack between two runs of the bare nodes, so that a machine that drifts favours neither.

    Returns:
        JSON-ready figures: times in µs, ratios of medians in the same run.

    Raises:
        UserError: there is no robot or bring-up of that name, or its policy does not fit the rate.
        RobotFault: the machine was too busy for a single command in that time.
    """
    bringup, robot = bringup_for(name)
    arguments = {"robot": robot, "tasks": BRINGUPS[bringup].plain_task, "control_rate": str(rate), "namespace": "bench"}
    described, spec = graph(bringup, arguments), load_robot(robot, rate)
    start_ros()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        before = bare_loop(spec, seconds / 4 + _SETTLE)
        trace, ticks, overruns = stack_loop(described, seconds + _SETTLE)
        bare = (before, bare_loop(spec, seconds / 4 + _SETTLE))
    finally:
        rclpy.shutdown()
    if not all(len(one.latency("observation", "command")) for one in (trace, *bare)):
        raise RobotFault(
            f"no observation was answered by a command within {seconds:g} s at {rate:g} Hz; take longer, or a machine with less to do"
        )
    hops = {}
    for start, end in HOPS:
        ours = trace.latency(start, end) * 1e6
        theirs = np.concatenate([one.latency(start, end) for one in bare]) * 1e6
        hops[f"{start}→{end}"] = {**_percentiles(ours), "bare_p50": round(float(np.median(theirs)), 1), "ratio": _ratio(ours, theirs)}
    ours = trace.latency("observation", "command") * 1e6
    theirs = np.concatenate([one.latency("observation", "command") for one in bare]) * 1e6
    jitter = np.abs(trace.periods() - spec.period) * 1e6
    return {
        "robot": spec.name,
        "rate": spec.control_rate,
        "seconds": seconds,
        "ticks": ticks,
        "overruns": overruns,
        "overrun_share": overruns / max(ticks, 1),
        "jitter_us": _percentiles(jitter),
        "hops_us": hops,
        "observation_to_command_us": {**_percentiles(ours), "bare_p50": round(float(np.median(theirs)), 1)},
        "ratio": _ratio(ours, theirs),
        "answered_share": len(ours) / max(len(trace.periods()), 1),
    }


def _percentiles(values: np.ndarray) -> dict[str, float]:
    """Returns median, 99th percentile and maximum."""
    return {name: round(float(np.percentile(values, percent)), 1) for name, percent in (("p50", 50), ("p99", 99), ("max", 100))}


def _ratio(ours: np.ndarray, theirs: np.ndarray) -> float:
    return round(float(np.median(ours) / np.median(theirs)), 3)
