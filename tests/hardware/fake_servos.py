"""Servos on a pseudo-terminal: they answer byte for byte as Feetech (protocol 1) or Dynamixel X servos (protocol 2) do.

Written from the protocols' descriptions; packets can be spoilt on their way to whoever asks.
"""

import fcntl
import os
import pty
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

URDF = """\
<robot name="trio">
  <link name="base"/>
  <link name="l1"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="l2"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="l3"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <joint name="pan" type="revolute"><parent link="base"/><child link="l1"/><limit lower="-2" upper="2" velocity="3" effort="3"/></joint>
  <joint name="lift" type="revolute"><parent link="l1"/><child link="l2"/><limit lower="-2" upper="2" velocity="3" effort="3"/></joint>
  <joint name="jaw" type="revolute"><parent link="l2"/><child link="l3"/><limit lower="0" upper="4" velocity="3" effort="3"/></joint>
</robot>
"""
YAML = """\
name: trio
urdf: trio.urdf
control_rate: 100
command_mode: position
joints:
  pan: {device_unit: tick, ticks_per_turn: 4096, device_offset: 2048, servo: {id: 1, model: MODEL, torque_per_count: 0.003}}
  lift:
    {device_unit: tick, ticks_per_turn: 4096, device_offset: 2000, device_sign: -1, servo: {id: 2, model: MODEL, torque_per_count: 0.002}}
  jaw: {device_unit: tick, ticks_per_turn: 4096, device_offset: 1024, servo: {id: 7, model: MODEL}}
"""
IDS = (1, 2, 7)


def write_robot(folder: Path, model: str = "sts3215") -> Path:
    """Writes a robot of three joints, whose servos have the ids 1, 2 and 7, and returns its robot.yaml."""
    (folder / "trio.urdf").write_text(URDF)
    path = folder / "robot.yaml"
    path.write_text(YAML.replace("MODEL", model))
    return path


def sign_magnitude(value: int, bit: int) -> int:
    """Returns a number as Feetech's registers hold it: the magnitude, and a bit that says it is negative."""
    return value if value >= 0 else 1 << bit | -value


@dataclass(frozen=True)
class Table:
    """Addresses and sizes of the registers that are used here."""

    model_number: tuple[int, int]
    operating_mode: tuple[int, int]
    torque: tuple[int, int]
    goal: tuple[int, int]
    position: tuple[int, int]
    velocity: tuple[int, int]
    load: tuple[int, int]


FEETECH = Table((3, 2), (33, 1), (40, 1), (42, 2), (56, 2), (58, 2), (60, 2))
LARGEST_TORQUE, TORQUE_LIMIT = (16, 2), (48, 2)  # of a Feetech
DYNAMIXEL = Table((0, 2), (11, 1), (64, 1), (116, 4), (132, 4), (128, 4), (126, 2))


class Protocol1:
    """Packets of protocol 1: FF FF, id, length, instruction or error, parameters, checksum."""

    @staticmethod
    def answer(servo: int, error: int, data: bytes) -> bytes:
        body = bytes([servo, len(data) + 2, error]) + data
        return b"\xff\xff" + body + bytes([~sum(body) & 0xFF])

    @staticmethod
    def take(buffer: bytes) -> tuple[int, int, bytes, bytes] | None:
        """Returns id, instruction and parameters of the packet at the front, and what is left; None while it is not whole."""
        if len(buffer) < 4 or len(buffer) < 4 + buffer[3]:
            return None
        packet, rest = buffer[: 4 + buffer[3]], buffer[4 + buffer[3] :]
        assert packet[:2] == b"\xff\xff" and packet[-1] == ~sum(packet[2:-1]) & 0xFF
        return packet[2], packet[4], packet[5:-1], rest

    @staticmethod
    def numbers(parameters: bytes, count: int) -> tuple[list[int], bytes]:
        """Splits addresses and lengths, a byte each, from the parameters after them."""
        return list(parameters[:count]), parameters[count:]


class Protocol2:
    """Packets of protocol 2: FF FF FD 00, id, length, instruction or 55 and error, parameters, CRC-16."""

    @staticmethod
    def _crc(data: bytes) -> bytes:
        crc = 0
        for byte in data:
            crc ^= byte << 8
            for _ in range(8):
                crc = (crc << 1 ^ (0x8005 if crc & 0x8000 else 0)) & 0xFFFF
        return crc.to_bytes(2, "little")

    @classmethod
    def answer(cls, servo: int, error: int, data: bytes) -> bytes:
        packet = b"\xff\xff\xfd\x00" + bytes([servo]) + (len(data) + 4).to_bytes(2, "little") + bytes([0x55, error]) + data
        return packet + cls._crc(packet)

    @classmethod
    def take(cls, buffer: bytes) -> tuple[int, int, bytes, bytes] | None:
        size = 7 + int.from_bytes(buffer[5:7], "little")
        if len(buffer) < 7 or len(buffer) < size:
            return None
        packet, rest = buffer[:size], buffer[size:]
        assert packet[:4] == b"\xff\xff\xfd\x00" and packet[-2:] == cls._crc(packet[:-2])
        return packet[4], packet[7], packet[8:-2], rest

    @staticmethod
    def numbers(parameters: bytes, count: int) -> tuple[list[int], bytes]:
        values = [int.from_bytes(parameters[2 * index : 2 * index + 2], "little") for index in range(count)]
        return values, parameters[2 * count :]


PING, READ, WRITE, SYNC_READ, SYNC_WRITE = 1, 2, 3, 0x82, 0x83


class FakeServos:
    """Servos that answer in a thread of their own, until they are closed.

    Attributes:
        port: path of the serial port at which they are.
        written: what was written to them, in order: id, address, value.
        spoil: makes of an answer (id, packet) what arrives; empty where nothing does.
        deaf: how many of the next sync writes get lost.
        alarm: error byte of an id's answers.
        follow: whether a servo with torque is at its goal at once.
    """

    def __init__(self, ids: tuple[int, ...] = IDS, model: int = 777, table: Table = FEETECH, mode: int = 0):
        self.table = table
        self.protocol = Protocol1 if table is FEETECH else Protocol2
        self.memory = {servo: bytearray(200) for servo in ids}
        self.written: list[tuple[int, int, int]] = []
        self.spoil: Callable[[int, bytes], bytes] | None = None
        self.deaf = 0
        self.alarm: dict[int, int] = {}
        self.follow = False
        for servo in ids:
            self.put(servo, table.model_number, model)
            self.put(servo, table.operating_mode, mode)
            self.put(servo, table.position, 2048)
            if table is FEETECH:
                self.put(servo, LARGEST_TORQUE, 1000)
        self._own, self._other = pty.openpty()
        tty.setraw(self._other)
        self.port = os.ttyname(self._other)
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, servo: int, register: tuple[int, int], value: int) -> None:
        """Sets a register, from two's complement where the value is negative."""
        address, size = register
        self.memory[servo][address : address + size] = (value % (1 << 8 * size)).to_bytes(size, "little")

    def get(self, servo: int, register: tuple[int, int]) -> int:
        address, size = register
        return int.from_bytes(self.memory[servo][address : address + size], "little")

    def goals(self) -> list[int]:
        """Returns the goal of every servo, in ticks."""
        return [self.get(servo, self.table.goal) for servo in self.memory]

    def send(self, answers: bytes) -> None:
        os.write(self._own, answers)

    def arrived(self) -> int:
        """Returns how many bytes are at the port and have not been read."""
        return int.from_bytes(fcntl.ioctl(self._other, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self) -> None:
        os.write(self._end, b"\0")
        self._thread.join()
        for file in (self._own, self._other, self._ending, self._end):
            os.close(file)

    def _run(self) -> None:
        buffer = b""
        while True:
            ready, _, _ = select.select([self._own, self._ending], [], [])
            if self._ending in ready:
                return
            buffer += os.read(self._own, 1024)
            while (taken := self.protocol.take(buffer)) is not None:
                servo, instruction, parameters, buffer = taken
                if answers := b"".join(self._answers(servo, instruction, parameters)):
                    self.send(answers)

    def _answers(self, servo: int, instruction: int, parameters: bytes) -> list[bytes]:
        if instruction == SYNC_READ:
            (address, size), ids = self.protocol.numbers(parameters, 2)
            return [self._answer(each, bytes(self.memory[each][address : address + size])) for each in ids if each in self.memory]
        if instruction == SYNC_WRITE:
            (address, size), data = self.protocol.numbers(parameters, 2)
            self.deaf -= 1
            for start in range(0, len(data), size + 1):
                if self.deaf < 0:
                    self._write(data[start], address, data[start + 1 : start + 1 + size])
            return []
        if servo not in self.memory:
            return []
        if instruction == READ:
            (address, size), _ = self.protocol.numbers(parameters, 2)
            return [self._answer(servo, bytes(self.memory[servo][address : address + size]))]
        if instruction == WRITE:
            (address,), data = self.protocol.numbers(parameters, 1)
            self._write(servo, address, data)
        return [self._answer(servo, b"")]

    def _write(self, servo: int, address: int, data: bytes) -> None:
        self.memory[servo][address : address + len(data)] = data
        self.written.append((servo, address, int.from_bytes(data, "little")))
        if self.follow and address == self.table.goal[0] and self.get(servo, self.table.torque):
            self.put(servo, self.table.position, self.get(servo, self.table.goal))

    def _answer(self, servo: int, data: bytes) -> bytes:
        packet = self.protocol.answer(servo, self.alarm.get(servo, 0), data)
        return packet if self.spoil is None else self.spoil(servo, packet)


def damaged(packet: bytes) -> bytes:
    """Returns a packet of which the checksum is wrong."""
    return packet[:-1] + bytes([packet[-1] ^ 0x5A])


def spoilt(times: int, servo: int, how: Callable[[bytes], bytes] = damaged) -> Callable[[int, bytes], bytes]:
    """Returns what spoils the next answers of one servo, for `FakeServos.spoil`."""
    left = [times]

    def spoil(which: int, packet: bytes) -> bytes:
        if which != servo or not left[0]:
            return packet
        left[0] -= 1
        return how(packet)

    return spoil
