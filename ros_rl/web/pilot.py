"""Which of the open pages moves the robot, and how: the dead-man switch, the target, the keys. Knows neither the server nor ROS."""

import threading
from collections.abc import Callable, Collection

import numpy as np

from ros_rl.teleop.browser import PageState
from ros_rl.teleop.device import Button
from ros_rl.teleop.keyboard import MOVES, PRESSES

KEYS = "".join([*MOVES, *PRESSES, "g", " "])


class Pilot:
    """The person who moves the robot from one of the pages.

    Pages are told apart by a number. The first to take over has the robot until it lets go, is closed, hidden or silent; then the
    robot is held, and any page may take it over or give it back.

    A page lives as long as its beats come. One that fell silent has let go for good, also if its beats come again.

    Attributes:
        page: the page that has, or last had, the robot; None before the first and after it was given back.
        word: called with what a key asks for: start, success, failure or discard.
        changed: called when `state` is another one, in the thread that changed it.
        opening: how far open the gripper was seen last, 0 to 1.
    """

    def __init__(self, timeout: float):
        """Takes the silence after which a page is lost, s."""
        self.page: int | None = None
        self.word: Callable[[Button], None] = lambda _: None
        self.changed: Callable[[], None] = lambda: None
        self.opening = 1.0
        self._timeout = timeout
        self._lock = threading.Lock()
        self._beats: dict[int, float] = {}  # s, of visible pages
        self._held: set[str] = set()
        self._engaged = False
        self._target: list[float] | None = None
        self._gripper: float | None = None
        self._deflections = np.zeros(6)
        self._reason = ""
        self._hand_back = False

    def take(self, page: int, now: float) -> str:
        """Gives the robot to a page if no other has it; returns what became of it, in words."""
        with self._lock:
            self._expire(now)
            if self._engaged and page != self.page:
                return f"page {self.page} has the robot"
            if not now - self._beats.get(page, -np.inf) <= self._timeout:
                return "not taken over: nothing is heard of this page"
            if page != self.page:
                self._held = set()
            self.page, self._engaged, self._reason, self._hand_back = page, True, "", False
        self.changed()
        return "taken over"

    def let_go(self, page: int) -> str:
        """Releases the dead-man switch of a page; returns what became of it."""
        with self._lock:
            released = self._release(page, "")
        if not released:
            return "this page does not have the robot"
        self.changed()
        return "let go"

    def give_back(self, page: int, now: float) -> str:
        """Gives the robot back to its policy, unless another page has it; returns what became of it."""
        with self._lock:
            self._expire(now)
            if self._engaged and page != self.page:
                return f"page {self.page} has the robot"
            self._forget()
            self.page, self._reason, self._hand_back = None, "", True
        self.changed()
        return "given back to the policy"

    def drag(self, page: int, position: np.ndarray, quat: np.ndarray) -> None:
        """Takes a target for the tool in the root link: position (3,), m, and quaternion (w, x, y, z)."""
        self._set(page, "_target", [*map(float, position), *map(float, quat)])

    def grip(self, page: int, opening: float) -> None:
        """Takes how far open the gripper shall be, 0 to 1."""
        self._set(page, "_gripper", float(np.clip(opening, 0.0, 1.0)))

    def deflect(self, page: int, axis: int, share: float) -> None:
        """Takes a deflection from -1 to 1 of one of the twist's axes."""
        deflections = self._deflections.copy()
        deflections[axis] = share
        self._set(page, "_deflections", deflections)

    def beat(self, page: int, visible: bool, keys: Collection[str], now: float) -> None:
        """Notes that a page lives.

        Args:
            page: its number.
            visible: whether a person can see it; one that nobody sees counts as gone.
            keys: the keys held down on it.
            now: s, on a monotonic clock.
        """
        if not visible:
            self.gone(page, "its page was hidden")
            return
        with self._lock:
            lost = self._expire(now)
            self._beats[page] = now
            if page != self.page:
                return
            held = {key for key in keys if key in KEYS}
            newly, moved = held - self._held, held != self._held
            self._held = held
            if self._engaged and "g" in newly:
                self._gripper = float((self.opening if self._gripper is None else self._gripper) < 0.5)
            if self._engaged and held & MOVES.keys():
                self._target = None
        if lost or moved:
            self.changed()
        if " " in newly:
            self.let_go(page)
        for key in sorted(newly & PRESSES.keys()):
            if PRESSES[key] == "hand_back":
                self.give_back(page, now)
            else:
                self.word(PRESSES[key])

    def gone(self, page: int, reason: str = "its page was closed") -> None:
        """Forgets a page; a robot that it has is held."""
        with self._lock:
            self._beats.pop(page, None)
            released = self._release(page, reason)
        if released:
            self.changed()

    @property
    def engaged(self) -> bool:
        """Whether the dead-man switch of a page is pressed."""
        return self._engaged

    @property
    def target(self) -> list[float] | None:
        """Where the tool shall go, as in `PageState`; None while it is not dragged."""
        return self._target

    @property
    def gripper(self) -> float | None:
        """How far open the gripper shall be."""
        return self._gripper

    @property
    def reason(self) -> str:
        """Why the robot was let go, if not by the person."""
        return self._reason

    def state(self, now: float) -> PageState:
        """Returns what to say to the robot now; that it is given back is said once."""
        with self._lock:
            self._expire(now)
            hand_back, self._hand_back = self._hand_back, False
            if not self._engaged:
                return PageState(False, self._reason, hand_back=hand_back)
            twist = self._deflections.copy()
            for key in self._held & MOVES.keys():
                axis, sign = MOVES[key]
                twist[axis] += sign
            return PageState(True, pose=self._target, twist=np.clip(twist, -1.0, 1.0).tolist(), gripper=self._gripper)

    # `changed` is never called with the lock held: who is told asks for the state.

    def _set(self, page: int, name: str, value: object) -> None:
        with self._lock:
            has = self._engaged and page == self.page
            if has:
                setattr(self, name, value)
        if has:
            self.changed()

    def _expire(self, now: float) -> bool:
        """Lets go for a page that fell silent; tells whether it did."""
        silent = self.page is not None and not now - self._beats.get(self.page, -np.inf) <= self._timeout
        return silent and self.page is not None and self._release(self.page, "its page fell silent")

    def _release(self, page: int, reason: str) -> bool:
        if not self._engaged or page != self.page:
            return False
        self._reason = reason
        self._forget()
        return True

    def _forget(self) -> None:
        """Lets go, and forgets what the robot was to do."""
        self._engaged = False
        self._target = self._gripper = None
        self._deflections = np.zeros(6)
