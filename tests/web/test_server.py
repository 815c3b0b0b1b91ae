"""Tests of ros_rl.web.server: who does not know the secret gets nothing, and a port that is taken is said so."""

import socket
import sys
import types
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
import viser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ros_rl.errors import UserError
from ros_rl.web import server as module
from ros_rl.web.pilot import Pilot
from ros_rl.web.server import HOST, WebServer, check_can_serve, listen, new_token

TOKEN = "a-secret-of-22-letters"
PROTOCOL = f"viser-v{viser.__version__}"


@pytest.fixture(scope="module")
def served() -> Iterator[WebServer]:
    server = WebServer(0, TOKEN, Pilot(1.0))
    yield server
    server.stop()


def ask(served: WebServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    address = urlsplit(served.url)
    connection = HTTPConnection("127.0.0.1", address.port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def opens(served: WebServer, path: str) -> bool:
    """Tells whether the websocket opens and says something."""
    with connect(f"ws://127.0.0.1:{urlsplit(served.url).port}{path}", subprotocols=[PROTOCOL], max_size=None) as socket:
        return bool(socket.recv(timeout=30))


def test_the_address_has_the_secret_in_it(served):
    # The very interface that is listened to: localhost may be ::1 too, where another user could listen for the secret.
    assert served.url == f"http://{HOST}:{urlsplit(served.url).port}/{TOKEN}/"
    assert served.viser.get_port() == urlsplit(served.url).port
    with listen(0) as listener:
        assert listener.getsockname()[0] == HOST == "127.0.0.1"


def test_tokens_are_long_and_differ():
    assert len({new_token() for _ in range(100)}) == 100
    assert min(len(new_token()) for _ in range(100)) >= 22


@pytest.mark.parametrize("path", [f"/{TOKEN}/", f"/{TOKEN}", f"/{TOKEN}/?websocket=ws://localhost:1/{TOKEN}", f"/{TOKEN}/index.html"])
def test_who_knows_the_secret_gets_the_page_also_when_it_is_loaded_again(served, path):
    status, headers, body = ask(served, path)
    assert status == 200
    assert b"<html" in body
    assert headers["Referrer-Policy"] == "no-referrer"  # or the address would be told to other servers
    assert headers["Cache-Control"] == "no-store"


REFUSED = [
    "/",
    "/index.html",
    f"/{TOKEN[:-1]}/",
    f"/{TOKEN}x/",
    f"/{TOKEN.upper()}/",
    f"//{TOKEN}/",
    f"/x/{TOKEN}/",
    f"/?{TOKEN}",
    f"/?token={TOKEN}",
    f"/x/../{TOKEN}/",
    "/%C3%A9/",
]


@pytest.mark.parametrize("path", REFUSED)
def test_who_does_not_gets_no_page(served, path):
    status, headers, body = ask(served, path)
    assert status == 403
    assert b"<html" not in body and body.count(b"\n") == 1
    assert TOKEN not in str(headers) + body.decode()


@pytest.mark.parametrize("path", REFUSED)
def test_who_does_not_gets_no_websocket(served, path):
    with pytest.raises(InvalidStatus) as refused:
        opens(served, path)
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("word", ["websocket", "WebSocket", "h2c"])
def test_a_request_that_only_says_it_is_a_websocket_is_refused_too(served, word):
    assert ask(served, "/", Upgrade=word, Connection="Upgrade")[0] == 403


@pytest.mark.parametrize("path", [f"/{TOKEN}", f"/{TOKEN}/"])
def test_who_knows_the_secret_gets_the_websocket(served, path):
    assert opens(served, path)


@pytest.mark.parametrize("path", [f"/{TOKEN}/../../../../etc/passwd", f"/{TOKEN}/%2e%2e/%2e%2e/_viser.py", f"/{TOKEN}/nothing"])
def test_the_secret_opens_nothing_but_the_page(served, path):
    assert ask(served, path)[0] == 404


@pytest.mark.parametrize("path", [b"/\xc3\xa9/", b"/\xff", f"/{TOKEN}".encode() + b"\xe9/"])
def test_bytes_that_are_no_text_are_refused_like_any_other_path(served, path):
    with socket.create_connection(("127.0.0.1", urlsplit(served.url).port), timeout=30) as raw:
        raw.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert raw.makefile("rb").readline().startswith(b"HTTP/1.1 403 ")


def test_a_page_cannot_ask_for_a_public_address(served):
    handlers = {kind.__name__ for kind in served.viser._websock_server._incoming_handlers}
    assert "GuiUpdateMessage" in handlers
    assert not {name for name in handlers if "Share" in name}


def test_a_port_that_is_taken_is_named_with_the_way_out():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for attempt in (lambda: check_can_serve(port), lambda: WebServer(port, TOKEN, Pilot(1.0))):
            with pytest.raises(UserError) as refused:
                attempt()
            assert str(refused.value) == f"web_port {port} is taken; choose another with web_port:=PORT"
    check_can_serve(port)


def test_a_port_can_be_had_again_once_the_server_has_ended():
    first = WebServer(0, TOKEN, Pilot(1.0))
    port = urlsplit(first.url).port
    assert port is not None
    first.stop()
    second = WebServer(port, TOKEN, Pilot(1.0))
    try:
        assert ask(second, f"/{TOKEN}/")[0] == 200
    finally:
        second.stop()


def test_without_viser_the_command_that_installs_it_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(UserError, match=r"^web:=true needs viser: pip install 'viser>=1.1.1,<1.2'$"):
        check_can_serve(0)


def test_a_viser_that_opens_its_server_in_another_way_is_not_used(monkeypatch):
    stopped = []
    other = types.SimpleNamespace(stop=lambda: stopped.append(True))
    monkeypatch.setattr(module, "_viser", lambda: types.SimpleNamespace(ViserServer=lambda **_: other, __version__="9.9"))
    with pytest.raises(UserError, match=r"^viser 9.9 starts its server in a way that cannot be guarded"):
        WebServer(0, TOKEN, Pilot(1.0))
    assert stopped


@pytest.mark.parametrize("error", [AttributeError, AssertionError])
def test_a_viser_whose_messages_are_others_is_not_used_and_leaves_no_server(monkeypatch, error):
    ports = []

    def unlike(self, _):
        ports.append(self._port)
        raise error

    monkeypatch.setattr(viser.infra.WebsockServer, "unregister_handler", unlike)
    with pytest.raises(UserError, match=r"cannot be guarded; pip install 'viser>=1.1.1,<1.2'$"):
        WebServer(0, TOKEN, Pilot(1.0))
    check_can_serve(ports[0])  # nobody listens there any more
