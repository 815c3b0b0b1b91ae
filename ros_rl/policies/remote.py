"""A policy on another machine: observations go to a `PolicyServer`, chunks come back. A robot never waits longer than the timeout."""

import time
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import pydantic
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from ros_rl.config import STRICT, Positive
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import PolicySpec, PolicyUnavailable
from ros_rl.policies.scripted.contents import parameters
from ros_rl.policies.wire import LARGEST, VERSION, chunk_of, observation_message, pack, spec_message, spec_of, unpack
from ros_rl.robots.spec import RobotSpec

_LONGEST = 600.0  # s that an answer may take
_PATIENCE = 5.0  # s to wait for a connection


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `RemotePolicy`.

    Attributes:
        url: of the server, ws://host:port.
        timeout: s that an answer may take.
    """

    url: str
    timeout: Positive = 1.0


class RemotePolicy:
    """Asks a server. A reply to an older question than the last is discarded; after a fault the next question connects anew.

    When it connects in the middle of an episode, the server's policy is reset with the episode's seed and instruction.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Takes the settings; the connection is made with the first question."""
        self._settings = parameters(bundle, Parameters)
        self.spec = bundle.spec
        self._connection: ClientConnection | None = None
        self._episode: tuple[int, str] | None = None
        self._told = False
        self._asked = 0
        self.counts = {"asked": 0, "stale": 0, "timeouts": 0, "connections": 0}

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode; the server is told of it with the next question, so that a server that is down delays nothing."""
        self._episode, self._told = (seed, instruction), False

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the server's chunk.

        Raises:
            PolicyUnavailable: there is no server, it went away, or no answer came in time.
            UserError: the server's policy refuses the observation or the instruction, or is another one now.
        """
        deadline = time.monotonic() + self._settings.timeout
        if self._connection is None:
            self._connect(deadline)
        if not self._told:
            assert self._episode is not None
            self._ask({"kind": "reset", "seed": self._episode[0], "instruction": self._episode[1]}, deadline)
            self._told = True
        message = self._ask({"kind": "act", "observation": observation_message(observation, self.spec)}, deadline)
        chunk = chunk_of(message, self.spec)
        if chunk.stamp != observation.stamp:
            raise UserError(f"the policy server answered the observation of {chunk.stamp:.3f} s, not that of {observation.stamp:.3f} s")
        return chunk

    def report(self) -> dict[str, float]:
        """Returns how many questions were asked, replies discarded, timeouts had and connections made."""
        return {f"remote_{name}": float(value) for name, value in self.counts.items()}

    def close(self) -> None:
        """Ends the connection, so that the server is free for another robot; the next question connects anew.

        A question that another thread has asked fails then with `PolicyUnavailable`.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self, deadline: float) -> None:
        self._connection, spec = _connected(self._settings.url, deadline)
        self.counts["connections"] += 1
        self._told = False
        if spec_message(spec) != spec_message(self.spec):
            self.close()
            raise UserError(
                f"the server {self._settings.url} now has a policy for robot '{spec.robot}' with the joints {', '.join(spec.joint_names)}, "
                f"it had one for '{self.spec.robot}' with {', '.join(self.spec.joint_names)}"
            )

    def _ask(self, message: dict[str, Any], deadline: float) -> dict[str, Any]:
        self._asked += 1
        self.counts["asked"] += 1
        connection = self._connection
        if connection is None:
            raise PolicyUnavailable(f"the connection to {self._settings.url} was closed")
        try:
            connection.send(pack({**message, "id": self._asked}))
            while True:
                reply = unpack(connection.recv(timeout=max(0.0, deadline - time.monotonic())))
                if reply.get("id", self._asked) == self._asked:
                    break
                self.counts["stale"] += 1
        except TimeoutError:
            # The connection stays: the late answer is told from the next one by its number.
            self.counts["timeouts"] += 1
            raise PolicyUnavailable(f"no answer from {self._settings.url} within {self._settings.timeout:g} s, its timeout") from None
        except (OSError, WebSocketException) as error:
            self._lost(error)
        if reply["kind"] == "error":
            raise UserError(f"{self._settings.url}: {reply.get('message')}")
        return reply

    def _lost(self, error: Exception) -> NoReturn:
        self.close()
        raise PolicyUnavailable(f"lost {self._settings.url}: {error}") from None


def remote_bundle(url: str) -> Bundle:
    """Returns a bundle that asks the server at `url`, with the spec of the policy that it serves.

    Args:
        url: ws://host:port, or ws://host:port?timeout=S for the s that an answer may take, `Parameters.timeout` by default.

    Raises:
        UserError: nothing answers there, it is no policy server, or the timeout is none.
    """
    url, asked = _split(url)
    try:
        connection, spec = _connected(url, time.monotonic() + _PATIENCE)
    except PolicyUnavailable as error:
        raise UserError(f"{error}; 'ros-rl serve POLICY' starts a server") from None
    connection.close()
    return Bundle(url, "remote", "remote", spec, {"url": url, **asked})


def _split(url: str) -> tuple[str, dict[str, float]]:
    """Returns an address without what is said after its question mark, and that: nothing or a timeout, s."""
    parts = urlsplit(url)
    try:
        said = {name: float(value) for name, value in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))}
    except ValueError:
        said = {"": 0.0}
    if not said.keys() <= {"timeout"} or not 0 < said.get("timeout", 1.0) <= _LONGEST:
        raise UserError(f"{url}: after the address may stand ?timeout=S, with S above 0 and at most {_LONGEST:g} s")
    return urlunsplit(parts._replace(query="")), said


def _connected(url: str, deadline: float) -> tuple[ClientConnection, PolicySpec]:
    """Connects; returns the connection and the spec of the policy that is served. No connection is left behind by what it raises."""
    left = min(_PATIENCE, max(0.05, deadline - time.monotonic()))
    try:
        connection = connect(url, open_timeout=left, max_size=LARGEST, compression=None, close_timeout=0.5, proxy=None)
    except (OSError, WebSocketException, ValueError) as error:
        raise PolicyUnavailable(f"no policy server at {url} ({error})") from None
    try:
        return connection, _greeted(connection, url, left)
    except BaseException:
        connection.close()  # else the server would go on serving it, and nobody else
        raise


def _greeted(connection: ClientConnection, url: str, timeout: float) -> PolicySpec:
    """Returns the spec that a server begins with."""
    try:
        hello = unpack(connection.recv(timeout=timeout))
    except (OSError, WebSocketException) as error:
        raise PolicyUnavailable(f"no policy server at {url} ({error or 'it says nothing'})") from None
    if hello["kind"] == "error":
        raise PolicyUnavailable(f"{url}: {hello.get('message')}")
    if hello["kind"] != "spec" or hello.get("version") != VERSION:
        raise UserError(f"{url}: speaks version {hello.get('version')} of the protocol, here it is {VERSION}")
    return spec_of(hello)
