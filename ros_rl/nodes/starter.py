"""Starts one node of a graph only when those who want to see everything it does are listening."""

import math
import time
from dataclasses import replace

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.node import Node
from rclpy.task import Future

from ros_rl.bringup import Graph
from ros_rl.errors import RobotFault
from ros_rl.nodes.launcher import SILENCE


def held_back(described: Graph, executable: str) -> Graph:
    """Returns the graph with one node that waits to be started."""
    nodes = (replace(node, parameters={**node.parameters, "autostart": node.executable != executable}) for node in described.nodes)
    return replace(described, nodes=tuple(nodes))


class NodeStarter:
    """Takes a node through its lifecycle: configure, then activate."""

    def __init__(self, node: Node, name: str):
        """Opens the service.

        Args:
            node: in the same namespace; its executor runs the service.
            name: of the node to start.
        """
        self._name = name
        self._client = node.create_client(ChangeState, f"{name}/change_state")
        self._transitions = [Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE]
        self._answer: Future | None = None
        self._deadline = time.monotonic() + 2 * SILENCE

    @property
    def started(self) -> bool:
        """Whether the node is active."""
        return not self._transitions and self._answer is not None and self._answer.done() and self._answer.result().success

    def start(self) -> None:
        """Moves on by one transition if the last one is done; called again and again.

        Raises:
            RobotFault: the node refuses.
        """
        if self._answer is not None and self._answer.done() and not self._answer.result().success:
            raise RobotFault(f"{self._name} does not start; its log says why")
        if time.monotonic() > self._deadline:
            raise RobotFault(f"{self._name} did not start within {2 * SILENCE:g} s")
        idle = self._answer is None or self._answer.done()
        if idle and not self._transitions:
            self._deadline = math.inf
        elif idle and self._client.service_is_ready():
            self._answer = self._client.call_async(ChangeState.Request(transition=Transition(id=self._transitions.pop(0))))
