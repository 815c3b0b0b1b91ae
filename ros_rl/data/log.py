"""The log of a running episode: an MCAP file of ROS 2 messages that can be read whenever the recorder dies.

Every message is a record of its own, without chunks, and is with the operating system when `write` returns: SIGKILL costs at
most the message that was being written. The index that other MCAP readers like is written at the end.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcap.exceptions import McapError
from mcap.records import Channel, Footer, Message, Metadata, Schema
from mcap.stream_reader import StreamReader
from mcap.writer import Writer
from mcap_ros2.decoder import DecoderFactory

from ros_rl.data.messages import DEFINITIONS, header_stamp, schema_text
from ros_rl.errors import UserError, unknown

_ABOUT = "ros_rl"  # name of the metadata record that says what is being recorded


class EpisodeLog:
    """Writes the log of one episode."""

    def __init__(self, path: Path, about: Mapping[str, str]):
        """Begins a file.

        Args:
            path: where; there must be no file yet.
            about: what a reader must know to make an episode of it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("xb")
        self._writer = Writer(self._file, use_chunking=False)
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        try:
            self._writer.start(profile="ros2", library="ros_rl")
            self._writer.add_metadata(_ABOUT, dict(about))
            self._file.flush()
        except OSError:
            path.unlink()
            with suppress(OSError):  # it tries again to write
                self._file.close()
            raise

    def __enter__(self) -> "EpisodeLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, topic: str, kind: str, data: bytes, stamp: int) -> None:
        """Appends a message.

        Args:
            topic: its name, without the robot's namespace.
            kind: its type, such as ``sensor_msgs/JointState``.
            data: the message as ROS 2 encodes it.
            stamp: when it came, ns, on the robot's clock.

        Raises:
            UserError: the type is not one of `messages.DEFINITIONS`.
            OSError: the disk is full or the like.
        """
        if topic not in self._channels:
            self._channels[topic] = self._writer.register_channel(topic=topic, message_encoding="cdr", schema_id=self._schema(kind))
        self._writer.add_message(channel_id=self._channels[topic], log_time=stamp, publish_time=stamp, data=data)
        self._file.flush()

    def close(self) -> None:
        """Writes the index and brings the file to the disk. May be called twice.

        Raises:
            OSError: the disk is full or the like; the file is closed all the same.
        """
        if self._file.closed:
            return
        with self._file:
            self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())

    def _schema(self, kind: str) -> int:
        if kind not in DEFINITIONS:
            raise unknown("message type", kind, DEFINITIONS)
        if kind not in self._schemas:
            package, name = kind.split("/")
            text = schema_text(kind).encode()
            self._schemas[kind] = self._writer.register_schema(name=f"{package}/msg/{name}", encoding="ros2msg", data=text)
        return self._schemas[kind]


@dataclass(frozen=True, eq=False)
class Entry:
    """One message of a log.

    Attributes:
        topic: where it was sent.
        kind: its type, such as ``sensor_msgs/JointState``.
        time: when it came, ns.
        data: its encoding.
    """

    topic: str
    kind: str
    time: int
    data: bytes = field(repr=False)
    _schema: Schema = field(repr=False)
    _decoders: DecoderFactory = field(repr=False)

    @property
    def stamp(self) -> int:
        """Stamp of its header where it has one, when it came otherwise, ns.

        Raises:
            UserError: the header is cut off.
        """
        if not DEFINITIONS.get(self.kind, "").startswith("std_msgs/Header"):
            return self.time
        try:
            return header_stamp(self.data)
        except (struct.error, IndexError):
            raise UserError("its header is cut off") from None

    @property
    def message(self) -> Any:
        """The message with its fields as attributes.

        Raises:
            UserError: it cannot be decoded.
        """
        decode = self._decoders.decoder_for("cdr", self._schema)
        assert decode is not None
        try:
            return decode(self.data)
        except Exception as error:  # of half a message a decoder may make anything
            raise UserError(f"cannot be decoded ({error})") from None


class LogReader:
    """Reads a log, also one that was cut off: then up to the last whole message."""

    def __init__(self, path: Path):
        """Reads the beginning.

        Raises:
            UserError: it is no log of an episode.
            OSError: it cannot be read.
        """
        self.path = path
        self.about: dict[str, str] = {}
        self.whole = False
        for record in self._records():
            if isinstance(record, Metadata) and record.name == _ABOUT:
                self.about = dict(record.metadata)
                return
        raise UserError(f"{path}: is no log of an episode; 'ros-rl data info' reads datasets and their logs")

    def entries(self) -> Iterator[Entry]:
        """Yields the messages in the order in which they came; afterwards `whole` says whether the end is there."""
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        decoders = DecoderFactory()
        self.whole = False
        for record in self._records():
            if isinstance(record, Schema):
                schemas[record.id] = record
            elif isinstance(record, Channel):
                channels[record.id] = record
            elif isinstance(record, Message):
                channel = channels[record.channel_id]
                schema = schemas[channel.schema_id]
                yield Entry(channel.topic, schema.name.replace("/msg/", "/"), record.log_time, record.data, schema, decoders)
            elif isinstance(record, Footer):
                self.whole = True

    def _records(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            records = StreamReader(file).records
            while True:
                try:
                    record = next(records)
                except StopIteration:
                    return
                except (McapError, struct.error, ValueError):  # cut off here
                    return
                yield record
