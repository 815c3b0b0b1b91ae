import csv
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sample_episodes import LENGTHS, SPEC, make_columns, make_videos, shade

from ros_rl.data import layout
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.integrity import check
from ros_rl.data.transfer import export, merge
from ros_rl.data.video import read_video, write_video
from ros_rl.errors import UserError


def test_merging_keeps_rows_frames_and_statistics(root, tmp_path):
    other = tmp_path / "other"
    with DatasetWriter(other, SPEC) as writer:
        writer.commit(make_columns(8, 50), make_videos(8, 50), "push", "failure")
    assert merge([root, other], tmp_path / "both") == 4
    assert merge([other], tmp_path / "both") == 5
    both = Dataset.open(tmp_path / "both")
    assert check(both.root, decode=True) == []
    assert [episode.length for episode in both.episodes] == [*LENGTHS, 8, 8]
    assert [episode.outcome for episode in both.episodes][-2:] == ["failure", "failure"] and both.tasks == ["lift", "push"]
    assert np.array_equal(both.columns(3)["action"], make_columns(8, 50)["action"])
    video = "videos/observation.images.front/chunk-000"
    assert (both.root / video / "file-003.mp4").read_bytes() == (other / video / "file-000.mp4").read_bytes()
    rows = np.concatenate([both.columns(i)["observation.state"] for i in range(5)])
    assert layout.read_stats(both.root / layout.STATS)["observation.state"]["std"] == pytest.approx(rows.std(0))


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
    import pyarrow as pa

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
