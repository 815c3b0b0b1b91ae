"""`ros-rl serve`: a policy on this machine for a robot on another one."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from ros_rl.errors import UserError


@dataclass
class Serve:
    """Serves a policy by websocket, to one robot at a time. The robot's machine starts with policy:=ws://HOST:PORT.

    There is no password and no encryption: listen on other addresses than this machine's own only in a network that you trust.
    """

    policy: Annotated[str, tyro.conf.Positional]
    """Policy bundle by name, or a path to its folder."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = 8765
    """Port to listen on; 0 takes a free one."""
    robot: str = ""
    """Robot by name, or a path to its robot.yaml; empty: the one that the bundle was made for."""

    def run(self) -> int:
        """Returns 0 after Ctrl-C."""
        from ros_rl.policies.actors import load_policy
        from ros_rl.policies.bundle import load_bundle
        from ros_rl.policies.policy_server import PolicyServer
        from ros_rl.robots.spec import load_robot

        if not 0 <= self.port <= 65535:
            raise UserError(f"--port must be from 0 to 65535, got {self.port}")
        bundle = load_bundle(self.policy)
        policy = load_policy(bundle, load_robot(self.robot or bundle.spec.robot))
        with PolicyServer(policy, self.host, self.port) as server:
            print(f"serving '{bundle.name}' for robot '{bundle.spec.robot}' at {server.url}", flush=True)
            server.wait()
        return 0
