import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sample_logs import ROBOT, ns, usual

from ros_rl.data.dataset import Dataset
from ros_rl.data.episode_recorder import EpisodeRecorder, Message, Preroll
from ros_rl.data.integrity import check
from ros_rl.data.log import EpisodeLog
from ros_rl.data.messages import encode
from ros_rl.data.repair import repair
from ros_rl.errors import UserError


@pytest.fixture
def recorder(tmp_path):
    made = EpisodeRecorder(tmp_path / "set", ROBOT)
    yield made
    made.close()


def say(recorder, seconds=0.5, streams=None, until=None):
    """Lets a recorder hear what usually comes; the number of messages."""
    messages = sorted((time, topic, kind, data) for topic, kind, stream in streams or usual(seconds) for time, data in stream)
    for time, topic, kind, data in messages[:until]:
        recorder.write(topic, kind, data, ns(time))
    return len(messages[:until])


def test_episodes_are_committed_while_the_next_is_recorded(recorder):
    for number in range(3):
        recorder.start(f"task {number}")
        say(recorder)
        recorder.stop("success")
    recorder.close()
    dataset = Dataset.open(recorder.root)
    assert [(episode.tasks, episode.outcome) for episode in dataset.episodes] == [((f"task {n}",), "success") for n in range(3)]
    assert check(recorder.root) == []  # no log is left either
    status = recorder.status()
    assert (status["state"], status["committed"], status["last"], status["short"]) == ("idle", 3, 2, [])
    assert json.loads(json.dumps(status)) == status


def test_the_cadence_of_the_last_episode_names_a_slow_camera(recorder):
    recorder.start("lift")
    say(recorder, streams=usual(1.0, {"joints": 200.0, "front": 15.0, "wrist": 30.0}))
    recorder.stop()
    recorder.close()
    assert recorder.status()["short"] == ["front"]


def test_an_episode_without_a_word_is_none(recorder):
    recorder.start("lift")
    recorder.stop()
    recorder.close()
    assert recorder.status()["committed"] == 0 and "nothing came" in recorder.status()["problem"] and check(recorder.root) == []


def test_what_comes_outside_of_an_episode_is_not_recorded(recorder):
    say(recorder)
    for end in (recorder.stop, recorder.discard):
        with pytest.raises(UserError, match="no episode is being recorded"):
            end()
    recorder.start("lift")
    with pytest.raises(UserError, match="already"):
        recorder.start("lift")
    say(recorder)
    recorder.discard()
    assert not recorder.recording and not list((recorder.root / "logs").iterdir())


def test_d3_a_full_disk_stops_the_recording_and_keeps_what_was_recorded(recorder, monkeypatch):
    recorder.start("lift")
    total = say(recorder, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(EpisodeLog, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        recorder.write("task/reward", "std_msgs/Float64", encode("std_msgs/Float64", {"data": 1.0}), ns(101.0))
    assert not recorder.recording
    status = recorder.status()
    assert status["state"] == "failed" and "No space left on device" in status["problem"] and status["messages"] == total
    say(recorder)  # goes nowhere, and disturbs nobody
    recorder._waiting.join()
    recorder.start("lift")
    assert recorder.status()["problem"] == ""
    say(recorder)
    recorder.stop("failure")
    recorder.close()
    assert [episode.outcome for episode in Dataset.open(recorder.root).episodes] == ["", "failure"]


def test_d3_a_disk_that_is_full_at_the_start_leaves_no_log(recorder, monkeypatch):
    def full(path, mode):
        path.touch()
        return open("/dev/full", mode.replace("x", "w"))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OSError, match="No space left"):
            recorder.start("lift")
    assert recorder.status()["state"] == "failed" and "No space left" in recorder.status()["problem"]
    assert not list((recorder.root / "logs").iterdir())
    recorder.start("lift")
    assert recorder.status()["problem"] == ""


@pytest.mark.parametrize("before", [0, 4])
def test_d3_a_disk_that_is_full_from_some_message_on_stops_the_recording_and_its_reason_stays(recorder, before):
    recorder.start("lift")
    say(recorder, until=before)  # of 4 messages no episode can be made: the cameras have not begun
    descriptor = os.open("/dev/full", os.O_WRONLY)
    os.dup2(descriptor, recorder._log._file.fileno())
    os.close(descriptor)
    file = recorder._log._file
    say(recorder)
    recorder._waiting.join()
    status = recorder.status()
    assert file.closed and status["state"] == "failed" and "No space left" in status["problem"] and status["messages"] == before
    assert len(status["uncommitted"]) == len(list((recorder.root / "logs").iterdir())) == (1 if before else 0)


def test_d3_a_commit_that_fails_leaves_the_log_for_a_repair(recorder, monkeypatch):
    recorder.start("lift")
    say(recorder)
    with monkeypatch.context() as patch:
        patch.setattr("ros_rl.data.dataset.write_video", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        recorder.stop("success")
        recorder._waiting.join()
    (log,) = (recorder.root / "logs").iterdir()
    assert f"{log.name} is not committed" in recorder.status()["problem"] and recorder.status()["state"] == "failed"
    recorder.start("push")  # as the next episode of a task does, a second later
    recorder.discard()
    assert recorder.status()["uncommitted"] == [log.name] and recorder.status()["state"] == "failed"
    assert recorder.kept == recorder.status()["kept"] == 0  # it uses up none of the episodes that were asked for
    recorder.close()
    assert repair(recorder.root)[0].endswith("is episode 0 now; the log is in aside/")
    assert check(recorder.root) == []


def test_d1_the_next_recorder_names_the_log_of_the_one_that_was_killed(tmp_path):
    first = EpisodeRecorder(tmp_path / "set", ROBOT)
    first.start("lift")
    say(first)
    first.stop("success")
    first._waiting.join()
    first.start("lift")
    say(first)
    log = first._log.path
    first._log, first._messages = None, 0  # as if it were gone
    first.close()
    second = EpisodeRecorder(tmp_path / "set", ROBOT)
    assert second.left == [log]
    second.start("push")
    say(second)
    second.stop()
    second.close()
    repair(tmp_path / "set")
    assert [episode.tasks for episode in Dataset.open(tmp_path / "set").episodes] == [("lift",), ("push",), ("lift",)]


def test_closing_ends_and_keeps_a_running_episode(recorder):
    recorder.start("lift")
    say(recorder)
    recorder.close()
    columns = Dataset.open(recorder.root).columns(0)
    assert columns["next.truncated"].tolist() == [False] * (len(columns["action"]) - 1) + [True]
    assert np.isfinite(columns["action"]).all()


def test_an_episode_keeps_how_it_was_made_what_was_lost_and_what_a_person_said(tmp_path):
    recorder = EpisodeRecorder(tmp_path / "set", ROBOT, {"lockstep": True})
    for outcome, lost in (("success", 3), ("failure", 0)):
        recorder.start("lift", {"task": "lift_it", "seed": 7})
        recorder.drop("front", lost)
        say(recorder)
        recorder.stop(outcome)
    recorder.drop("front", 9)  # between two episodes nothing is missed
    recorder.start("lift")
    say(recorder)
    recorder.discard()
    assert (recorder.kept, recorder.discarded) == (2, 1)
    recorder.close()
    first, second = Dataset.open(recorder.root).episodes
    assert (first.outcome, second.outcome) == ("success", "failure")
    assert {key: first.recording[key] for key in ("task", "seed", "lockstep")} == {"task": "lift_it", "seed": 7, "lockstep": True}
    assert [episode.recording["sources"]["front"]["dropped"] for episode in (first, second)] == [3, 0]
    assert first.recording["sources"]["joint_states"]["count"] == 100
    assert first.recording["sources"]["wrist"]["rate"] == pytest.approx(30.0)


def test_d1_what_a_person_said_of_an_episode_survives_the_recorder(recorder, monkeypatch):
    recorder.start("lift")
    say(recorder)
    with monkeypatch.context() as patch:
        patch.setattr("ros_rl.data.episode_recorder.commit_log", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        recorder.stop("failure")
        recorder._waiting.join()
    recorder.close()
    repair(recorder.root)
    assert [episode.outcome for episode in Dataset.open(recorder.root).episodes] == ["failure"]


def message(time, stamp, topic="joint_states"):
    return Message(topic, "std_msgs/String", b"", ns(time), ns(stamp))


def test_the_last_moments_are_remembered_and_those_of_an_old_time_line_forgotten():
    preroll = Preroll(ns(2.0), 1000)
    for tick in range(60):
        preroll.add(message(tick / 10, tick / 10))
    assert [kept.time for kept in preroll] == [ns(tick / 10) for tick in range(39, 60)]
    preroll.add(message(5.9, 0.0, "joint_command"))  # overtook the joint state that it answers
    preroll.rewind(ns(0.0))
    preroll.add(message(0.0, 0.0))
    assert [(kept.topic, kept.time) for kept in preroll] == [("joint_command", 0), ("joint_states", 0)]
    preroll.add(replace(message(0.1, 0.1), data=bytes(990)))
    preroll.add(replace(message(0.2, 0.2), data=bytes(20)))
    assert [len(kept.data) for kept in preroll] == [20]
    preroll.add(replace(message(0.3, 0.3), data=bytes(2000)))
    assert list(preroll) == []
