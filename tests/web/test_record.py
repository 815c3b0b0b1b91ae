"""Tests of ros_rl.web.record: every button asks for its word, and a recorder is told in words."""

import asyncio

import pytest

from ros_rl.web.pilot import Pilot
from ros_rl.web.record import LABELS, RecordPanel, recorder_words
from ros_rl.web.server import WebServer
from ros_rl.web.view import Actions, View


@pytest.fixture
def gui():
    server = WebServer(0, "token", Pilot(1.0))
    yield server.viser.gui
    server.stop()


def test_every_button_asks_for_its_word_with_the_instruction_and_shows_the_answer(gui):
    asked = []

    def record(word, instruction, report):
        asked.append((word, instruction))
        report("<b>done</b>")

    nothing = lambda report: None  # noqa: E731
    panel = RecordPanel(gui, gui.add_tab_group().add_tab("Record"), Actions(nothing, nothing, nothing, nothing, record))
    panel._instruction.value = " fold the towel "
    group = next(handle for handle in gui._gui_input_handle_from_uuid.values() if getattr(handle, "options", ()) == tuple(LABELS))
    said = {"begin": "start", "end": "stop", "success": "success", "failure": "failure", "discard": "discard"}
    assert list(said) == list(LABELS)
    for label, word in said.items():
        group._impl.value = label  # the setter would press it once more, when it likes
        for callback in group._impl.update_cb:
            asyncio.run(callback(None))
        assert asked[-1] == (word, "fold the towel")
        assert f">{label}: &lt;b&gt;done&lt;/b&gt;</div>" in panel._answer.content
    panel.update(View(recorder={"state": "idle", "episodes": 4}), 0.0)
    assert ">idle · 4 episodes in the dataset</div>" in panel._state.content
    panel.update(View(), 0.0)
    assert "no recorder node is heard" in panel._state.content


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "nothing records: no recorder node is heard"),
        ({"state": "idle", "episodes": 0, "problem": None, "short": []}, "idle · 0 episodes in the dataset"),
        ({"state": "recording", "episodes": 3, "messages": 812}, "recording · 3 episodes in the dataset · 812 messages"),
        ({"state": "committing", "episodes": 3, "waiting": 2}, "committing · 3 episodes in the dataset · 2 being committed"),
        (
            {"state": "idle", "episodes": 5, "short": ["joint_states", "overhead"]},
            "idle · 5 episodes in the dataset · the last episode lacks messages of joint_states, overhead",
        ),
        ({"state": "failed", "episodes": 5, "problem": "the disk is full"}, "failed · 5 episodes in the dataset · the disk is full"),
    ],
)
def test_a_recorder_in_words(status, words):
    assert recorder_words(status) == words
