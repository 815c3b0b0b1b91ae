"""Recording from a page: begin and end episodes, judge them, and see what the recorder makes of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ros_rl.web.text import set_text
from ros_rl.web.view import Actions, View

if TYPE_CHECKING:
    import viser

# What is said to the recorder, by the label of its button: start and stop are those of the policy on this page.
LABELS = {"begin": "start", "end": "stop", "success": "success", "failure": "failure", "discard": "discard"}
WORDS = tuple(LABELS.values())
NO_RECORDER = "nothing records: no recorder node is heard"


class RecordPanel:
    """The recorder's state, and the buttons."""

    period = 0.2  # s

    def __init__(self, gui: "viser.GuiApi", tab: "viser.GuiTabHandle", actions: Actions):
        """Adds the controls to a tab."""
        self._record = actions.record
        with tab:
            self._instruction = gui.add_text("instruction", "", hint="Of the next episode, where no task gives one.")
            group = gui.add_button_group("episode", tuple(LABELS))
            self._answer = gui.add_html("")
            self._state = gui.add_html("")

        async def press(_: Any) -> None:
            self.say(LABELS[group.value])

        group.on_click(press)

    def say(self, word: str) -> None:
        """Says one of `WORDS` to the recorder, as its button does."""
        label = next(label for label, meant in LABELS.items() if meant == word)
        self._record(word, self._instruction.value.strip(), lambda answer: set_text(self._answer, f"{label}: {answer}"))

    def update(self, view: View, now: float) -> None:
        """Shows the recorder's state."""
        set_text(self._state, recorder_words(view.recorder))

    def start_over(self) -> None:
        """Forgets the last answer."""
        set_text(self._answer, "")


def recorder_words(status: Mapping[str, object]) -> str:
    """Returns a recorder's status in words."""
    if not status:
        return NO_RECORDER
    words = [str(status.get("state", "")), f"{status.get('episodes', 0)} episodes in the dataset"]
    if status.get("state") == "recording":
        words.append(f"{status.get('messages', 0)} messages")
    if status.get("waiting"):
        words.append(f"{status['waiting']} being committed")
    short = status.get("short")
    if isinstance(short, list) and short:
        words.append(f"the last episode lacks messages of {', '.join(map(str, short))}")
    if status.get("problem"):
        words.append(str(status["problem"]))
    return " · ".join(words)
