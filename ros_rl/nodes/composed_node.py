"""All nodes of a bring-up in one process.

Parameters are those of the nodes, with the node's name before a dot; a node without any is left out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node
from rclpy.parameter import Parameter

from ros_rl.nodes.base import StackNode, run
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.policy_node import PolicyNode
from ros_rl.nodes.safety_node import SafetyNode
from ros_rl.nodes.task_node import TaskNode
from ros_rl.nodes.teleop_node import TeleopNode

NODE_CLASSES: dict[str, Callable[..., StackNode]] = {
    "hardware_node": HardwareNode,
    "safety_node": SafetyNode,
    "policy_node": PolicyNode,
    "task_node": TaskNode,
    "teleop_node": TeleopNode,
}


def make(name: str, parameters: dict[str, Any], namespace: str) -> StackNode:
    """Makes one node with the given parameters, deaf to the process's own ROS arguments."""
    overrides = [Parameter(key, value=value) for key, value in parameters.items()]
    return NODE_CLASSES[name](namespace=namespace, parameter_overrides=overrides, use_global_arguments=False)


def make_all() -> list[StackNode]:
    """Makes the nodes that this process was given parameters for."""
    reader = Node("composed_node", automatically_declare_parameters_from_overrides=True, start_parameter_services=False)
    given = {name: _values(reader, name) for name in NODE_CLASSES}
    namespace = reader.get_namespace()
    reader.destroy_node()
    return [make(name, parameters, namespace) for name, parameters in given.items() if parameters]


def _values(reader: Node, prefix: str) -> dict[str, Any]:
    parameters: Mapping[str, Any] = reader.get_parameters_by_prefix(prefix)
    return {name: parameter.value for name, parameter in parameters.items()}


def main() -> int:
    """Runs the nodes; returns the exit code."""
    return run(make_all)
