"""Proves that the node graph computes what the in-process loop computes, bit for bit."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from ros_rl.bringup import BRINGUPS, Graph, NodeDescription, bringup_for, graph, tasks_for
from ros_rl.errors import RobotFault
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.nodes.base import start_ros
from ros_rl.nodes.environment import isolate
from ros_rl.nodes.launcher import SILENCE, GraphProcesses
from ros_rl.nodes.messages import RECORDER_QOS, JointReader, from_time, from_trajectory
from ros_rl.nodes.starter import NodeStarter, held_back
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import load_task


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What a run did: stamps (T,) in s, measured joint positions (T, m) and commands to the guard (T, n)."""

    stamps: np.ndarray
    positions: np.ndarray
    commands: np.ndarray


def largest_difference(one: Trajectory, other: Trajectory) -> float:
    """Returns the largest difference of any joint position or command; infinite where stamps differ or steps are missing."""
    if not np.array_equal(one.stamps, other.stamps):
        return float("inf")
    return float(max(np.abs(one.positions - other.positions).max(), np.abs(one.commands - other.commands).max()))


def in_process(spec: RobotSpec, task_name: str, seed: int, steps: int, policy: str | Path = "") -> Trajectory:
    """Runs the data path of a task in this process, with its own policy or another one; the cameras that it reads take images."""
    task = load_task(task_name, spec.name)
    bundle = load_bundle(policy or task.policy)
    robot = GuardedRobot(MujocoRobot(spec, task, seed, bundle.spec.cameras), Guard(spec))
    ticks: list[Step] = []
    run_episode(
        robot,
        PolicyRunner(load_policy(bundle, spec), seed),
        SafetyStage(spec, PassThrough()),
        seed,
        steps,
        record=ticks.append,
    )
    robot.close()
    return Trajectory(
        np.array([tick.observation.stamp for tick in ticks]),
        np.array([tick.observation.joint_position for tick in ticks]),
        np.array([tick.command.values for tick in ticks]),
    )


def lockstep_graph(name: str, task: str, seed: int, composed: bool, mode: str) -> Graph:
    """Returns a graph that runs one task in lock-step, without a task node to reset it; its policy waits to be started.

    Args:
        name: of a robot or a bring-up.
        task: name of the task.
        seed: of the initial state.
        composed: whether all nodes share one process.
        mode: ``sim``, or ``robot`` for a simulated robot behind the topics of ros2_control.
    """
    bringup, robot = bringup_for(name)
    arguments = {"robot": robot, "tasks": task, "seed": str(seed), "composed": str(composed).lower(), "mode": mode}
    told = load_task(task)
    command = ",".join(map(str, told.command))
    arguments |= {"instruction": told.instruction, "command": command, "namespace": f"parity_{name}"}
    described = graph(bringup, arguments)
    nodes = [replace(node, parameters={**node.parameters, "lockstep": True}) for node in described.nodes if node.executable != "task_node"]
    if mode == "robot":
        nodes.insert(0, NodeDescription("sim_robot_node", {"robot": robot, "task": task, "seed": seed, "lockstep": True}))
    return held_back(replace(described, nodes=tuple(nodes)), "policy_node")


def through_ros(spec: RobotSpec, described: Graph, steps: int, progress: Callable[[int], None] = lambda _: None) -> Trajectory:
    """Runs a lock-step graph and records joint states and commands from its topics.

    Raises:
        RobotFault: the graph stops answering.
    """
    positions: dict[float, np.ndarray] = {}
    commands: dict[float, np.ndarray] = {}
    joints, order = JointReader(spec.measured_names), JointReader(spec.joint_names)

    def on_state(message: JointState) -> None:
        positions.setdefault(from_time(message.header.stamp), joints.read(message)[0])

    def on_command(message: JointTrajectory) -> None:
        command = from_trajectory(message, spec.command_mode)
        commands.setdefault(command.stamp, command.values[order.order(command.joint_names)])

    node = Node("parity", namespace=described.namespace)
    node.create_subscription(JointState, "joint_states", on_state, RECORDER_QOS)
    command_topic = node.create_subscription(JointTrajectory, "joint_command", on_command, RECORDER_QOS).topic_name
    policy = NodeStarter(node, "policy_node")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        with GraphProcesses(described, quiet=True) as running:
            newest, since = 0, time.monotonic()
            while min(len(positions), len(commands)) < steps:
                executor.spin_once(timeout_sec=0.2)
                if positions and node.count_publishers(command_topic):
                    policy.start()  # only now: nothing of the run shall be missed
                done = min(len(positions), len(commands))
                if done > newest:
                    progress(done - newest)
                    newest, since = done, time.monotonic()
                if running.ended() is not None or time.monotonic() - since > SILENCE:
                    raise RobotFault(f"the graph stopped after {done} of {steps} steps: {running.last_words}")
    finally:
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
    stamps = sorted(set(positions) & set(commands))[:steps]
    return Trajectory(np.array(stamps), np.array([positions[s] for s in stamps]), np.array([commands[s] for s in stamps]))


def compare(name: str, seed: int, steps: int, progress: Callable[[str, int], None]) -> dict[str, float]:
    """Returns the largest difference between the in-process loop and each kind of graph.

    The graphs in simulation run the first task that the robot's bring-up has for it, with the bring-up's policy and cameras, the one
    with a simulated robot behind ros2_control its plain task.

    Args:
        name: of a robot or a bring-up.
        seed: of the initial state.
        steps: control ticks.
        progress: called with the kind of graph and the number of new ticks.

    Raises:
        UserError: there is no such robot or bring-up.
    """
    bringup, robot = bringup_for(name)
    spec, task, plain_task = load_robot(robot), tasks_for(bringup, robot)[0], BRINGUPS[bringup].plain_task
    isolate()
    own = {task: BRINGUPS[bringup].policy}
    references = {played: in_process(spec, played, seed, steps, own.get(played, "")) for played in {task, plain_task}}
    kinds = {
        "separate": (task, lockstep_graph(name, task, seed, False, "sim")),
        "composed": (task, lockstep_graph(name, task, seed, True, "sim")),
        "ros2_control": (plain_task, lockstep_graph(name, plain_task, seed, False, "robot")),
    }
    start_ros()
    try:
        return {
            kind: largest_difference(references[task], through_ros(spec, described, steps, partial(progress, kind)))
            for kind, (task, described) in kinds.items()
        }
    finally:
        rclpy.shutdown()
