"""The page's own sign of life: a script in the page says again and again that somebody can see it, and which keys are held.

viser tells neither when a page is hidden nor when a key is let go. So a script is put into its page, and speaks over a websocket
of its own, behind the same doorkeeper.
"""

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

import pydantic

from ros_rl.config import STRICT
from ros_rl.web.pilot import KEYS, Pilot
from ros_rl.web.text import text

PATH = "/beats"
_PERIOD = 100  # ms
_WRITING = "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]"
_SCRIPT = """
(() => {
  const KEYS = __KEYS__, held = new Set();
  let socket = null;
  const mark = () => document.querySelector("[data-page]");
  const beat = () => {
    if (mark() === null) return;
    if (socket === null || socket.readyState > WebSocket.OPEN) {
      const secret = location.pathname.split("/")[1];
      socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/${secret}__PATH__`);
      socket.onopen = beat;
    } else if (socket.readyState === WebSocket.OPEN) {
      const visible = document.visibilityState === "visible";
      socket.send(JSON.stringify({page: Number(mark().dataset.page), visible, keys: [...held]}));
    }
  };
  const let_go = () => { held.clear(); beat(); };
  const on_key = (event) => {
    if (event.key === "Meta") return let_go();  // while it is down, some systems do not tell that another key is let go
    const key = event.key.toLowerCase(), node = event.target;
    const pilot = mark()?.dataset.pilot === "yes";
    const writes = node instanceof Element && node.closest("__WRITING__") !== null;
    const ours = (pilot || key === " ") && KEYS.includes(key) && !writes;  // space counts before the page knows that it has the robot
    if (event.type === "keyup" ? !held.delete(key) : !ours || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.type === "keydown") held.add(key);
    if (pilot) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    if (!event.repeat) beat();
  };
  const leave_button = (event) => { if (event.detail > 0) event.target.closest?.("button")?.blur(); };  // else space presses it again
  window.addEventListener("keydown", on_key, true);
  window.addEventListener("keyup", on_key, true);
  window.addEventListener("click", leave_button, true);
  window.addEventListener("contextmenu", let_go);  // which may keep what is let go to itself
  window.addEventListener("blur", let_go);
  window.addEventListener("pagehide", () => { if (socket !== null) socket.close(); });
  document.addEventListener("visibilitychange", let_go);
  setInterval(beat, __PERIOD__);
})();
"""


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class _Beat:
    page: int
    visible: bool
    keys: list[str]


_BEAT = pydantic.TypeAdapter(_Beat)


def mark(page: int, pilot: bool) -> str:
    """Returns HTML that tells the person and the script which page this is, and whether keys are for the robot.

    Without it the script is silent.
    """
    return f'<div data-page="{page}" data-pilot="{"yes" if pilot else "no"}">{text(f"this is page {page}")}</div>'


def with_script(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `process_request` of websockets that puts the script into the page that another one serves."""
    script = _SCRIPT
    for name, value in {"KEYS": json.dumps(list(KEYS)), "PATH": PATH, "PERIOD": str(_PERIOD), "WRITING": _WRITING}.items():
        script = script.replace(f"__{name}__", value)
    before: dict[bytes, bytes] = {}  # the page as it was served last, to the page with the script

    def process_request(connection: Any, request: Any) -> Any:
        response = handle(connection, request)
        if response is None or "text/html" not in response.headers.get("Content-Type", ""):
            return response
        if response.body not in before:
            packed = response.headers.get("Content-Encoding") == "gzip"
            page = gzip.decompress(response.body) if packed else response.body
            # First of all: its keys are caught before viser's own.
            page = page.replace(b"<head>", f"<head><script>{script}</script>".encode(), 1)
            before[response.body] = gzip.compress(page) if packed else page
        response.body = before[response.body]
        del response.headers["Content-Length"]
        response.headers["Content-Length"] = str(len(response.body))
        return response

    return process_request


async def listen(pilot: Pilot, connection: Any) -> None:
    """Hands the beats of a page on until its connection ends; one that says something else is cut off."""
    from websockets.exceptions import ConnectionClosed

    page: int | None = None
    try:
        async for said in connection:
            beat = _BEAT.validate_json(said)
            if page is not None and beat.page != page:
                pilot.gone(page)
            page = beat.page
            pilot.beat(page, beat.visible, beat.keys, time.monotonic())
    except pydantic.ValidationError:
        await connection.close(1008, "no beat")
    except ConnectionClosed:
        pass
    finally:
        if page is not None:
            pilot.gone(page)
