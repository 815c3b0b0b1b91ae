import socket
import threading

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import serve

from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.async_runner import AsyncRunner
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec, PolicyUnavailable
from ros_rl.policies.policy_server import PolicyServer
from ros_rl.policies.remote import RemotePolicy, remote_bundle
from ros_rl.policies.runner import PolicyRunner
from ros_rl.policies.wire import chunk_of, observation_message, observation_of, pack, spec_message, spec_of, unpack
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("arm")
KEYS = (
    ObservationKey("joint_position", (len(ROBOT.measured_names),)),
    ObservationKey("images.front", (4, 6, 3)),
    ObservationKey("instruction", ()),
)
SPEC = PolicySpec("arm", ROBOT.joint_names, KEYS, ROBOT.control_rate, 3)


class Echo:
    """Gives the measured positions back, plus the seed."""

    def __init__(self, spec=SPEC):
        self.spec, self.seen, self.resets, self.seed = spec, [], [], 0
        self.asked = threading.Semaphore(0)
        self.wait = threading.Event()
        self.wait.set()

    def reset(self, seed, instruction):
        self.resets.append((seed, instruction))
        self.seed = seed
        if instruction == "fly":
            raise UserError("it cannot fly")

    def act(self, observation):
        self.asked.release()
        self.wait.wait(30)
        self.seen.append(observation)
        values = np.repeat(observation.joint_position[None, :8] + self.seed, 3, axis=0)
        return ActionChunk(self.spec.joint_names, values, 1 / self.spec.rate, observation.stamp, "echo")


def see(stamp=0.0):
    image = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
    images = {"front": image, "not_read": image}
    positions = np.linspace(0, 1, len(ROBOT.measured_names)) + 0.1
    return Observation(stamp, positions, positions * 0, positions * 0, images=images, privileged={"truth": positions})


@pytest.fixture
def served():
    policy = Echo()
    with PolicyServer(policy) as server:
        yield policy, server
        policy.wait.set()


def ask(url, timeout=20.0):
    bundle = remote_bundle(url)
    bundle.parameters["timeout"] = timeout
    policy = RemotePolicy(bundle, ROBOT)
    policy.reset(2, "put it down")
    return policy


def test_a_served_policy_answers_as_the_policy_itself(served):
    policy, server = served
    remote = load_policy(load_bundle(server.url), ROBOT)
    remote._settings.timeout = 20.0
    remote.reset(2, "put it down")
    chunk = remote.act(see(1.25))
    expected = policy.act(see(1.25))
    assert np.array_equal(chunk.values, expected.values) and (chunk.stamp, chunk.dt) == (1.25, expected.dt)
    assert policy.resets == [(2, "put it down")]
    seen = policy.seen[0]
    assert np.array_equal(seen.images["front"], see().images["front"]) and set(seen.images) == {"front"} and not seen.privileged
    remote.act(see(1.5))
    assert policy.resets == [(2, "put it down")]
    remote.close()


def test_the_timeout_stands_after_the_address(served):
    _, server = served
    policy = load_policy(load_bundle(f"{server.url}?timeout=20"), ROBOT)
    assert policy._settings.timeout == 20.0 and policy._settings.url == server.url
    policy.reset(2, "put it down")
    assert policy.act(see()).stamp == 0.0
    policy.close()
    for said in ("timeout=0", "timeout=-1", "timeout=soon", "timeout=", "timeout", "timeout=nan", "timeout=1e9", "patience=3"):
        with pytest.raises(UserError, match=r"may stand \?timeout=S"):
            load_bundle(f"{server.url}?{said}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dt": None}, "no chunk"),
        ({"dt": 0.0}, "3 rows that are 0 s apart"),
        ({"dt": float("nan")}, "nan s apart"),
        ({"dt": 1e6}, "1e\\+06 s apart"),
        ({"values": np.zeros((99_999, 8))}, "99999 rows"),
        ({"stamp": float("inf")}, "from inf s on"),
        ({"stamp": "now"}, "no chunk"),
        ({"values": np.zeros((0, 8))}, "no chunk for 8 joints"),
        ({"values": np.zeros((3, 7))}, "no chunk for 8 joints"),
        ({"values": np.full((3, 8), np.nan)}, "not finite"),
    ],
)
def test_a_chunk_that_the_policy_cannot_have_given_is_refused(change, message):
    said = {"kind": "chunk", "values": np.zeros((3, 8)), "dt": 1 / SPEC.rate, "stamp": 0.5, "source": "echo"}
    assert chunk_of(said, SPEC).stamp == 0.5 and len(chunk_of({**said, "values": np.zeros((2, 8))}, SPEC)) == 2
    with pytest.raises(UserError, match=message):
        chunk_of({name: value for name, value in {**said, **change}.items() if value is not None}, SPEC)


@pytest.mark.parametrize("change", [{"rate": 0.0}, {"rate": -1.0}, {"rate": float("inf")}, {"chunk": 0}, {"joints": None}])
def test_a_spec_that_no_policy_has_is_refused(change):
    with pytest.raises(UserError, match="no policy spec"):
        spec_of({**spec_message(SPEC), **change})


def test_another_robot_is_told_that_the_policy_is_taken(served):
    _, server = served
    first = ask(server.url)
    first.act(see())
    with pytest.raises(UserError, match="serves another robot"):
        remote_bundle(server.url)
    first.close()


def test_a_connection_is_given_back_and_taken_anew(served):
    policy, server = served
    first = ask(server.url)
    first.act(see())
    PolicyRunner(first).close()
    second = ask(server.url)
    assert second.act(see(1.0)).stamp == 1.0
    second.close()
    assert first.act(see(2.0)).stamp == 2.0 and policy.resets == [(2, "put it down")] * 3
    first.close()


@pytest.mark.parametrize("hello", [None, {"kind": "spec", "version": 99}, {"kind": "spec", "version": 1}, b"text"])
def test_a_server_that_greets_wrongly_or_not_at_all_is_left_alone(hello, monkeypatch):
    """Its handler sees the connection end; one left open would keep the server taken."""
    monkeypatch.setattr("ros_rl.policies.remote._PATIENCE", 3.0)
    ended = threading.Event()

    def handle(connection):
        if hello is not None:
            connection.send(hello if isinstance(hello, bytes) else pack(hello))
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=60)
        ended.set()

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with pytest.raises(UserError):
            remote_bundle(f"ws://127.0.0.1:{server.socket.getsockname()[1]}")
        assert ended.wait(30)
        server.shutdown()
        thread.join()


def test_closing_does_not_wait_for_an_answer(served):
    """The server says nothing for 30 s, and the timeout is far longer: an answer that is waited for would come late, but be counted."""
    policy, server = served
    remote = ask(server.url, 600.0)
    runner = AsyncRunner(remote)
    policy.wait.clear()
    runner.command(see(0.0).told(np.zeros(3), "put it down"))
    assert policy.asked.acquire(timeout=30)
    asked = runner._asked.answer
    runner.close()
    assert isinstance(asked.exception(timeout=0), PolicyUnavailable) and not policy.seen
    policy.wait.set()


def test_late_answers_are_discarded(served):
    policy, server = served
    remote = ask(server.url)
    remote.act(see(0.0))
    policy.wait.clear()
    remote._settings.timeout = 0.2
    with pytest.raises(PolicyUnavailable, match=r"no answer .* within 0.2 s"):
        remote.act(see(1.0))
    policy.wait.set()
    remote._settings.timeout = 20.0
    assert remote.act(see(2.0)).stamp == 2.0  # not that of 1.0, which came first
    assert remote.counts["stale"] == 1 and remote.counts["timeouts"] == 1 and remote.counts["connections"] == 1
    remote.close()


def test_a_server_that_went_away_and_came_back_is_told_of_the_episode(served):
    _, server = served
    remote = ask(server.url)
    remote.act(see(0.0))
    port = int(server.url.rsplit(":", 1)[1])
    server.close()
    for _ in range(2):
        with pytest.raises(PolicyUnavailable):
            remote.act(see(1.0))
    again = Echo()
    with PolicyServer(again, port=port):
        assert remote.act(see(2.0)).stamp == 2.0
        assert again.resets == [(2, "put it down")] and remote.counts["connections"] == 2
        remote.close()


def test_a_server_that_comes_back_with_another_policy_is_refused(served):
    _, server = served
    remote = ask(server.url)
    remote.act(see(0.0))
    port = int(server.url.rsplit(":", 1)[1])
    server.close()
    with pytest.raises(PolicyUnavailable):
        remote.act(see(1.0))
    with (
        PolicyServer(Echo(PolicySpec("ur5", ("x",), KEYS, 100.0)), port=port),
        pytest.raises(UserError, match=r"robot 'ur5' .* had one for 'arm'"),
    ):
        remote.act(see(2.0))


def test_a_server_that_is_down_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=f"no policy server at ws://127.0.0.1:{port} .*ros-rl serve"):
        load_bundle(f"ws://127.0.0.1:{port}")


def test_what_the_policy_refuses_is_passed_on_and_the_connection_stays(served):
    _, server = served
    remote = ask(server.url)
    remote.reset(0, "fly")
    with pytest.raises(UserError, match="it cannot fly"):
        remote.act(see())
    remote.reset(1, "walk")
    assert remote.act(see()).values[0, 0] == pytest.approx(1.1)
    assert remote.counts["connections"] == 1
    remote.close()


def test_the_server_survives_what_is_no_message(served):
    _, server = served
    for garbage in (b"\x80\x04.", "text", pack({"kind": "act", "id": 1}), b"\xc1"):
        with connect(server.url, proxy=None) as connection:
            assert unpack(connection.recv())["kind"] == "spec"
            connection.send(garbage)
            assert unpack(connection.recv())["kind"] == "error"
    remote = ask(server.url)
    remote.act(see())
    remote.close()


def test_observations_come_back_from_the_wire_bit_for_bit():
    message = unpack(pack({"kind": "act", "observation": observation_message(see(0.1), SPEC)}))["observation"]
    again = observation_of(message)
    assert again.stamp == 0.1 and np.array_equal(again.joint_position, see().joint_position)
    assert again.images["front"].dtype == np.uint8 and again.images["front"].flags.writeable
    with pytest.raises(UserError, match="no observation"):
        observation_of({"nonsense": 1})


@pytest.mark.parametrize(
    "array",
    [
        {"__array__": "object", "shape": [1], "data": b"x" * 8},
        {"__array__": "float64", "shape": [3], "data": b"x" * 8},
        {"__array__": "float64", "shape": [-1], "data": b""},
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(array):
    import msgpack

    with pytest.raises(UserError, match="no message"):
        unpack(msgpack.packb({"kind": "act", "a": array}))
    with pytest.raises(TypeError, match="cannot be sent"):
        pack({"kind": "act", "a": np.array([object()])})
