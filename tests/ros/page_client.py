"""A page without a browser: speaks viser's protocol, keeps what is on the page, and presses its buttons."""

import json
import re
import threading
from typing import Any

import msgspec
import viser
import zstandard
from viser._messages import GuiUpdateMessage, Message, ViewerCameraMessage
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


class PageClient:
    """Opens the page; `elements` are the properties of what is on its panel by their uuid, `moved` names of moved scene nodes.

    Its script beats while `visible` is not None, with the `keys` held.
    """

    def __init__(self, url: str, visible: bool | None = None):
        self.visible, self.keys = visible, ""
        self._beats = connect(f"{url.replace('http', 'ws')}beats")
        self._closed = threading.Event()
        self.elements: dict[str, dict[str, Any]] = {}
        self.moved: dict[str, int] = {}
        self.received = 0
        self._socket = connect(url.replace("http", "ws"), subprotocols=[f"viser-v{viser.__version__}"], max_size=None)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._beater = threading.Thread(target=self._beat, daemon=True)
        self._beater.start()
        # viser takes a client for one once it has said where it looks from.
        camera = {"wxyz": (1, 0, 0, 0), "position": (1, 0, 1), "fov": 1.0, "near": 0.01, "far": 100.0}
        self._send(ViewerCameraMessage(**camera, image_height=10, image_width=10, look_at=(0, 0, 0), up_direction=(0, 0, 1)))

    def __enter__(self) -> "PageClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._beater.join(5.0)
        self._beats.close()
        self._socket.close()
        self._reader.join(5.0)

    @property
    def number(self) -> int | None:
        """The number by which the server knows the page, once it was told."""
        marks = [re.search(r'data-page="(\d+)"', str(element.get("content", ""))) for element in list(self.elements.values())]
        return next((int(mark[1]) for mark in marks if mark), None)

    def slide(self, label: str, value: float) -> None:
        """Moves a slider."""
        self._send(GuiUpdateMessage(self.find(label=label), {"value": value}))

    def find(self, **props: object) -> str | None:
        """Returns the uuid of the element with given properties."""
        for uuid, element in dict(self.elements).items():
            if all(element.get(name) == value for name, value in props.items()):
                return uuid
        return None

    def press(self, label: str) -> None:
        """Presses a button; one of a group if there is none of its own."""
        uuid = self.find(label=label)
        if uuid is not None:
            self._send(GuiUpdateMessage(uuid, {"value": True}))
            return
        for uuid, element in dict(self.elements).items():
            if label in element.get("options", ()):
                self._send(GuiUpdateMessage(uuid, {"value": label}))
                return
        raise LookupError(f"no button {label}")

    def says(self, text: str) -> bool:
        """Tells whether a text is on the page."""
        return any(text in str(value) for element in list(self.elements.values()) for value in list(element.values()))

    def _send(self, message: Message) -> None:
        self._socket.send(msgspec.msgpack.encode(message.as_serializable_dict()))

    def _beat(self) -> None:
        while not self._closed.wait(0.05):
            if self.number is not None and self.visible is not None:
                self._beats.send(json.dumps({"page": self.number, "visible": self.visible, "keys": list(self.keys)}))

    def _read(self) -> None:
        try:
            for frame in self._socket:
                self.received += len(frame)
                size, packed = (int.from_bytes(frame[start : start + 8], "little") for start in (0, 8))
                content = zstandard.ZstdDecompressor().decompress(frame[16 : 16 + packed], max_output_size=size)
                for message in msgspec.msgpack.decode(content)["messages"]:
                    self._take(message)
        except ConnectionClosed:
            pass

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind.startswith("Gui") and "props" in message:
            self.elements[message["uuid"]] = dict(message["props"])
        elif kind == "GuiUpdateMessage":
            self.elements.setdefault(message["uuid"], {}).update(message["updates"])
        elif kind == "GuiRemoveMessage":
            self.elements.pop(message["uuid"], None)
        elif kind == "SetPositionMessage":
            self.moved[message["name"]] = self.moved.get(message["name"], 0) + 1
