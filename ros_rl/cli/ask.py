"""Asks before a real robot is moved by something that no person has in hand."""

import sys

from ros_rl.errors import UserError


def ask(motion: str) -> None:
    """Says what will move, and waits for a 'yes'.

    Raises:
        UserError: nobody is there to answer, or the answer is another one.
    """
    if not sys.stdin.isatty():
        raise UserError("a real robot is about to move and nobody can be asked; give --yes")
    print(motion)
    if input("Clear its way and type 'yes': ").strip().lower() != "yes":
        raise UserError("not confirmed, nothing was moved")
