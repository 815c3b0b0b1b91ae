"""Tests of ros_rl.teleop.keyboard, on pseudo-terminals."""

import os
import pty
import select
import termios
import tty
from contextlib import suppress

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.teleop.device import DeviceLost
from ros_rl.teleop.keyboard import KEY_TIME, Keyboard

NOTHING = Observation(0.0, np.zeros(0), np.zeros(0), np.zeros(0))


@pytest.fixture
def terminal():
    ours, theirs = pty.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        with suppress(OSError):
            os.close(end)


@pytest.fixture
def keyboard(terminal):
    keyboard = Keyboard(0.2, 0.8, terminal[1])
    keyboard.open()
    yield keyboard
    keyboard.close()


def test_the_terminal_is_as_before_once_it_is_closed(terminal):
    before = termios.tcgetattr(terminal[1])
    keyboard = Keyboard(0.2, 0.8, terminal[1])
    keyboard.open()
    during = termios.tcgetattr(terminal[1])
    assert during[3] & (termios.ECHO | termios.ICANON) == 0
    assert during[3] & termios.ISIG  # Ctrl-C ends the program as ever
    assert during[6][termios.VQUIT] == during[6][termios.VSUSP] == b"\0"
    keyboard.close()
    keyboard.close()
    assert termios.tcgetattr(terminal[1]) == before


def test_what_was_typed_before_does_not_count(terminal):
    tty.setcbreak(terminal[1])
    os.write(terminal[0], b"w12")
    assert select.select([terminal[1]], [], [], 60.0)[0]  # they are there
    keyboard = Keyboard(0.2, 0.8, terminal[1])
    keyboard.open()
    sample = keyboard.read(NOTHING, 0.0)
    keyboard.close()
    assert (sample.engaged, sample.pressed) == (False, ())


@pytest.mark.parametrize(
    ("keys", "twist"),
    [
        ("w", [0.2, 0, 0, 0, 0, 0]), ("s", [-0.2, 0, 0, 0, 0, 0]), ("a", [0, 0.2, 0, 0, 0, 0]), ("d", [0, -0.2, 0, 0, 0, 0]),
        ("r", [0, 0, 0.2, 0, 0, 0]), ("f", [0, 0, -0.2, 0, 0, 0]), ("u", [0, 0, 0, 0.8, 0, 0]), ("o", [0, 0, 0, -0.8, 0, 0]),
        ("i", [0, 0, 0, 0, 0.8, 0]), ("k", [0, 0, 0, 0, -0.8, 0]), ("j", [0, 0, 0, 0, 0, 0.8]), ("l", [0, 0, 0, 0, 0, -0.8]),
        ("WJ", [0.2, 0, 0, 0, 0, 0.8]), ("ws", [0] * 6), ("wwww", [0.2, 0, 0, 0, 0, 0]), ("xqa\x1b[D\x1bOD\x1b[1;5D", [0, 0.2, 0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_keys_move_the_tool_for_their_time(terminal, keyboard, keys, twist):
    assert not keyboard.read(NOTHING, 0.0).engaged
    os.write(terminal[0], keys.encode())
    sample = keyboard.read(NOTHING, 1.0)
    assert sample.engaged
    np.testing.assert_allclose(sample.twist, twist)
    sample = keyboard.read(NOTHING, 1.0 + KEY_TIME)
    np.testing.assert_array_equal(sample.twist, np.zeros(6))
    assert sample.engaged


def test_arrows_and_function_keys_are_not_taken_for_their_letters(terminal, keyboard):
    os.write(terminal[0], b"\x1b[A\x1b[D\x1bOR\x1b[1;5D\x1b[15~\x1b")
    assert not keyboard.read(NOTHING, 0.0).engaged


@pytest.mark.parametrize("parts", [(b"\x1b", b"[D"), (b"\x1b[", b"1;5", b"D"), (b"\x1bO", b"D"), (b"\x1b[<0;35;12M\x1b[?1;2c",)])
def test_what_a_terminal_sends_in_parts_or_by_itself_is_no_key(terminal, keyboard, parts):
    for count, part in enumerate(parts):
        os.write(terminal[0], part)
        sample = keyboard.read(NOTHING, 0.01 * count)
        assert (sample.engaged, sample.pressed) == (False, ())
    os.write(terminal[0], b"d")
    assert keyboard.read(NOTHING, 0.1).twist[1] == -0.2


def test_escape_alone_swallows_no_key_that_comes_later(terminal, keyboard):
    os.write(terminal[0], b"\x1b")
    assert not keyboard.read(NOTHING, 0.0).engaged
    assert not keyboard.read(NOTHING, 0.1).engaged
    os.write(terminal[0], b"d")
    assert keyboard.read(NOTHING, 0.2).twist[1] == -0.2


def test_space_lets_go_and_h_hands_back(terminal, keyboard):
    os.write(terminal[0], b"w")
    assert keyboard.read(NOTHING, 0.0).engaged
    os.write(terminal[0], b" ")
    sample = keyboard.read(NOTHING, 0.01)
    assert (sample.engaged, sample.pressed) == (False, ())
    np.testing.assert_array_equal(sample.twist, np.zeros(6))
    os.write(terminal[0], b"wh")
    sample = keyboard.read(NOTHING, 0.02)
    assert (sample.engaged, sample.pressed) == (False, ("hand_back",))


def test_other_keys_press_buttons_and_the_gripper(terminal, keyboard):
    os.write(terminal[0], b"1234")
    sample = keyboard.read(NOTHING, 0.0)
    assert (sample.pressed, sample.engaged, sample.gripper) == (("start", "success", "failure", "discard"), False, None)
    os.write(terminal[0], b"g")
    sample = keyboard.read(NOTHING, 0.1)
    assert (sample.pressed, sample.engaged, sample.gripper) == ((), True, 0.0)
    os.write(terminal[0], b"g")
    assert keyboard.read(NOTHING, 0.2).gripper == 1.0
    os.write(terminal[0], b"g w")
    assert keyboard.read(NOTHING, 0.3).gripper is None  # let go, and engaged anew: as it is
    os.write(terminal[0], b"g")
    assert keyboard.read(NOTHING, 0.4).gripper == 1.0  # it was left closed


def test_a_terminal_that_closes_is_a_lost_device(terminal, keyboard):
    os.write(terminal[0], b"w")
    assert keyboard.read(NOTHING, 0.0).engaged
    os.close(terminal[0])
    for _ in range(3):
        with pytest.raises(DeviceLost, match="its terminal was closed"):
            keyboard.read(NOTHING, 0.1)
    keyboard.close()


def test_what_is_no_terminal_is_refused():
    reading, writing = os.pipe()
    try:
        with pytest.raises(UserError, match="needs a terminal of its own: run 'ros-rl teleop keyboard BRINGUP'"):
            Keyboard(0.2, 0.8, reading).open()
    finally:
        os.close(reading)
        os.close(writing)
