"""Tests of ros_rl.web.heartbeat: the script is in the page, and its beats reach the pilot."""

import gzip
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ros_rl.web.heartbeat import PATH, mark
from ros_rl.web.pilot import Pilot
from ros_rl.web.server import WebServer

PATIENCE = 30.0  # s


@pytest.fixture
def pilot() -> Pilot:
    return Pilot(PATIENCE)


@pytest.fixture
def served(pilot) -> Iterator[WebServer]:
    server = WebServer(0, "secret", pilot)
    yield server
    server.stop()


def beats(served: WebServer, token: str = "secret"):
    return connect(f"ws://127.0.0.1:{urlsplit(served.url).port}/{token}{PATH}")


def beat(page: int, visible: bool = True, keys: str = "") -> str:
    return json.dumps({"page": page, "visible": visible, "keys": list(keys)})


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def takes(pilot: Pilot, page: int) -> bool:
    return pilot.take(page, time.monotonic()) == "taken over"


@pytest.mark.parametrize("packed", [False, True])
def test_the_page_is_served_with_the_script_before_all_others(served, packed):
    connection = HTTPConnection("127.0.0.1", urlsplit(served.url).port, timeout=PATIENCE)
    connection.request("GET", "/secret/", headers={"Accept-Encoding": "gzip"} if packed else {})
    answer = connection.getresponse()
    body = answer.read()
    assert len(body) == int(answer.headers["Content-Length"])
    assert (answer.headers["Content-Encoding"] == "gzip") == packed
    page = (gzip.decompress(body) if packed else body).decode()
    script = page[page.index("<script") : page.index("</script>")]
    assert "setInterval(beat, 100)" in script and "__" not in script
    assert page.count("setInterval(beat, 100)") == 1 and page.rstrip().endswith("</html>")


def test_a_page_that_beats_can_take_over_and_lets_go_when_its_connection_ends(served, pilot):
    with beats(served) as page:
        page.send(beat(3))
        until(lambda: takes(pilot, 3))
        page.send(beat(3, keys="wq"))
        until(lambda: pilot.state(time.monotonic()).twist == [1.0, 0, 0, 0, 0, 0])
        assert not takes(pilot, 4)
    until(lambda: not pilot.engaged)
    assert pilot.reason == "its page was closed"


def test_a_hidden_page_lets_go(served, pilot):
    with beats(served) as page:
        page.send(beat(3))
        until(lambda: takes(pilot, 3))
        page.send(beat(3, visible=False))
        until(lambda: not pilot.engaged)
        assert pilot.reason == "its page was hidden"


def test_a_page_that_gets_another_number_is_not_the_one_it_was(served, pilot):
    with beats(served) as page:
        page.send(beat(3))
        until(lambda: takes(pilot, 3))
        page.send(beat(4))
        until(lambda: not pilot.engaged)


@pytest.mark.parametrize("text", ["{", '{"page": "3", "visible": true, "keys": []}', '{"page": 3, "visible": true}', b"\xff"])
def test_what_is_no_beat_ends_the_connection_and_lets_go(served, pilot, text):
    with beats(served) as page:
        page.send(beat(3))
        until(lambda: takes(pilot, 3))
        page.send(text)
        with pytest.raises(ConnectionClosed):
            page.recv(timeout=PATIENCE)
    until(lambda: not pilot.engaged)


def test_who_does_not_know_the_secret_cannot_beat(served):
    with pytest.raises(InvalidStatus) as refused:
        beats(served, "secre")
    assert refused.value.response.status_code == 403


def test_the_mark_tells_person_and_script_the_page():
    assert 'data-page="7" data-pilot="yes"' in mark(7, True) and "this is page 7" in mark(7, True)
    assert 'data-pilot="no"' in mark(7, False)
