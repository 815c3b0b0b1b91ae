"""Measures a recorder in real time: what is lost, what it costs, and whether the control loop notices.

Run as a program, this module is the two cameras: they send test pictures at a fixed rate, stamped with the robot's time.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String

from ros_rl.bringup import BRINGUPS, Graph, NodeDescription, bringup_for, environment, graph
from ros_rl.data.cameras import recorded_cameras
from ros_rl.data.dataset import Dataset
from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.pacing import Pacer
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.environment import LAUNCHER
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import COMMAND_QOS, IMAGE_STREAM_QOS, TASK_STATE_QOS, from_time, to_image, to_time
from ros_rl.nodes.watcher import Load, Watcher
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import load_task

_SETTLE = 2.0  # s before the recording begins: discovery, first inference
_PICTURES = 16  # different ones, in turn
_PATIENCE = 4.0  # s that the cameras have to end
_WRITES = 600.0  # s that the episode may take to be written


class _RecorderWatcher(Watcher):
    """Follows the recorder, too."""

    def __init__(self, namespace: str):
        """Opens the topics."""
        super().__init__("bench_record", namespace)
        self.recorder: dict[str, Any] = {}
        self.create_subscription(String, "recorder/status", self._on_status, TASK_STATE_QOS)

    def _on_status(self, message: String) -> None:
        self.recorder = json.loads(message.data)


def measure(name: str, seconds: float, fps: int, folder: Path, progress: Callable[[float], object]) -> dict[str, Any]:
    """Records a robot and two cameras.

    Args:
        name: of a robot or a bring-up.
        seconds: how long.
        fps: images of each camera a second, and rows of the dataset.
        folder: where the dataset goes.
        progress: called with the seconds that have passed.

    Returns:
        JSON-ready figures: of each source what was asked for, delivered, dropped (lost on the way), its rate (Hz) and largest gap (s);
        the share of a core of every process; control periods and missed deadlines; how long the episode took to be written (s).

    Raises:
        UserError: there is no such robot, or it has no two cameras.
        RobotFault: the graph does not run.
    """
    described, cameras = _graph(name, fps, folder)
    start_ros()
    watcher = _RecorderWatcher(described.namespace)
    source = [sys.executable, "-m", "ros_rl.nodes.bench_record", described.namespace, str(fps), *cameras]
    try:
        # The cameras are a process that publishes images, as the hardware node is where it renders them.
        as_hardware = os.environ | environment(NodeDescription("hardware_node", {"cameras": list(cameras)}))
        with (
            GraphProcesses(described, quiet=True) as running,
            subprocess.Popen(source, env=as_hardware, start_new_session=True) as pictures,
        ):
            watcher.check = partial(_check, running, pictures)
            try:
                watcher.until(lambda: watcher.recorder and not watcher.recorder["missing"] and watcher.counts, SILENCE, "the graph")
                time.sleep(_SETTLE)
                identities = {"cameras": pictures.pid} | {key: process.pid for key, process in running.processes.items()}
                result = _record(watcher, identities, seconds, progress)
            finally:
                _end(pictures)
    finally:
        watcher.close()
        rclpy.shutdown()
    (episode,) = Dataset.open(folder).episodes
    for key, found in episode.recording["sources"].items():
        asked = {"asked": round(fps * seconds)} if key in cameras else {}
        figures = {"delivered": found["count"], "dropped": found["dropped"], "rate": found["rate"], "largest_gap": found["largest_gap"]}
        result["sources"][key] = asked | figures
    return {"robot": name, "fps": fps, "seconds": seconds, "rows": episode.length, **result}


def _check(running: GraphProcesses, pictures: "subprocess.Popen[bytes]") -> None:
    """Refuses to measure a graph without one of its processes, which is another graph."""
    for name, process in {**running.processes, "the process of the cameras": pictures}.items():
        if (code := process.poll()) is not None:
            raise RobotFault(f"{name} ended with exit code {code}: {running.last_words}")


def _end(pictures: "subprocess.Popen[bytes]") -> None:
    pictures.terminate()
    try:
        pictures.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        pictures.kill()


def _graph(name: str, fps: int, folder: Path) -> tuple[Graph, tuple[str, ...]]:
    """Returns the graph without the task node, and its two cameras, which the hardware node does not render."""
    bringup, robot = bringup_for(name)
    task = BRINGUPS[bringup].plain_task
    known = [camera.name for camera in recorded_cameras(load_robot(robot), load_task(task, robot).scene)]
    if len(known) < 2:
        raise UserError(f"robot '{robot}' has {', '.join(known) or 'no camera'}; two cameras are needed")
    cameras = tuple(known[:2])
    given = {"robot": robot, "tasks": task, "instruction": load_task(task, robot).instruction, "namespace": "bench_record"}
    given |= {"dataset": str(folder), "fps": str(fps), "cameras": ",".join(cameras), "follow_task": "false"}
    described = graph(bringup, given)
    nodes = tuple(
        replace(node, parameters={**node.parameters, "cameras": [""]}) if node.executable == "hardware_node" else node
        for node in described.nodes
        if node.executable != "task_node"
    )
    return replace(described, nodes=nodes), cameras


def _record(watcher: _RecorderWatcher, processes: dict[str, int], seconds: float, progress: Callable[[float], object]) -> dict[str, Any]:
    watcher.call("recorder/start")
    load, began = Load(watcher, processes), time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        watcher.wait()
        progress(round(now, 1))
    figures = load.figures()
    watcher.call("recorder/stop")
    stopped = time.monotonic()
    watcher.until(lambda: watcher.recorder.get("committed") or watcher.recorder.get("problem"), _WRITES, "the episode to be written")
    if watcher.recorder["problem"]:
        raise RobotFault(watcher.recorder["problem"])
    return {"sources": {}, **figures, "commit_seconds": round(time.monotonic() - stopped, 2)}


class _RobotClock:
    """The robot's time, carried on from its last joint state; it never goes back, also where the robot is late."""

    def __init__(self, node: Node):
        self._heard: tuple[float, float] | None = None
        self._last = 0.0
        node.create_subscription(JointState, "joint_states", self._on_joints, COMMAND_QOS)

    def _on_joints(self, message: JointState) -> None:
        self._heard = from_time(message.header.stamp), time.monotonic()

    def now(self) -> float | None:
        """Returns the time in s, None before the first joint state."""
        if self._heard is None:
            return None
        stamp, at = self._heard
        self._last = max(self._last + 1e-6, stamp + time.monotonic() - at)
        return self._last


def _send_pictures(namespace: str, fps: int, names: list[str]) -> None:
    """Sends test pictures until it is interrupted, or whoever started this process is gone."""
    launcher = os.environ.get(LAUNCHER)
    start_ros()
    node = Node("bench_cameras", namespace=namespace)
    clock = _RobotClock(node)
    publishers = [node.create_publisher(Image, f"camera/{name}/image_raw", IMAGE_STREAM_QOS) for name in names]
    pictures = [to_image(0.0, "test", _picture(number)) for number in range(_PICTURES)]
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    pacer = Pacer(1.0 / fps)
    try:
        while launcher is None or launcher == str(os.getppid()):
            executor.spin_once(timeout_sec=0.0)
            if (stamp := clock.now()) is not None:
                picture = pictures[pacer.ticks % _PICTURES]
                picture.header.stamp = to_time(stamp)
                for publisher in publishers:
                    publisher.publish(picture)
            pacer.wait()
    finally:
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
        rclpy.shutdown()


def _picture(number: int) -> np.ndarray:
    """Returns an image, (480, 640, 3) uint8: waves that move, with the noise of a camera."""
    rows, columns = np.mgrid[0:480, 0:640]
    phase = 2 * np.pi * number / _PICTURES
    waves = np.stack([np.sin(rows / 40 + phase), np.sin(columns / 50 - phase), np.sin((rows + columns) / 60 + phase)], axis=-1)
    noise = np.random.default_rng(number).normal(0.0, 3.0, waves.shape)
    image: np.ndarray = np.clip(128 + 90 * waves + noise, 0, 255).astype(np.uint8)
    return image


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("namespace")
    parser.add_argument("fps", type=int)
    parser.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell that runs this beside something else has it ignored
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        _send_pictures(arguments.namespace, arguments.fps, arguments.names)
