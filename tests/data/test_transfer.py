import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample_episodes import LENGTHS, SPEC, make_columns, make_videos, shade

from ros_rl.data import dataset as dataset_module
from ros_rl.data import layout
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.integrity import check
from ros_rl.data.stats import QUANTILES
from ros_rl.data.transfer import export, merge
from ros_rl.data.video import read_video, write_video
from ros_rl.errors import UserError


def test_merging_keeps_rows_frames_and_statistics(root, tmp_path):
    other = tmp_path / "other"
    with DatasetWriter(other, SPEC) as writer:
        writer.commit(make_columns(8, 50), make_videos(8, 50), "push", "failure", "some.mcap", recording={"seed": 3})
    assert merge([root, other], tmp_path / "both") == 4
    assert merge([other], tmp_path / "both") == 5
    both = Dataset.open(tmp_path / "both")
    assert check(both.root, decode=True) == []
    assert [episode.length for episode in both.episodes] == [*LENGTHS, 8, 8]
    assert [episode.outcome for episode in both.episodes][-2:] == ["failure", "failure"] and both.tasks == ["lift", "push"]
    assert both.episodes[3].log == "some.mcap" and both.episodes[3].recording["seed"] == 3
    assert np.array_equal(both.columns(3)["action"], make_columns(8, 50)["action"])
    video = "videos/observation.images.front/chunk-000"
    assert (both.root / video / "file-003.mp4").read_bytes() == (other / video / "file-000.mp4").read_bytes()
    rows = np.concatenate([both.columns(i)["observation.state"] for i in range(5)])
    assert layout.read_stats(both.root / layout.STATS)["observation.state"]["std"] == pytest.approx(rows.std(0))


def test_statistics_are_taken_along_and_made_anew_where_they_are_not_complete(root, tmp_path, monkeypatch):
    table = pq.ParquetFile(root / "meta/episodes/chunk-000/file-001.parquet").read()
    pq.write_table(table.drop_columns(["stats/observation.images.front/mean"]), root / "meta/episodes/chunk-000/file-001.parquet")
    decoded = []
    video_stats = dataset_module.video_stats
    monkeypatch.setattr(dataset_module, "video_stats", lambda path, *rest: (decoded.append(path.name), video_stats(path, *rest))[1])
    merge([root], tmp_path / "both")
    assert check(tmp_path / "both") == [] and decoded == ["file-001.mp4"] * 2  # of the two cameras


def test_a_merge_that_was_interrupted_goes_on_without_taking_an_episode_twice(root, tmp_path):
    def stop():
        if len(Dataset.open(tmp_path / "both").episodes) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge([root], tmp_path / "both", stop)
    with DatasetWriter(tmp_path / "both", SPEC) as writer:  # another program goes on recording
        writer.commit(make_columns(4, 9), make_videos(4, 9), "push")
    with pytest.raises(UserError, match=r"a merge of .*set was interrupted; merge these again"):
        merge([root, root], tmp_path / "both")
    assert merge([root], tmp_path / "both") == 4
    assert [episode.length for episode in Dataset.open(tmp_path / "both").episodes] == [*LENGTHS[:2], 4, LENGTHS[2]]
    assert merge([root], tmp_path / "both") == 7  # that one is over; this is another


def test_nothing_is_merged_where_a_source_has_a_fault(root, tmp_path):
    other = shutil.copytree(root, tmp_path / "other")
    path = other / "data/chunk-000/file-002.parquet"
    table = pq.ParquetFile(path).read()
    values = table["safety_lambda"].to_numpy().copy()
    values[7] = np.nan
    pq.write_table(table.set_column(table.column_names.index("safety_lambda"), "safety_lambda", pa.array(values)), path)
    with pytest.raises(UserError, match="other: episode 2: safety_lambda is not finite in 1 rows"):
        merge([root, other], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def without_quantiles(root):
    """As lerobot before 0.4 wrote statistics."""
    for path in (root / "meta/episodes").rglob("*.parquet"):
        table = pq.ParquetFile(path).read()
        pq.write_table(table.drop_columns([name for name in table.column_names if name.split("/")[-1] in QUANTILES]), path)
    stats = json.loads((root / layout.STATS).read_text())
    plain = {key: {name: value for name, value in entry.items() if name not in QUANTILES} for key, entry in stats.items()}
    (root / layout.STATS).write_text(json.dumps(plain))


def test_datasets_without_quantiles_are_read_checked_and_merged(root, tmp_path):
    whole = shutil.copytree(root, tmp_path / "whole")
    without_quantiles(root)
    assert check(root) == [] and set(Dataset.open(root).stats["action"]) == {"min", "max", "mean", "std", "count"}
    merge([root, whole], tmp_path / "both")
    assert check(tmp_path / "both") == [] and "q50" not in Dataset.open(tmp_path / "both").stats["action"]


def test_names_in_groups_name_the_columns(root, tmp_path):
    info = json.loads((root / layout.INFO).read_text())
    info["features"]["action"]["names"] = {"motors": ["a", "b", "c"]}
    (root / layout.INFO).write_text(json.dumps(info))
    assert Dataset.open(root).spec.commanded == ("a", "b", "c")
    export(Dataset.open(root), tmp_path / "out", "csv", [0])
    assert "action.a,action.b,action.c" in (tmp_path / "out/episode_000000.csv").read_text().splitlines()[0]


def test_datasets_of_two_robots_are_not_merged(root, tmp_path):
    with DatasetWriter(tmp_path / "other", replace(SPEC, robot="ur5")) as writer:
        writer.commit(make_columns(3), make_videos(3), "lift")
    with pytest.raises(UserError, match=r"holds another robot: the dataset has arm, the recording ur5"):
        merge([root, tmp_path / "other"], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(UserError, match="is merged into itself"):
        merge([root], root)


@pytest.fixture
def packed(root):
    """The dataset as lerobot itself writes it: all episodes in one data file and one video file of each camera."""
    spec = SPEC
    episodes = [
        row for number in range(3) for row in pq.ParquetFile(root / f"meta/episodes/chunk-000/file-00{number}.parquet").read().to_pylist()
    ]
    tables = [pq.ParquetFile(root / f"data/chunk-000/file-00{number}.parquet").read() for number in range(3)]
    frames = {key: [image for number in range(3) for image in make_videos(LENGTHS[number], number)[key]] for key in spec.camera_keys}
    for folder in ("data", "videos", "meta/episodes"):
        shutil.rmtree(root / folder)
    for path in (root / "data/chunk-000", root / "meta/episodes/chunk-000"):
        path.mkdir(parents=True)
    pq.write_table(pa.concat_tables(tables), root / "data/chunk-000/file-000.parquet")
    start = 0.0
    for row in episodes:
        row |= {key: 0 for key in row if key.endswith("/file_index")}
        for key in spec.camera_keys:
            row |= {f"videos/{key}/from_timestamp": start, f"videos/{key}/to_timestamp": start + row["length"] / 30}
        start += row["length"] / 30
    pq.write_table(pa.Table.from_pylist(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    for key, images in frames.items():
        (root / f"videos/{key}/chunk-000").mkdir(parents=True)
        write_video(root / f"videos/{key}/chunk-000/file-000.mp4", images, 30)
    return root


def test_a_dataset_with_many_episodes_in_a_file_is_read_checked_and_merged(packed, tmp_path):
    assert check(packed) == []
    merge([packed], tmp_path / "out")
    for dataset in (Dataset.open(packed), Dataset.open(tmp_path / "out")):
        for index, rows in enumerate(LENGTHS):
            assert np.array_equal(dataset.columns(index)["action"], make_columns(rows, index)["action"])
            greys = [frame.mean() for frame in dataset.frames(index, "observation.images.wrist")]
            assert len(greys) == rows and np.abs(np.array(greys) - [shade(index, row) for row in range(rows)]).max() < 5


def test_csv_has_a_column_for_each_element(root, tmp_path):
    export(Dataset.open(root), tmp_path / "out", "csv", [1])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "episode_000001.csv", "episode_000001_front.mp4", "episode_000001_wrist.mp4",
    ]  # fmt: skip
    with (tmp_path / "out/episode_000001.csv").open() as file:
        rows = list(csv.DictReader(file))
    wanted = make_columns(5, 1)
    assert [float(row["action.elbow"]) for row in rows] == wanted["action"][:, 1].tolist()  # every digit is there
    assert [row["next.success"] for row in rows] == ["0", "0", "0", "0", "1"]
    assert [float(row["age.front"]) for row in rows] == wanted["age"][:, SPEC.sources.index("front")].tolist()
    assert len(list(read_video(tmp_path / "out/episode_000001_front.mp4"))) == 5


def test_npz_has_the_arrays_by_name_and_is_no_pickle(root, tmp_path):
    export(Dataset.open(root), tmp_path / "out", "npz", range(3))
    with np.load(tmp_path / "out/episode_000002.npz", allow_pickle=False) as file:
        assert np.array_equal(file["observation.state"], make_columns(30, 2)["observation.state"]) and str(file["task"]) == "lift"
    with pytest.raises(UserError, match="has no episode 3, it has 0 to 2"):
        export(Dataset.open(root), tmp_path / "out", "npz", [3])
