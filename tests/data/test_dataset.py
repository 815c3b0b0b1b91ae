import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sample_episodes import LENGTHS, SPEC, make_columns, make_videos, shade

from ros_rl.data import layout
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.features import INDEX_FEATURES, DatasetSpec
from ros_rl.data.stats import aggregate
from ros_rl.data.video import read_video, write_video
from ros_rl.errors import UserError
from ros_rl.robots.spec import load_robot


def test_what_was_written_is_read_back_bit_for_bit(root):
    dataset = Dataset.open(root)
    assert dataset.spec == SPEC and dataset.tasks == ["lift", "push"]
    for episode, rows in zip(dataset.episodes, LENGTHS, strict=True):
        columns = dataset.columns(episode.index)
        for key, values in make_columns(rows, episode.index).items():
            assert np.array_equal(columns[key].reshape(rows, -1), values.reshape(rows, -1)), key


def test_every_frame_is_that_of_its_row(root):
    dataset = Dataset.open(root)
    for episode in dataset.episodes:
        for key in SPEC.camera_keys:
            frames = list(dataset.frames(episode.index, key))
            wanted = [shade(episode.index, row) for row in range(episode.length)]
            assert np.abs(np.array([frame.mean() for frame in frames]) - wanted).max() < 3
            times = [time for time, _ in read_video(dataset.video_path(episode, key))]
            assert times == pytest.approx([row / 30 for row in range(episode.length)], abs=1e-6)


def test_the_files_are_those_of_the_specification(root):
    info = json.loads((root / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0" and info["robot_type"] == "arm" and info["fps"] == 30
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (3, sum(LENGTHS), 2)
    assert info["splits"] == {"train": "0:3"}
    assert info["chunks_size"] == 1000 and info["data_files_size_in_mb"] > 0 and info["video_files_size_in_mb"] > 0
    first = {"chunk_index": 0, "file_index": 2}
    assert (root / info["data_path"].format(**first)).is_file()
    assert (root / info["video_path"].format(video_key="observation.images.front", **first)).is_file()
    camera = info["features"]["observation.images.front"]
    assert camera["dtype"] == "video" and camera["shape"] == [48, 64, 3] and camera["names"] == ["height", "width", "channels"]
    assert camera["info"]["video.codec"] == "h264" and camera["info"]["video.fps"] == 30
    assert info["features"]["action"]["names"] == list(SPEC.commanded)


def test_the_data_have_one_typed_column_for_each_feature(root):
    info = json.loads((root / "meta/info.json").read_text())
    table = pq.ParquetFile(root / "data/chunk-000/file-001.parquet").read()
    assert table.column_names == [key for key, feature in info["features"].items() if feature["dtype"] != "video"]
    for key in table.column_names:
        feature, kind = info["features"][key], str(table.schema.field(key).type)
        dtype = {"float64": "double", "float32": "float", "int64": "int64", "bool": "bool"}[feature["dtype"]]
        if feature["shape"] == [1]:
            assert kind == dtype
        else:
            assert kind.startswith("fixed_size_list") and kind.endswith(f"{dtype}>[{feature['shape'][0]}]")
    assert table["episode_index"].to_pylist() == [1] * 5 and table["index"].to_pylist() == list(range(12, 17))
    assert table["frame_index"].to_pylist() == list(range(5)) and table["task_index"].to_pylist() == [1] * 5
    assert table["timestamp"].to_numpy() == pytest.approx(np.arange(5) / 30)


def test_the_rows_of_meta_episodes_lead_to_data_and_videos(root):
    rows = [row for path in sorted((root / "meta/episodes").glob("*/*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]
    assert [row["episode_index"] for row in rows] == [0, 1, 2]
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows] == [(0, 12), (12, 17), (17, 47)]
    assert [row["tasks"] for row in rows] == [["lift"], ["push"], ["lift"]]
    for number, row in enumerate(rows):
        assert (row["data/chunk_index"], row["data/file_index"]) == (0, number)
        assert (row["meta/episodes/chunk_index"], row["meta/episodes/file_index"]) == (0, number)
        prefix = "videos/observation.images.wrist"
        assert (row[f"{prefix}/chunk_index"], row[f"{prefix}/file_index"]) == (0, number)
        assert row[f"{prefix}/from_timestamp"] == 0 and row[f"{prefix}/to_timestamp"] == pytest.approx(row["length"] / 30)
        assert np.shape(row["stats/observation.images.wrist/mean"]) == (3, 1, 1)
        assert np.shape(row["stats/observation.state/q99"]) == (4,) and row["stats/action/count"] == [row["length"]]


def test_the_tasks_are_a_table_with_the_instruction_as_index(root):
    pandas = pytest.importorskip("pandas")

    tasks = pandas.read_parquet(root / "meta/tasks.parquet")
    assert tasks.loc["push"].task_index == 1 and tasks.iloc[0].name == "lift"


def test_the_statistics_are_those_of_all_episodes(root):
    dataset, stored = Dataset.open(root, stats=True), layout.read_stats(root / "meta/stats.json")
    assert set(stored) == set(SPEC.features())
    again = aggregate(episode.stats for episode in dataset.episodes)
    for key, entry in stored.items():
        for name, value in entry.items():
            assert value == pytest.approx(again[key][name], abs=1e-12), (key, name)
    state = np.concatenate([dataset.columns(i)["observation.state"] for i in range(3)])
    assert stored["observation.state"]["std"] == pytest.approx(state.std(0), abs=1e-12)
    frames = np.concatenate([np.stack(list(dataset.frames(i, "observation.images.front"))) for i in range(3)]) / 255
    assert stored["observation.images.front"]["mean"].ravel() == pytest.approx(frames.mean((0, 1, 2)), abs=1e-12)
    assert stored["observation.images.front"]["std"].ravel() == pytest.approx(frames.std((0, 1, 2)), abs=1e-9)


@pytest.mark.parametrize(
    ("change", "sides"),
    [
        ({"robot": "ur5"}, "robot: the dataset has arm, the recording ur5"),
        ({"fps": 60}, "rate: the dataset has 30 Hz, the recording 60 Hz"),
        (
            {"commanded": ("elbow", "shoulder", "finger_left")},
            "the dataset has shoulder, elbow, finger_left, the recording elbow, shoulder",
        ),
        (
            {"measured": ("shoulder",)},
            "measured joints: the dataset has shoulder, elbow, finger_left, finger_right, the recording shoulder",
        ),
        ({"cameras": (("front", (48, 64)),)}, "cameras: the dataset has front 64×48, wrist 32×32, the recording front 64×48"),
    ],
)
def test_another_robot_rate_joints_or_cameras_are_refused_with_both_sides_named(root, change, sides):
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=sides):
        DatasetWriter(root, replace(SPEC, **change))
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="neither empty nor a LeRobot dataset"):
        DatasetWriter(tmp_path, SPEC)
    with pytest.raises(UserError, match=r"no LeRobot dataset, it has no meta/info.json"):
        Dataset.open(tmp_path)


def test_two_processes_do_not_write_into_one_dataset(root):
    with DatasetWriter(root, SPEC), pytest.raises(UserError, match="another process writes"):
        DatasetWriter(root, SPEC)
    DatasetWriter(root, SPEC).close()


def test_a_dataset_of_an_older_version_is_refused(root):
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.1"}))
    with pytest.raises(UserError, match=r"version v2.1, v3.0 is needed"):
        Dataset.open(root)


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("action", np.full((6, 3), np.nan), "'action' is not finite in row 0"),
        ("observation.state", np.array([[0.0] * 4] * 4 + [[0, np.inf, 0, 0]] + [[0.0] * 4]), "'observation.state' is not finite in row 4"),
        ("joint_velocity", np.zeros((6, 3)), r"'joint_velocity' has shape \(6, 3\), \(6, 4\) is right"),
        ("stamp", np.zeros((5, 6)), r"'stamp' has shape"),
    ],
)
def test_an_episode_that_does_not_fit_is_refused_whole(root, key, values, message):
    with DatasetWriter(root, SPEC) as writer:
        with pytest.raises(UserError, match=message):
            writer.commit(make_columns(6) | {key: values}, make_videos(6), "lift")
        with pytest.raises(UserError, match="columns missing: stamp"):
            writer.commit({name: value for name, value in make_columns(6).items() if name != "stamp"}, make_videos(6), "lift")
        with pytest.raises(UserError, match="videos are"):
            writer.commit(make_columns(6), {}, "lift")
    assert len(Dataset.open(root).episodes) == 3


def test_a_video_with_fewer_frames_than_rows_is_no_episode(root):
    videos = make_videos(6)
    videos["observation.images.wrist"].pop()
    with DatasetWriter(root, SPEC) as writer, pytest.raises(UserError, match="has 5 frames for 6 rows"):
        writer.commit(make_columns(6), videos, "lift")
    with DatasetWriter(root, SPEC) as writer:
        assert writer.commit(make_columns(6, 3), make_videos(6, 3), "lift") == 3
    assert (root / "aside/videos/observation.images.wrist/chunk-000/file-003.mp4").is_file()
    assert next(iter(Dataset.open(root).frames(3, "observation.images.wrist"))).mean() == pytest.approx(shade(3, 0), abs=3)


def test_cameras_of_odd_size_are_refused_before_anything_is_recorded(tmp_path):
    with pytest.raises(UserError, match=r"camera 'front' is 63×48; H.264 needs an even width and height"):
        DatasetWriter(tmp_path / "set", replace(SPEC, cameras=(("front", (48, 63)),)))
    assert not (tmp_path / "set").exists()


_FILL = """
import resource, signal, sys
from pathlib import Path
from sample_episodes import LENGTHS, SPEC, make_columns, make_videos
from ros_rl.data.dataset import DatasetWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with DatasetWriter(Path(sys.argv[1]), SPEC) as writer:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        writer.commit(make_columns(40, 3), make_videos(40, 3), "lift")
    except OSError as error:
        print("stopped", type(error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print("then", writer.commit(make_columns(4, 3), make_videos(4, 3), "lift"))
"""


@pytest.mark.parametrize("limit", [500, 6000])  # the disk is full in a video, in the data
def test_d3_a_full_disk_leaves_what_was_committed_and_the_next_episode_is_recorded(root, limit):
    command = [sys.executable, "-c", _FILL, str(root), str(limit)]
    folders = ":".join([str(Path(__file__).parent), *sys.path])
    result = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": folders}, timeout=60)
    assert result.stdout.startswith("stopped") and result.stdout.endswith("then 3\n"), result.stderr
    dataset = Dataset.open(root)
    assert [episode.length for episode in dataset.episodes] == [*LENGTHS, 4]
    assert not list(root.rglob("*.partial"))


def test_statistics_are_read_only_when_they_are_asked_for_and_a_writer_goes_on_from_those_of_all(root, monkeypatch):
    read, asked = layout.read_episodes, []
    monkeypatch.setattr(layout, "read_episodes", lambda *arguments: (asked.append(arguments[3]), read(*arguments))[1])
    with DatasetWriter(root, SPEC) as writer:
        writer.commit(make_columns(4, 3), make_videos(4, 3), "lift")
    dataset = Dataset.open(root)
    assert not any(asked) and not any(episode.stats for episode in dataset.episodes)
    rows = np.concatenate([dataset.columns(i)["action"] for i in range(4)])
    for stats in (dataset.stats, layout.read_stats(root / layout.STATS)):
        assert stats["action"]["mean"] == pytest.approx(rows.mean(0)) and stats["action"]["count"] == [len(rows)]


@pytest.mark.parametrize("cameras", [("front", "front"), ("front", "policy")])
def test_cameras_of_one_name_are_refused(tmp_path, cameras):
    with pytest.raises(UserError, match="each needs a name of its own, also beside joint_states, action, policy, teleop"):
        DatasetWriter(tmp_path / "set", replace(SPEC, cameras=tuple((name, (48, 64)) for name in cameras)))


def test_a_video_whose_frames_are_at_other_times_is_no_episode(root, tmp_path):
    for key, images in make_videos(6).items():
        write_video(tmp_path / f"{key}.mp4", images, 15)
    videos = {key: tmp_path / f"{key}.mp4" for key in SPEC.camera_keys}
    with DatasetWriter(root, SPEC) as writer, pytest.raises(UserError, match=r"frame 1 is at 0.0667 s, 0.0333 s is right"):
        writer.commit(make_columns(6), videos, "lift")


def test_a_robot_that_ships_makes_a_dataset(tmp_path):
    robot = load_robot("arm")
    spec = DatasetSpec.of(robot, 20, robot.cameras)
    with DatasetWriter(tmp_path / "set", spec) as writer:
        writer.commit(make_columns(3, spec=spec), make_videos(3, spec=spec), "lift")
    again = Dataset.open(tmp_path / "set")
    assert again.spec == spec and again.spec.commanded == load_robot("arm").joint_names
    assert set(again.columns(0)) == {key for key, entry in spec.features().items() if entry["dtype"] != "video"} >= set(INDEX_FEATURES)
