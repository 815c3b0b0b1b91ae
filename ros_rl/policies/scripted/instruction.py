"""Understands the few sentences that the tabletop expert can carry out."""

import re
from dataclasses import dataclass
from typing import Literal

from ros_rl.errors import UserError

Action = Literal["put", "stack", "push"]

EXAMPLES = ("put the red block in the bowl", "stack the red block on the blue block", "push the button")

_OBJECT = re.compile(r"\b(?:(red|blue)\s+(?:block|cube)|(bowl)|(button))\b")
_NEGATION = re.compile(r"\b(?:not|never|without)\b|n't\b")
_PUSH = re.compile(r"\b(?:push|press|hit)\b")
_INTO = re.compile(r"\b(?:in|into|inside|to)\b")
_ONTO = re.compile(r"\b(?:on|onto|top)\b")


@dataclass(frozen=True)
class Goal:
    """What to do: `item` is the object to move or to push, `place` where it shall go (the item itself for a push)."""

    action: Action
    item: str
    place: str


def parse(instruction: str) -> Goal:
    """Returns the goal of an instruction: its objects in the order they are named, and the word that relates them.

    Raises:
        UserError: it is none of the kinds of instruction that the expert can carry out.
    """
    text = instruction.lower()
    objects = [f"{colour}_block" if colour else bowl or button for colour, bowl, button in _OBJECT.findall(text)]
    if not _NEGATION.search(text):
        match objects:
            case ["button"] if _PUSH.search(text):
                return Goal("push", "button", "button")
            case ["red_block" | "blue_block" as item, "bowl"] if _INTO.search(text):
                return Goal("put", item, "bowl")
            case ["red_block" | "blue_block" as item, "red_block" | "blue_block" as place] if item != place and _ONTO.search(text):
                return Goal("stack", item, place)
    raise UserError(f"the scripted expert cannot do '{instruction}'; it can do what is said like: {', '.join(EXAMPLES)}, with either block")
