"""Tests of ros_rl.nodes.launcher and of `ros-rl up`: whatever ends a graph, nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import PATIENCE, graph_of
from rclpy.parameter import Parameter
from trajectory_msgs.msg import JointTrajectory

from ros_rl.bringup import processes
from ros_rl.errors import UserError
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.launcher import GraphProcesses

UP = [sys.executable, "-m", "ros_rl.cli.main", "up", "cartpole", "namespace:=test"]


def children(process):
    """Returns the ids of a process's children, as the kernel lists them."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def alive(number):
    """Whether a process runs; one that has ended but was not yet asked for its exit code does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def up():
    """Gives a test a function that starts `ros-rl up` and ends it if the test does not."""
    started = []

    def start(*words):
        process = subprocess.Popen([*UP, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)
        process.stdout.close()


def assert_clean_end(process, nodes):
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in output and "Error" not in output
    assert not [node for node in nodes if alive(node)]


COMPOSED = "composed:=true"


@pytest.mark.parametrize(
    ("number", "words", "count"),
    [
        (signal.SIGINT, (), 4),
        (signal.SIGTERM, (), 4),
        (signal.SIGHUP, (COMPOSED,), 1),
        (signal.SIGINT, (COMPOSED,), 1),
        (signal.SIGINT, (COMPOSED, "web:=true", "web_port:=0"), 2),
    ],
)
def test_a_running_graph_ends_clean(ros, up, number, words, count):
    process, commands = up(*words), ros.hear(JointTrajectory, "joint_command")
    ros.until(lambda: len(commands) > 20, "for the graph to run")
    nodes = children(process)
    assert len(nodes) == count
    process.send_signal(number)
    assert_clean_end(process, nodes)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "no log"),
        ("[INFO] a\n[INFO] b\n\n", "[INFO] b"),
        ("[INFO] a\nros_rl: the disk is full\n[INFO] b\nros_rl: see the robot at http://x/y/\n", "ros_rl: the disk is full"),
        ("NotADirectoryError: [Errno 20] file\n[WARN] late\n", "NotADirectoryError: [Errno 20] file"),
        ("[ERROR] a\n[WARN] b\n[INFO] c\n", "[WARN] b"),
    ],
)
def test_last_words_are_those_that_tell_what_went_wrong(log, words):
    graph = GraphProcesses(graph_of("cartpole"), quiet=True)
    graph.log.write_text(log)
    assert graph.last_words == words
    graph._folder.cleanup()


def test_nodes_whose_launcher_was_killed_end_by_themselves(ros, up):
    process, commands = up(), ros.hear(JointTrajectory, "joint_command")
    ros.until(lambda: len(commands) > 20, "for the graph to run")
    nodes = children(process)
    process.kill()
    ros.until(lambda: not any(alive(node) for node in nodes), "for the nodes to end")


@pytest.mark.parametrize("loaded", [False, True])
def test_a_graph_that_is_still_starting_ends_clean(up, loaded):
    process = up("mode:=robot")  # there is no robot: the hardware node waits for it
    wait_for(lambda: len(children(process)) == 4)
    if loaded:
        wait_for(lambda: all("librcl" in Path(f"/proc/{node}/maps").read_text() for node in children(process)))
    nodes = children(process)
    process.send_signal(signal.SIGINT)
    assert_clean_end(process, nodes)


def test_a_graph_whose_processes_cannot_find_each_other_is_refused(monkeypatch):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF")
    graph = GraphProcesses(graph_of("cartpole"))
    with pytest.raises(UserError, match="ROS_AUTOMATIC_DISCOVERY_RANGE=OFF hides nodes of other processes; set it to LOCALHOST"):
        graph.__enter__()
    assert not graph.processes


def test_a_signal_while_a_process_starts_leaves_none_behind(monkeypatch):
    """Another thread takes the signal, as those of a numerical library do: this one's mask does not hold it back."""
    started, start = [], subprocess.Popen
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result()  # the thread is there before any mask that it would inherit

        def interrupted(*arguments, **options):
            started.append(start(*arguments, **options))
            other.submit(signal.raise_signal, signal.SIGINT).result()
            return started[-1]

        monkeypatch.setattr(subprocess, "Popen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            GraphProcesses(graph_of("cartpole"), quiet=True).__enter__()
    assert len(started) == 1 and started[0].poll() is not None


def test_a_signal_that_came_while_a_process_could_not_be_started_is_not_lost(monkeypatch):
    def failing(*_, **__):
        signal.raise_signal(signal.SIGINT)
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", failing)
    with pytest.raises(KeyboardInterrupt):
        GraphProcesses(graph_of("cartpole"), quiet=True).__enter__()


@pytest.mark.parametrize(("composed", "last"), [(False, "hardware_node"), (True, "composed_node")])
def test_the_robots_process_is_asked_last(composed, last):
    asked = []

    class Process:
        def __init__(self, name):
            self.name = name

        def poll(self):
            return None

        def send_signal(self, _):
            asked.append(self.name)

        def wait(self, _=None):
            return 0

        kill = wait

    described = graph_of("cartpole", composed=composed, web=True)
    graph = GraphProcesses(described)
    graph.processes = {description.executable: Process(description.executable) for description in processes(described)}
    graph._ask(signal.SIGINT, 1.0)
    assert asked[-1] == last and len(asked) == len(graph.processes) == (2 if composed else 5)


def test_a_second_hardware_node_ends_its_graph_with_one_line(ros, up):
    ros.add(HardwareNode(namespace="test", parameter_overrides=[Parameter("robot", value="cartpole")]))
    process = up()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    lines = [line for line in output.splitlines() if "another" in line]
    assert lines == [
        f"ros_rl: another /test/hardware_node runs in this ROS domain (process {os.getpid()}); end it or give this one another namespace"
    ]
    assert "Traceback" not in output
