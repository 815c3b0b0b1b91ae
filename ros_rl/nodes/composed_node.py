"""All nodes of a bring-up in one process. Parameters are those of the nodes, with the node's name before a
dot; a node without any is left out."""

import sys
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.parameter import Parameter

from ros_rl.errors import RobotFault, UserError
from ros_rl.nodes.base import BAD_INPUT, FAILURE, StackNode, spin, start_ros
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.policy_node import PolicyNode
from ros_rl.nodes.safety_node import SafetyNode
from ros_rl.nodes.task_node import TaskNode

NODES: dict[str, type[StackNode]] = {
    "hardware_node": HardwareNode,
    "safety_node": SafetyNode,
    "policy_node": PolicyNode,
    "task_node": TaskNode,
}


def make(name: str, parameters: dict[str, Any], namespace: str) -> StackNode:
    """Makes one node with the given parameters, deaf to the process's own ROS arguments."""
    overrides = [Parameter(key, value=value) for key, value in parameters.items()]
    return NODES[name](namespace=namespace, parameter_overrides=overrides, use_global_arguments=False)  # type: ignore[call-arg]


def main() -> int:
    """Reads the parameters of all nodes and runs them; returns the exit code."""
    try:
        start_ros(sys.argv)
        reader = Node("composed_node", automatically_declare_parameters_from_overrides=True, start_parameter_services=False)
        nodes = []
        for name in NODES:
            given = {key: parameter.value for key, parameter in reader.get_parameters_by_prefix(name).items()}
            if given:
                nodes.append(make(name, given, reader.get_namespace()))
        reader.destroy_node()
        spin(nodes)
    except UserError as error:
        print(f"ros_rl: {error}", file=sys.stderr)
        return BAD_INPUT
    except RobotFault as error:
        print(f"ros_rl: {error}", file=sys.stderr)
        return FAILURE
    finally:
        if rclpy.ok():
            rclpy.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
