"""Tests of ros_rl.nodes.demo's recorder: every episode gets the counts that are its own."""

import json

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from std_msgs.msg import String

from ros_rl.nodes.demo import EpisodeResult, Recorder
from ros_rl.nodes.messages import to_joint_state
from ros_rl.robots.spec import load_robot


@pytest.fixture
def recorder(ros):
    node = Recorder(load_robot("cartpole"), "/test", 20, lambda state: None)
    yield node
    node.destroy_node()


def say(recorder, state, seed=0, sent=0, seconds=5.0):
    told = {"state": state, "instruction": "balance", "seconds": seconds, "seed": seed, "reason": "because"}
    recorder._on_state(String(data=json.dumps(told)), {"source_timestamp": sent})


def report(recorder, **counts):
    values = [KeyValue(key=key, value=str(value)) for key, value in counts.items()]
    recorder._on_diagnostics(DiagnosticArray(status=[DiagnosticStatus(name="/test/policy_node"), DiagnosticStatus(values=values)]))


def test_an_episode_is_counted_by_the_first_report_after_its_end(recorder):
    say(recorder, "running", seed=3)
    report(recorder, limited=2, overruns=1)
    assert recorder.results == []
    say(recorder, "success", seed=3)
    recorder._on_diagnostics(DiagnosticArray(status=[DiagnosticStatus(name="/test/policy_node")]))
    assert recorder.results == [], "that was no report of the hardware node"
    report(recorder, limited=5, overruns=1, held=9)
    report(recorder, limited=6, overruns=2)
    assert recorder.results == [EpisodeResult("balance", True, 5.0, 5, 1, 3, "because")]


def test_counts_run_on_and_each_episode_has_what_was_added(recorder):
    for number, (state, limited) in enumerate((("success", 5), ("failure", 5), ("timeout", 12))):
        say(recorder, "running", seed=number)
        say(recorder, state, seed=number)
        report(recorder, limited=limited, overruns=number)
    assert [(result.success, result.limited, result.overruns, result.seed) for result in recorder.results] == [
        (True, 5, 0, 0),
        (False, 0, 1, 1),
        (False, 7, 1, 2),
    ]
    assert [take.success for take in recorder.takes()] == [True, False, False]


def measure(recorder, stamp, sent):
    message = to_joint_state(stamp, ["slider", "pole"], np.array([stamp, 0.0]), np.zeros(2), np.zeros(2))
    recorder._on_joints(message, {"source_timestamp": sent})


def stamps(take):
    return [moment.stamp for moment in take.moments]


def test_poses_are_kept_at_the_frame_rate_from_the_reset_to_the_end_of_an_episode(recorder):
    for tick in range(30):
        measure(recorder, tick / 100, sent=tick)
    for tick in range(101):
        measure(recorder, tick / 100, sent=1000 + tick)
    say(recorder, "running", sent=1002)
    say(recorder, "success", sent=1101, seconds=1.0)
    for tick in range(101, 120):
        measure(recorder, tick / 100, sent=1000 + tick)
    for tick in range(11):
        measure(recorder, tick / 100, sent=2000 + tick)
    say(recorder, "failure", sent=2010, seconds=0.1)
    first, second = recorder.takes()
    assert stamps(first) == pytest.approx([0.05 * index for index in range(22)])
    assert [moment.joint_position[0] for moment in second.moments] == [0.0, 0.05, 0.1]
    assert (first.success, second.success) == (True, False)


def test_poses_that_come_after_word_of_the_end_belong_to_the_episode_they_were_sent_in(recorder):
    measure(recorder, 0.0, sent=0)
    measure(recorder, 0.5, sent=500)
    say(recorder, "running", sent=1001)
    say(recorder, "success", sent=2000, seconds=1.0)
    assert recorder.behind
    for tick in range(11):
        measure(recorder, tick / 10, sent=1000 + 100 * tick)
    assert not recorder.behind
    measure(recorder, 0.0, sent=2001)
    (take,) = recorder.takes()
    assert stamps(take) == pytest.approx([0.1 * index for index in range(11)])
