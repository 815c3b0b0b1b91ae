"""The other end of a `RemotePolicy`: answers a robot's observations with the chunks of a policy on this machine."""

import threading
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from ros_rl.errors import RobotFault, UserError
from ros_rl.policies.interface import Policy
from ros_rl.policies.wire import LARGEST, VERSION, observation_of, pack, spec_message, unpack

_LEAVING = 0.3  # s: who has closed its connection may still be served for a moment


class PolicyServer:
    """Serves one robot at a time; another one is told that the policy is taken. Of requests that have piled up, the newest is answered."""

    def __init__(self, policy: Policy, host: str = "127.0.0.1", port: int = 0):
        """Listens.

        Args:
            policy: what answers.
            host: address to listen on.
            port: 0 takes a free one.

        Raises:
            OSError: the address is taken or not this machine's.
        """
        self._policy = policy
        self._taken = threading.Lock()
        self._connection: ServerConnection | None = None
        self._server = serve(self._serve, host, port, max_size=LARGEST, compression=None, ping_interval=5, ping_timeout=10)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"ws://{host}:{self._server.socket.getsockname()[1]}"

    def __enter__(self) -> "PolicyServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Serves until it is closed or interrupted."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """Ends connections and stops listening."""
        self._server.shutdown()
        if (connection := self._connection) is not None:
            connection.close()
        self._thread.join(5.0)

    def _serve(self, connection: ServerConnection) -> None:
        if not self._taken.acquire(timeout=_LEAVING):
            connection.send(pack({"kind": "error", "message": "the policy serves another robot"}))
            return
        self._connection = connection
        try:
            connection.send(pack({"kind": "spec", "version": VERSION, **spec_message(self._policy.spec)}))
            while True:
                self._answer(connection, _newest(connection))
        except ConnectionClosed:
            pass
        except UserError as error:  # what came is no message: there is no telling what would come next
            connection.send(pack({"kind": "error", "message": str(error)}))
        finally:
            self._connection = None
            self._taken.release()

    def _answer(self, connection: ServerConnection, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            reply: dict[str, Any] = {"kind": "error", "id": message.get("id", -1)}
            try:
                if message["kind"] == "reset":
                    self._policy.reset(int(message["seed"]), str(message["instruction"]))
                    reply["kind"] = "reset"
                elif message["kind"] == "act":
                    chunk = self._policy.act(observation_of(message["observation"]))
                    values = {"values": chunk.values, "dt": chunk.dt, "stamp": chunk.stamp, "source": chunk.source}
                    reply |= {"kind": "chunk", **values}
                else:
                    reply["message"] = f"unknown kind '{message['kind']}'"
            except (UserError, RobotFault, KeyError, TypeError, ValueError) as error:
                reply["message"] = str(error)
            connection.send(pack(reply))


def _newest(connection: ServerConnection) -> list[dict[str, Any]]:
    """Waits for a message; returns those that have come: all resets, and of the others the last."""
    messages = [unpack(connection.recv())]
    while True:
        try:
            messages.append(unpack(connection.recv(timeout=0)))
        except TimeoutError:
            return [message for i, message in enumerate(messages) if message["kind"] == "reset" or i == len(messages) - 1]
