"""Errors a user can mend: one line that says what is wrong, where, and what would be right."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

_Kept = TypeVar("_Kept")


class UserError(ValueError):
    """Bad input. The command line prints the message as one line and exits with code 2."""


class RobotFault(RuntimeError):
    """The robot or its simulation failed while running: lost connection, diverged physics, faulty sensor."""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns ``", did you mean 'x'?"`` for the known name nearest to `name`, or an empty string."""
    match = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean '{match[0]}'?" if match else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Builds the error for a name that does not exist; it lists the names that do.

    Args:
        kind: what the name stands for, such as "robot" or "argument".
        name: what was asked for.
        known: the names that exist.
    """
    known = sorted(known)
    return UserError(f"unknown {kind} '{name}'{closest(name, known)} (known: {', '.join(known) or 'none'})")


def named(kind: str, name: str, known: Mapping[str, _Kept]) -> _Kept:
    """Returns what has a name.

    Raises:
        UserError: nothing has, see `unknown`.
    """
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
