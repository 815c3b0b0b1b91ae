import json

import cv2
import numpy as np
import pytest
from sample_logs import ROBOT, image, joint_state, ns, trajectory, usual, write_log

from ros_rl.data.convert import Recording, Series, commit_log
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.integrity import check
from ros_rl.data.messages import encode, header
from ros_rl.errors import UserError


def columns(path):
    recording = Recording.read(path)
    return recording.columns(recording.times())


def column(values, source):
    return values[:, ROBOT.sources.index(source)]


def said(times, values, kind):
    return [(time, encode(kind, {"data": value})) for time, value in zip(times, values, strict=True)]


def claim(word):
    return json.dumps({"device": "joy", "state": word, "reason": ""})


def test_d4_every_row_pairs_what_is_nearest_in_time_and_keeps_the_real_ages(tmp_path):
    path = write_log(tmp_path / "log.mcap", usual(2.0, {"joints": 200.0, "front": 30.0, "wrist": 17.0}))
    found = columns(path)
    time = found["stamp"] + found["age"]
    assert np.abs(time - time[:, :1]).max() < 1e-6  # stamp and age tell one time for a row, whatever the source
    assert np.diff(time[:, 0]) == pytest.approx(1 / 30, abs=1e-6)
    assert time[0, 0] == pytest.approx(100.011, abs=1e-6)  # when the last source began
    for source, rate in (("joint_states", 200), ("front", 30), ("wrist", 17)):
        assert np.abs(column(found["age"], source)).max() <= 0.5 / rate + 1e-6
    # Brute force: no other measurement is nearer.
    wrist = 100.011 + np.arange(34) / 17
    nearest = np.abs(time[:, :1] - wrist).min(axis=1)
    assert np.abs(column(found["age"], "wrist")) == pytest.approx(nearest, abs=1e-6)
    assert np.abs(column(found["stamp"], "wrist")[:, None] - wrist).min(axis=1).max() < 1e-6
    assert found["observation.state"][:, 0] == pytest.approx(column(found["stamp"], "joint_states"), abs=1e-6)
    assert found["joint_velocity"][:, 1] == pytest.approx(20 * column(found["stamp"], "joint_states"), abs=1e-6)
    assert found["action"][:, 1] == pytest.approx(-2 * column(found["stamp"], "action"), abs=1e-6)


def test_the_frames_are_those_of_the_stamps(tmp_path):
    path = write_log(tmp_path / "log.mcap", usual(1.0, {"joints": 100.0, "front": 10.0, "wrist": 30.0}))
    with DatasetWriter(tmp_path / "set", ROBOT) as writer:
        assert commit_log(writer, Recording.read(path)) == 0
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.tasks == ["lift"] and check(tmp_path / "set") == []
    front = np.round((column(dataset.columns(0)["stamp"], "front") - 100.004) * 10).astype(int)
    assert len(set(front)) < len(front)  # a slow camera's frame stands in several rows, with its age
    greys = [frame.mean() for frame in dataset.frames(0, "observation.images.front")]
    assert np.abs(np.array(greys) - (7 * front) % 200).max() < 3


def test_s2_a_slow_camera_shows_in_stamps_and_report(tmp_path):
    path = write_log(tmp_path / "log.mcap", usual(2.0, {"joints": 200.0, "front": 20.0, "wrist": 30.0}))
    stamps = np.unique(column(columns(path)["stamp"], "front"))
    assert np.diff(stamps) == pytest.approx(0.05, abs=1e-6)
    short = {cadence.source: cadence for cadence in Recording.read(path).cadences() if cadence.short}
    assert set(short) == {"front"}
    assert str(short["front"]) == "front: 40 messages, 20.0 Hz of 30 Hz asked, largest gap 50.0 ms"


def test_s1_a_camera_that_stops_for_half_a_second_shows_in_the_ages(tmp_path):
    streams = usual(2.0)
    topic, kind, frames = streams[2]
    streams[2] = (topic, kind, [(time, data) for time, data in frames if not 100.52 < time < 101.02])
    path = write_log(tmp_path / "log.mcap", streams)
    found = columns(path)
    assert np.diff(found["stamp"][:, 0]).max() < 0.04  # the rows go on
    assert np.abs(column(found["age"], "front")).max() == pytest.approx(0.25, abs=0.04)
    gap = next(cadence.largest_gap for cadence in Recording.read(path).cadences() if cadence.source == "front")
    assert gap == pytest.approx(0.533, abs=0.001)


def test_joints_are_mapped_by_name_in_states_and_commands(tmp_path):
    backwards = ROBOT.measured[::-1]
    streams = usual(0.5)
    times = 100 + np.arange(100) / 200
    streams[0] = ("joint_states", "sensor_msgs/JointState", [(t, joint_state(t, backwards)) for t in times])
    streams[1] = (
        "joint_command", "trajectory_msgs/JointTrajectory", [(t, trajectory(t, (-2 * t, -t), names=backwards)) for t in times],
    )  # fmt: skip
    shuffled, straight = (columns(write_log(tmp_path / f"{n}.mcap", log)) for n, log in (("a", streams), ("b", usual(0.5))))
    for key, values in straight.items():
        assert np.array_equal(values, shuffled[key]), key


def test_what_the_guard_rejects_is_no_action(tmp_path):
    streams = usual(0.5)
    bad = [
        (100.2001, trajectory(100.2001, (np.nan, 0.0))),
        (100.2001, trajectory(100.2001, (9.0,), names=("shoulder",))),
        (100.2001, trajectory(100.2001, (9.0, 9.0), names=("shoulder", "elbw"))),
    ]
    path = write_log(tmp_path / "log.mcap", [*streams, ("joint_command", "trajectory_msgs/JointTrajectory", bad)])
    assert np.array_equal(columns(path)["action"], columns(write_log(tmp_path / "good.mcap", streams))["action"])


def test_proposals_interventions_and_safety_are_of_their_time(tmp_path):
    streams = usual(1.0)
    policy = [(t, trajectory(t, (1.0, 2.0))) for t in 100 + np.arange(200) / 200]
    teleop = [(t, trajectory(t, (3.0, 4.0), "teleop")) for t in 100.4 + np.arange(60) / 200]  # until 100.7
    status = {"level": 0, "name": "", "message": "", "hardware_id": ""}
    weights = [
        (time, encode("diagnostic_msgs/DiagnosticStatus", {**status, "values": [{"key": "weight", "value": str(weight)}]}))
        for time, weight in ((100.3, 0.25), (100.8, 0.75))
    ]
    streams += [
        ("policy/action", "trajectory_msgs/JointTrajectory", policy),
        ("teleop/action", "trajectory_msgs/JointTrajectory", teleop),
        (
            "teleop/engaged",
            "std_msgs/String",
            said((100.35, 100.5, 100.6, 100.7), map(claim, ("engaged", "holding", "engaged", "released")), "std_msgs/String"),
        ),
        ("safety/status", "diagnostic_msgs/DiagnosticStatus", weights),
    ]
    found = columns(write_log(tmp_path / "log.mcap", streams))
    time = found["stamp"][:, 0] + found["age"][:, 0]
    assert np.array_equal(found["intervention"], (time >= 100.35) & (time < 100.7))
    assert found["proposed"][:, 0].all() and (found["policy_action"] == [1.0, 2.0]).all()
    there = found["proposed"][:, 1]
    assert np.array_equal(there, (time >= 100.4 - 1 / 30) & (time <= 100.695 + 1 / 30))
    assert (found["teleop_action"][there] == [3.0, 4.0]).all()
    assert np.array_equal(found["teleop_action"][~there], found["action"][~there])
    assert found["safety_lambda"].tolist() == [0.0 if t < 100.3 else 0.25 if t < 100.8 else 0.75 for t in time]


def test_the_mask_of_recovery_is_of_each_command_s_source_and_not_of_a_status_that_comes_seldom(tmp_path):
    streams = usual(1.0)
    by = {0: "trot", 40: "recovery:stand", 47: "trot", 120: "safety", 160: "recovery:stopped"}  # from which command on
    stamps = 100 + np.arange(200) / 200
    sources = [by[max(start for start in by if start <= index)] for index in range(200)]
    streams[1] = (
        "joint_command",
        "trajectory_msgs/JointTrajectory",
        [(t, trajectory(t, (0.0, 0.0), s)) for t, s in zip(stamps, sources, strict=True)],
    )
    status = {"level": 0, "name": "recovery", "message": "", "hardware_id": "", "values": [{"key": "mode", "value": "recovery"}]}
    streams.append(("safety/status", "diagnostic_msgs/DiagnosticStatus", [(100.2, encode("diagnostic_msgs/DiagnosticStatus", status))]))
    found = columns(write_log(tmp_path / "log.mcap", streams))
    command = np.round((found["stamp"][:, 1] - 100) * 200).astype(int)
    assert found["safety_lambda"].tolist() == [float(sources[index] != "trot") for index in command]
    assert 0 < found["safety_lambda"].sum() < len(command)


def test_a_command_by_teleop_is_an_intervention_also_while_it_is_handed_over(tmp_path):
    streams = usual(0.5)
    streams[1] = (
        streams[1][0],
        streams[1][1],
        [(t, trajectory(t, (0, 0), "teleop" if t > 100.2 else "policy")) for t in 100 + np.arange(100) / 200],
    )
    found = columns(write_log(tmp_path / "log.mcap", streams))
    assert np.array_equal(found["intervention"], column(found["stamp"], "action") > 100.2)


def state(word):
    return encode("std_msgs/String", {"data": json.dumps({"state": word})})


@pytest.mark.parametrize(
    ("words", "terminated", "truncated", "success"),
    [
        (["success"], True, False, True),
        (["failure"], True, False, False),
        (["timeout"], False, True, False),
        ([], False, True, False),  # cut off
        (["timeout", "success"], True, False, True),
        (["success", "timeout"], True, False, True),
    ],
)
def test_l3_a_time_limit_is_truncated_and_a_success_terminal(tmp_path, words, terminated, truncated, success):
    streams = [
        *usual(0.5),
        ("task/state", "std_msgs/String", [(100.4 + 0.01 * i, state(word)) for i, word in enumerate(["running", *words])]),
    ]
    found = columns(write_log(tmp_path / "log.mcap", streams))
    last = [found[f"next.{key}"][-1] for key in ("terminated", "truncated", "success", "done")]
    assert last == [terminated, truncated, success, True]
    assert not any(found[f"next.{key}"][:-1].any() for key in ("terminated", "truncated", "success", "done"))


def test_l3_a_success_of_which_there_are_no_rows_is_not_put_on_another_row(tmp_path):
    streams = usual(2.0)
    streams[2] = (*streams[2][:2], [(time, data) for time, data in streams[2][2] if time < 100.5])  # the camera dies
    words = [("task/state", "std_msgs/String", [(101.9, state("success"))])]
    rewards = [("task/reward", "std_msgs/Float64", said((100.3, 101.9), (1.0, 50.0), "std_msgs/Float64"))]
    recording = Recording.read(write_log(tmp_path / "log.mcap", [*streams, *words, *rewards]))
    times = recording.times()
    found = recording.columns(times)
    assert not found["next.success"].any() and not found["next.terminated"].any() and found["next.truncated"][-1]
    assert found["next.reward"].sum() == 1.0 and recording.ended(times) == ""
    assert recording.remarks() == [f"ends {101.9 - times[-1] / 1e9:.1f} s before the word 'success', so it is stored as truncated"]


def test_a_slow_camera_does_not_cost_the_success(tmp_path):
    streams = usual(2.0, {"joints": 200.0, "front": 4.0, "wrist": 30.0})
    path = write_log(tmp_path / "log.mcap", [*streams, ("task/state", "std_msgs/String", [(101.99, state("success"))])])
    assert columns(path)["next.success"][-1] and Recording.read(path).remarks() == []


def joints(time, **values):
    usual_values = {"name": list(ROBOT.measured), "position": [time, 2 * time], "velocity": [], "effort": []}
    return encode("sensor_msgs/JointState", {"header": header(ns(time)), **usual_values, **values})


def weight(text):
    values = {"level": 0, "name": "", "message": "", "hardware_id": "", "values": [{"key": "weight", "value": text}]}
    return encode("diagnostic_msgs/DiagnosticStatus", values)


STATE, STATUS, REWARD = "sensor_msgs/JointState", "diagnostic_msgs/DiagnosticStatus", "std_msgs/Float64"


@pytest.mark.parametrize(
    ("topic", "kind", "data", "reason"),
    [
        ("joint_states", STATE, joints(100.2, position=[float("nan"), 0.0]), "has a position that is not finite"),
        ("joint_states", STATE, joints(100.2, position=[]), "has 0 values of position for 2 joints"),
        ("joint_states", STATE, joints(100.2, position=[1.0]), "has 1 values of position for 2 joints"),
        ("joint_states", STATE, joints(100.2, velocity=[1.0]), "has 1 values of velocity for 2 joints"),
        ("joint_states", STATE, joints(100.2, name=["gripper"], position=[1.0]), "lacks shoulder, elbow, it has gripper"),
        ("joint_states", STATE, joints(100.2)[:-20], "cannot be decoded"),
        ("joint_states", STATE, joints(100.2)[:6], "its header is cut off"),
        ("camera/front/image_raw", "sensor_msgs/Image", image(100.2, (48, 64), 0)[:6], "its header is cut off"),
        ("safety/status", STATUS, weight("abc"), "'abc' is no finite number"),
        ("safety/status", STATUS, weight(""), "'' is no finite number"),
        ("safety/status", STATUS, weight("nan"), "'nan' is no finite number"),
        ("task/reward", REWARD, encode(REWARD, {"data": float("inf")}), "inf is no finite number"),
    ],
)
def test_one_odd_message_is_left_out_and_said(tmp_path, topic, kind, data, reason):
    streams = usual(0.4)
    path = write_log(tmp_path / "log.mcap", [*streams, (topic, kind, [(100.2, data)])])
    with DatasetWriter(tmp_path / "set", ROBOT) as writer:
        commit_log(writer, Recording.read(path))
    good, found = columns(write_log(tmp_path / "good.mcap", streams)), Dataset.open(tmp_path / "set").columns(0)
    assert all(np.array_equal(found[key].reshape(values.shape), values) for key, values in good.items())
    (remark,) = Dataset.open(tmp_path / "set").episodes[0].recording["remarks"]
    assert remark.startswith(f"1 messages left out of {topic}: ") and reason in remark


def test_what_a_robot_does_not_measure_is_0(tmp_path):
    streams = usual(0.4)
    streams[0] = (*streams[0][:2], [(t, joints(t, velocity=[1.0, np.nan], effort=[np.nan] * 2)) for t in 100 + np.arange(80) / 200])
    found = columns(write_log(tmp_path / "log.mcap", streams))
    assert (found["joint_velocity"] == [1.0, 0.0]).all() and (found["joint_effort"] == 0).all()


@pytest.mark.parametrize(("first", "second"), [((1.0, 10.0), (0.5, 1.78e9)), ((0.5, 100.0), (1.0, 3700.0))])
def test_an_episode_does_not_go_on_across_a_long_silence(tmp_path, first, second):
    parts = [usual(seconds, start=start) for seconds, start in (first, second)]
    path = write_log(tmp_path / "log.mcap", [(*a[:2], [*a[2], *b[2]]) for a, b in zip(*parts, strict=True)])
    found = columns(path)
    _, longest = max(first, second)
    assert 27 <= len(found["action"]) <= 30 and found["stamp"][0, 0] == pytest.approx(longest, abs=0.02)
    assert np.abs(found["age"]).max() < 0.05
    remarks = Recording.read(path).remarks()
    assert len(remarks) == 3 and all("was silent for" in remark and "the longest stretch" in remark for remark in remarks)


def test_padded_images_are_read_and_other_encodings_are_named(tmp_path):
    rows = np.zeros((48, 200), np.uint8)
    rows[:, :192] = 90
    values = {"height": 48, "width": 64, "is_bigendian": 0, "step": 200, "data": rows.tobytes()}
    for encoding in ("rgb8", "mono8"):
        streams = usual(0.2)
        frames = [
            (t, encode("sensor_msgs/Image", {"header": header(ns(t)), **values, "encoding": encoding})) for t in 100 + np.arange(6) / 30
        ]
        streams[2] = (*streams[2][:2], frames)
        recording = Recording.read(write_log(tmp_path / f"{encoding}.mcap", streams))
        if encoding == "rgb8":
            assert (next(recording.frames("front", [2])) == 90).all()
            continue
        with pytest.raises(UserError, match="is in mono8; rgb8 or bgr8 is right"):
            list(recording.frames("front", [2]))


def test_no_reward_is_lost_between_rows(tmp_path):
    times = 99.95 + np.arange(150) / 150
    rewards = np.random.default_rng(0).normal(size=150)
    streams = [*usual(1.0), ("task/reward", "std_msgs/Float64", said(times, rewards, "std_msgs/Float64"))]
    found = columns(write_log(tmp_path / "log.mcap", streams))
    assert found["next.reward"].sum() == pytest.approx(rewards.sum())
    time = found["stamp"][:, 0] + found["age"][:, 0]
    between = (times > time[10] + 1e-9) & (times <= time[11] + 1e-9)
    assert found["next.reward"][10] == pytest.approx(rewards[between].sum())


def test_words_that_are_no_json_cost_no_episode(tmp_path):
    junk = said((100.1, 100.2, 100.3), ("", "engaged", "[1]"), "std_msgs/String")
    path = write_log(
        tmp_path / "log.mcap", [*usual(0.5), *((topic, "std_msgs/String", junk) for topic in ("teleop/engaged", "task/state"))]
    )
    found = columns(path)
    assert not found["intervention"].any() and Recording.read(path).outcome == ""


def test_the_newest_instruction_counts(tmp_path):
    streams = [*usual(0.5), ("task/instruction", "std_msgs/String", said((99.0, 100.1), ("push", "turn"), "std_msgs/String"))]
    assert Recording.read(write_log(tmp_path / "log.mcap", streams)).instruction == "turn"


def test_compressed_images_are_read_in_the_right_colours(tmp_path):
    streams = usual(0.4)
    blue = np.zeros((48, 64, 3), np.uint8)
    blue[..., 0] = 200  # OpenCV: blue, green, red
    png = cv2.imencode(".png", blue)[1].tobytes()
    frames = [
        (t, encode("sensor_msgs/CompressedImage", {"header": header(ns(t)), "format": "rgb8; png compressed bgr8", "data": png}))
        for t in 100 + np.arange(12) / 30
    ]
    streams[2] = ("camera/front/image_raw/compressed", "sensor_msgs/CompressedImage", frames)
    recording = Recording.read(write_log(tmp_path / "log.mcap", streams))
    assert next(recording.frames("front", [3, 3])).reshape(-1, 3).mean(0).tolist() == [0, 0, 200]


def test_a_log_that_was_cut_off_makes_an_episode_up_to_there(tmp_path):
    path = write_log(tmp_path / "log.mcap", usual(2.0))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with DatasetWriter(tmp_path / "set", ROBOT) as writer:
        commit_log(writer, Recording.read(path))
    assert 26 <= Dataset.open(tmp_path / "set").episodes[0].length <= 31


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        (usual(0.5)[:2], "makes no episode, nothing came from front, wrist"),
        ([*usual(0.5)[:3], ("camera/wrist/image_raw", "sensor_msgs/Image", [(200.0, image(200.0, (32, 32), 0))])], "ended before all"),
        (
            [("joint_states", "sensor_msgs/JointState", [(100.0, joint_state(100.0, ("elbow",)))])],
            "joint_states: lacks shoulder, it has elbow",
        ),
    ],
)
def test_logs_that_make_no_episode_are_refused(tmp_path, streams, message):
    path = write_log(tmp_path / "log.mcap", streams)
    with pytest.raises(UserError, match=message):
        columns(path)


def test_images_of_another_size_are_refused(tmp_path):
    streams = usual(0.5)
    streams[3] = ("camera/wrist/image_raw", "sensor_msgs/Image", [(t, image(t, (30, 32), 0)) for t in 100 + np.arange(15) / 30])
    with DatasetWriter(tmp_path / "set", ROBOT) as writer:
        with pytest.raises(UserError, match=r"image of camera 'wrist' at 100.000 s is 32×30, 32×32 is right"):
            commit_log(writer, Recording.read(write_log(tmp_path / "log.mcap", streams)))
        assert writer.next_index == 0


def test_nearest_takes_stamps_in_any_order():
    series = Series([30, 10, 20], [None] * 3)
    assert series.nearest(np.array([0, 14, 15, 16, 24, 26, 99])).tolist() == [1, 1, 1, 2, 2, 0, 0]
    assert Series([5], [None]).nearest(np.array([0, 9])).tolist() == [0, 0]
    assert Series([0, 10, 10], [None] * 3).nearest(np.array([5, 6, 10, 11])).tolist() == [0, 2, 2, 2]


def test_a_camera_whose_stamps_go_back_makes_an_episode_all_the_same(tmp_path):
    streams = usual(1.0)
    topic, kind, front = streams[-2]
    assert topic.startswith("camera/front")
    images = list(front)
    jumbled = [(time, image(time - (0.04 if number % 7 == 3 else 0.0), (48, 64), 5 * number)) for number, (time, _) in enumerate(images)]
    path = write_log(tmp_path / "log.mcap", [*streams[:-2], (topic, kind, jumbled), streams[-1]])
    recording = Recording.read(path)
    with DatasetWriter(tmp_path / "set", recording.spec) as writer:
        commit_log(writer, recording)
    dataset = Dataset.open(tmp_path / "set")
    columns = dataset.columns(0)
    stamps = columns["stamp"][:, recording.spec.sources.index("front")]
    shown = [frame.mean() for frame in dataset.frames(0, "observation.images.front")]
    measured = np.array(recording.cameras["front"].stamps) / 1e9
    assert len(shown) == len(stamps) and np.abs(columns["age"]).max() < 0.08
    for grey, stamp in zip(shown, stamps, strict=True):  # the frame of a row is the one whose stamp it has
        assert np.isclose(5 * np.flatnonzero(np.isclose(measured, stamp)), grey, atol=2.5).any()
