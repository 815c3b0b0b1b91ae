"""A keyboard in a terminal: keys move the tool as long as they are held down."""

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.teleop.device import Button, DeviceLost, Sample

# A terminal tells no release of a key, only its repetition: about 30 times a second, after a pause of a third to half a second.
KEY_TIME = 0.15  # s that one key press moves the tool
MOVES: Mapping[str, tuple[int, int]] = {  # index into the twist, and sign
    "w": (0, 1), "s": (0, -1), "a": (1, 1), "d": (1, -1), "r": (2, 1), "f": (2, -1),
    "u": (3, 1), "o": (3, -1), "i": (4, 1), "k": (4, -1), "j": (5, 1), "l": (5, -1),
}  # fmt: skip
PRESSES: Mapping[str, Button] = {"1": "start", "2": "success", "3": "failure", "4": "discard", "h": "hand_back"}
# Arrows, mice and the answers of a terminal are sent as several characters, some of them letters (ECMA-48), and may come in parts.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?$")
_ESCAPE_TIME = 0.05  # s without a further character after which the key was Escape itself
HELP = """\
w s  forward, back      u o  roll      g      gripper
a d  left, right        i k  pitch     space  let go: the robot holds
r f  up, down           j l  yaw       h      hand back to the policy
1 start   2 success   3 failure   4 discard   Ctrl-C end"""


class Keyboard:
    """The device. The first key that moves something engages it, space or a terminal that closes lets go of it.

    The terminal is as before once it is closed, also by Ctrl-C or SIGTERM.
    """

    name = "keyboard"
    has_switch = True

    def __init__(self, speed: float, turn: float, terminal: int | None = None):
        """
        Args:
            speed: m/s while a key is held.
            turn: rad/s.
            terminal: its file descriptor; standard input if None.
        """
        self._scale = np.repeat([speed, turn], 3)
        self._given = terminal
        self._terminal: int | None = None
        self._before: list[Any] = []
        self._helped = False
        self._engaged = False
        self._gripper: float | None = None  # asked for since the keyboard was engaged
        self._open = True  # what the gripper was told last
        self._until: dict[str, float] = {}  # s, by key
        self._begun, self._came = "", -np.inf  # of several characters, and when the last ones came, s

    def open(self) -> None:
        """Takes keys as they are pressed, unseen.

        Raises:
            UserError: there is no terminal, or it belongs to another program now.
        """
        wrong = UserError(
            "the keyboard needs a terminal of its own: run 'ros-rl teleop keyboard BRINGUP' in a second one, in the foreground"
        )
        try:
            terminal = sys.stdin.fileno() if self._given is None else self._given
            if not os.isatty(terminal) or (self._given is None and os.tcgetpgrp(terminal) != os.getpgrp()):
                raise wrong
            self._before = termios.tcgetattr(terminal)
            self._terminal = terminal
            tty.setcbreak(terminal, termios.TCSAFLUSH)
            mode = termios.tcgetattr(terminal)
        except (OSError, ValueError, termios.error):
            raise wrong from None
        # Ctrl-\ and Ctrl-Z would leave the terminal as it is now to whatever comes next.
        mode[6][termios.VQUIT] = mode[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
        self._engaged, self._gripper, self._open, self._until, self._begun = False, None, True, {}, ""
        if self._given is None and not self._helped:
            print(HELP, flush=True)
            self._helped = True

    def read(self, observation: Observation, now: float) -> Sample:
        """Returns the keys that count now.

        Raises:
            DeviceLost: the terminal was closed.
        """
        pressed = self._press(self._keys(self._typed(), now), now)
        twist = np.zeros(6)
        for key, until in self._until.items():
            if until > now:
                axis, sign = MOVES[key]
                twist[axis] += sign
        return Sample(now, self._engaged, twist=twist * self._scale, gripper=self._gripper, pressed=pressed)

    def close(self) -> None:
        """Gives the terminal back as it was."""
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(terminal, termios.TCSANOW, self._before)

    def _typed(self) -> str:
        if self._terminal is None:
            raise DeviceLost("it is closed")
        try:
            if not select.select([self._terminal], [], [], 0.0)[0]:
                return ""
            typed = os.read(self._terminal, 1024)
        except OSError:
            typed = b""
        if not typed:
            self._engaged = False
            raise DeviceLost("its terminal was closed")
        return typed.decode("utf-8", "ignore")

    def _keys(self, typed: str, now: float) -> str:
        """Returns the keys that are one character each."""
        if typed:
            whole = _ESCAPES.sub("", self._begun + typed)
            begun = _BEGUN.search(whole)
            self._begun, self._came = begun.group() if begun else "", now
            return whole.removesuffix(self._begun).lower()
        if now - self._came > _ESCAPE_TIME:
            self._begun = ""
        return ""

    def _press(self, keys: str, now: float) -> tuple[Button, ...]:
        for key in keys:
            if key in MOVES:
                self._until[key], self._engaged = now + KEY_TIME, True
            elif key == "g":
                self._open, self._engaged = not self._open, True
                self._gripper = float(self._open)
            elif key in " h":
                self._until, self._engaged, self._gripper = {}, False, None
        return tuple(PRESSES[key] for key in keys if key in PRESSES)
