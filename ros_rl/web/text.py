"""Text on the page. Whatever comes over a topic or a service is text and never markup: a page holds the secret of its address."""

import html
from typing import Any

_STALE = "page is not being updated"
_STALE_AFTER = 3.0  # s; the banner is sent anew every second
_STALE_COLOUR = "#868e96"
_BOX = "padding:0.5em 0.75em;border-radius:4px;color:white;font-weight:600"


def escape(words: str) -> str:
    """Returns words in HTML that shows them as they are."""
    return html.escape(words)


def text(words: str) -> str:
    """Returns a line of text in HTML; nothing for no words."""
    return f'<div style="padding:0 0.85em 0.5em;font-size:0.875em">{escape(words)}</div>' if words else ""


def lines(words: str, count: int) -> str:
    """Returns text in HTML that takes the height of so many lines, whatever the words: what is below it does not move."""
    return f'<div style="padding:0 0.85em;font-size:0.875em;line-height:1.4;height:{1.4 * count:g}em;overflow:hidden">{escape(words)}</div>'


def banner(words: str, colour: str, beat: int | None = None) -> str:
    """Returns a box of a colour in HTML.

    Args:
        words: what is in it.
        colour: of the box.
        beat: 0 and 1 by turns: what is sent with the other one begins to age anew. The browser itself covers a box that has grown old;
            the page cannot be told to when the connection is gone. None: it does not age.
    """
    box = f'<div style="background:{colour};{_BOX}">{escape(words)}</div>'
    cover = ""
    if beat is not None:
        style = (
            f"position:absolute;inset:0;background:{_STALE_COLOUR};{_BOX};opacity:0;animation:stale{beat} 0.1s {_STALE_AFTER:g}s forwards"
        )
        cover = f'<style>@keyframes stale{beat}{{to{{opacity:1}}}}</style><div style="{style}">{_STALE}</div>'
    return f'<div style="position:relative;margin:0 0.75em 0.5em">{box}{cover}</div>'


def set_text(handle: Any, words: str) -> None:
    """Sets the words of an HTML element."""
    set_content(handle, text(words))


def set_content(handle: Any, content: str) -> None:
    """Sets the HTML of an element; what is the same is not sent again."""
    if handle.content != content:
        handle.content = content
