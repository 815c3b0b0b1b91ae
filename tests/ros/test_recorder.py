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


def say(recorder, state, seed=0):
    told = {"state": state, "instruction": "balance", "seconds": 5.0, "seed": seed, "reason": "because"}
    recorder._on_state(String(data=json.dumps(told)))


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
    assert [take.success for take in recorder.takes] == [True, False, False]


def test_poses_are_kept_at_the_frame_rate_and_begin_anew_with_an_episode(recorder):
    def measure(stamp):
        recorder._on_joints(to_joint_state(stamp, ["slider", "pole"], np.array([stamp, 0.0]), np.zeros(2), np.zeros(2)))

    say(recorder, "running")
    for tick in range(101):
        measure(tick / 100)
    say(recorder, "success")
    for tick in range(101, 120):
        measure(tick / 100)
    say(recorder, "finished")
    measure(1.5)
    assert [moment.stamp for moment in recorder.takes[0].moments] == pytest.approx([0.05 * index for index in range(21)])
    for tick in range(4):
        measure(tick / 100)
    say(recorder, "running")
    for tick in range(4, 11):
        measure(tick / 100)
    assert [moment.joint_position[0] for moment in recorder.takes[1].moments] == [0.0, 0.05, 0.1]
