import json
import re
import shutil
from functools import partialmethod
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample_episodes import LENGTHS, SPEC, make_columns, make_videos, shade

from ros_rl.data import layout
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.files import commit_file
from ros_rl.data.integrity import check
from ros_rl.data.repair import repair
from ros_rl.data.video import read_video, write_video
from ros_rl.errors import UserError


def data(root, number):
    return root / f"data/chunk-000/file-{number:03d}.parquet"


def meta(root, number):
    return root / f"meta/episodes/chunk-000/file-{number:03d}.parquet"


def video(root, number, camera="front"):
    return root / f"videos/observation.images.{camera}/chunk-000/file-{number:03d}.mp4"


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path, key, values):
    table = pq.ParquetFile(path).read()
    column = values if isinstance(values, pa.Array) else pa.array(values, table.schema.field(key).type)
    pq.write_table(table.set_column(table.column_names.index(key), key, column), path)


def contents(root):
    return {path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix in (".parquet", ".mp4")}


def texts(root):
    return [str(finding) for finding in check(root)]


def assert_whole(root, numbers):
    """The dataset is without fault, and its episodes are those that had been recorded with `numbers`, frames included."""
    assert check(root, decode=True) == []
    dataset = Dataset.open(root)
    assert len(dataset.episodes) == len(numbers)
    for index, number in enumerate(numbers):
        rows = dataset.episodes[index].length
        columns = dataset.columns(index)
        assert np.array_equal(columns["action"], make_columns(LENGTHS[number], number)["action"][:rows])
        assert columns["episode_index"].tolist() == [index] * rows
        for key in SPEC.camera_keys:
            greys = [frame.mean() for frame in dataset.frames(index, key)]
            assert np.abs(np.array(greys) - [shade(number, row) for row in range(rows)]).max() < 3
        assert dataset.tasks[columns["task_index"][0]] == ("push" if number == 1 else "lift")


def test_a_whole_dataset_has_no_fault_and_a_repair_leaves_it_alone(root):
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert check(root, decode=True) == [] and repair(root) == []
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"} | {
        path: time for path, time in before.items() if path.name == ".lock"
    }


@pytest.mark.parametrize("number", [0, 1, 2])
def test_d2_data_that_are_missing_are_named_on_opening_and_the_rest_is_kept(root, number):
    data(root, number).unlink()
    with pytest.raises(UserError, match=rf"metadata say 3 episodes, the data hold 2 whole ones \(numbers {number} are not\).*data repair"):
        Dataset.open(root)
    with pytest.raises(UserError, match="data repair"):
        DatasetWriter(root, SPEC)
    assert f"episode {number}: its rows are missing: there is no data/chunk-000/file-00{number}.parquet" in texts(root)
    before = contents(root)
    assert any(line.startswith(f"episode {number}: left out") for line in repair(root))
    assert_whole(root, [other for other in range(3) if other != number])
    assert before <= contents(root)


def test_d2_metadata_that_are_ahead_of_the_episodes_are_named(root):
    info = json.loads((root / layout.INFO).read_text())
    (root / layout.INFO).write_text(json.dumps(info | {"total_episodes": 8, "total_frames": 90}))
    with pytest.raises(UserError, match=r"info.json says 8 episodes, meta/episodes holds 3 \(numbers 0 to 2\)"):
        Dataset.open(root)
    assert "meta/episodes: lacks episode 3 to 7: info.json says 8 episodes, 3 are here" in texts(root)
    repair(root)
    assert_whole(root, [0, 1, 2])


@pytest.mark.parametrize(
    ("damage", "named", "kept"),
    [
        (lambda root: halve(data(root, 1)), "episode 1: its rows are unreadable", [0, 2]),
        (lambda root: halve(meta(root, 1)), "meta/episodes/chunk-000/file-001.parquet: cannot be read", [0, 1, 2]),
        (lambda root: meta(root, 2).unlink(), "meta/episodes: lacks episode 2", [0, 1, 2]),
        (lambda root: video(root, 0).unlink(), "episode 0: there is no videos/observation.images.front/chunk-000/file-000.mp4", [1, 2]),
        (lambda root: halve(video(root, 2)), "episode 2: videos/observation.images.front/chunk-000/file-002.mp4 has 0 frames", [0, 1]),
        (lambda root: (root / layout.STATS).unlink(), "meta/stats.json: cannot be read", [0, 1, 2]),
        (lambda root: halve(root / layout.TASKS), "meta/tasks.parquet: cannot be read", [0, 1, 2]),
        (lambda root: shutil.copy(meta(root, 0), meta(root, 3)), "file-003.parquet: names episode 0 a second time", [0, 1, 2]),
        (lambda root: change(data(root, 1), "index", range(5)), "episode 1: index is 0 in row 0, 12 is right", [0, 1, 2]),
        (
            lambda root: change(data(root, 1), "timestamp", np.arange(5) / 60),
            "timestamp is 0.0166667 in row 1, 0.0333333 is right",
            [0, 1, 2],
        ),
    ],
)
def test_damage_is_named_and_mended_and_nothing_is_deleted(root, damage, named, kept):
    damage(root)
    assert any(named in text for text in texts(root)), texts(root)
    before = contents(root)
    assert repair(root)
    assert_whole(root, kept)
    assert before <= contents(root)
    with DatasetWriter(root, SPEC) as writer:  # recording resumes with the next number
        assert writer.commit(make_columns(4), make_videos(4), "push") == len(kept)
    assert check(root) == []


def set_info(root, **values):
    info = json.loads((root / layout.INFO).read_text())
    (root / layout.INFO).write_text(json.dumps(info | values))


def set_feature(root, key, **values):
    features = json.loads((root / layout.INFO).read_text())["features"]
    set_info(root, features=features | {key: features.get(key, {}) | values})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: set_info(root, fps=None), "fps is None, a whole number from 1 is right"),
        (lambda root: set_info(root, fps="30"), "fps is '30'"),
        (lambda root: set_info(root, fps=0), "fps is 0"),
        (lambda root: set_info(root, chunks_size=0), "chunks_size is 0"),
        (lambda root: set_info(root, total_episodes="3"), "total_episodes is '3'"),
        (lambda root: set_info(root, robot_type=5), "robot_type is 5"),
        (lambda root: set_info(root, features=[]), "features is no object"),
        (lambda root: set_info(root, features={}), "features lacks timestamp"),
        (lambda root: set_info(root, data_path=None), "data_path is None"),
        (lambda root: set_info(root, data_path="data/{foo}.parquet"), "data_path is 'data/{foo}.parquet'"),
        (lambda root: set_info(root, data_path="../{file_index}.parquet"), "a path in the dataset such as"),
        (lambda root: set_info(root, video_path="/tmp/{video_key}.mp4"), "a path in the dataset such as"),
        (lambda root: set_feature(root, "action", shape=None), "feature 'action' has shape None"),
        (lambda root: set_feature(root, "action", dtype=None), "feature 'action' has no dtype"),
        (lambda root: set_feature(root, "action", names=5), "feature 'action' has names 5"),
        (lambda root: set_feature(root, "index", dtype="string"), "feature 'index' is string"),
        (lambda root: set_feature(root, "observation.images.front", shape=[10]), "height, width and channels are right"),
        (
            lambda root: set_feature(root, "observation.images./../../out", dtype="video", shape=[2, 2, 3], names=None),
            "feature 'observation.images./../../out' has a name with a slash",
        ),
    ],
)
def test_what_info_says_wrongly_is_refused_everywhere_with_what_is_right(root, damage, message):
    damage(root)
    for use in (Dataset.open, check, repair):
        with pytest.raises(UserError, match=re.escape(message)):
            use(root)


def drop(path, key):
    pq.write_table(pq.ParquetFile(path).read().drop_columns([key]), path)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: drop(path, "action"), "column action is missing"),
        (lambda path: drop(path, "index"), "column index is missing"),
        (lambda path: change(path, "action", pa.array(["a"] * 5)), "column action is string, float64[3] is right"),
        (lambda path: change(path, "action", pa.array([[1.0, 2.0]] * 5)), "column action has 2 values a row, float64[3] is right"),
        (lambda path: change(path, "action", pa.array([[1.0] * n for n in (3, 3, 1, 3, 4)])), "column action has 1, 3, 4 values a row"),
        (lambda path: change(path, "action", pa.array([[1.0, None, 1.0]] * 5)), "column action lacks 5 values"),
        (lambda path: change(path, "stamp", pa.nulls(5, pa.list_(pa.float64()))), "column stamp lacks 5 of 5 values"),
        (lambda path: change(path, "next.done", pa.array(["a"] * 5)), "column next.done is string, bool is right"),
        (lambda path: change(path, "episode_index", pa.nulls(5, pa.int64())), "column episode_index lacks 5 of 5 values"),
    ],
)
def test_columns_that_are_not_as_promised_are_named_and_their_episode_is_left_out(root, damage, named):
    damage(data(root, 1))
    assert texts(root) == [f"episode 1: its rows do not fit data/chunk-000/file-001.parquet: {named}" + texts(root)[0].partition(named)[2]]
    with pytest.raises(UserError, match=re.escape(named)):
        Dataset.open(root).columns(1)
    repair(root)
    assert_whole(root, [0, 2])


@pytest.mark.parametrize(
    ("damage", "named", "kept"),
    [
        (lambda root: pq.write_table(pq.ParquetFile(data(root, 1)).read().slice(0, 0), data(root, 1)), "say 5 rows, data/", [0, 2]),
        (lambda root: change(data(root, 1), "episode_index", [7] * 5), "file-001.parquet holds 0", [0, 2]),
        (lambda root: change(meta(root, 1), "episode_index", pa.nulls(1)), "episode_index is None, a whole number is right", [0, 1, 2]),
        (lambda root: change(meta(root, 1), "length", pa.array(["a"])), "length is 'a', a whole number is right", [0, 1, 2]),
        (
            lambda root: change(meta(root, 1), "videos/observation.images.front/from_timestamp", [float("nan")]),
            "from_timestamp is nan, a time in seconds is right",
            [0, 1, 2],
        ),
        (lambda root: drop(meta(root, 1), "stats/action/mean"), "episode 1: its statistics of action are not complete", [0, 1, 2]),
        (lambda root: change(meta(root, 1), "stats/action/mean", pa.array([[1.0]])), "statistics of action are not complete", [0, 1, 2]),
        (
            lambda root: drop(meta(root, 1), "stats/observation.images.front/std"),
            "statistics of observation.images.front are not complete",
            [0, 1, 2],
        ),
        (lambda root: change(meta(root, 1), "tasks", pa.array([["cook"]])), "the instruction is 'cook', its rows 'push'", [0, 1, 2]),
        (lambda root: (root / layout.STATS).write_text("[]"), "meta/stats.json: cannot be read", [0, 1, 2]),
        (lambda root: (root / layout.STATS).write_text('{"action": [1]}'), "meta/stats.json: cannot be read", [0, 1, 2]),
        (lambda root: drop(root / layout.TASKS, "__index_level_0__"), "task_index and the instruction are right", [0, 1, 2]),
        (lambda root: change(root / layout.TASKS, "task_index", [0, 0]), "meta/tasks.parquet: cannot be read", [0, 1, 2]),
        (lambda root: change(root / layout.TASKS, "task_index", [0, 5]), "every number from 0 on", [0, 1, 2]),
        (lambda root: set_info(root, data_path="data/file-{file_index}.parquet"), "there is no data/file-0.parquet", [0, 1, 2]),
    ],
)
def test_ordinary_damage_is_named_and_mended(root, damage, named, kept):
    damage(root)
    assert any(named in text for text in texts(root)), texts(root)
    repair(root)
    assert_whole(root, kept)


@pytest.mark.parametrize(
    ("damage", "doubt"),
    [
        (lambda root: set_info(root, fps=15), "its fps is 15, all episodes have 30 rows and frames a second"),
        (lambda root: set_feature(root, "action", shape=[4]), "fit no data file: column action has 3 values a row, float64[4] is right"),
        (lambda root: set_info(root, video_path="video/{video_key}/{file_index}.mp4"), "its video_path leads to none of the videos"),
    ],
)
def test_a_repair_does_not_cut_every_episode_for_a_wrong_word_in_info(root, damage, doubt):
    damage(root)
    (text,) = texts(root)
    assert text.startswith("meta/info.json: ") and doubt in text and text.endswith("(cannot be mended)")
    before = contents(root)
    with pytest.raises(UserError, match=re.escape(doubt)):
        repair(root)
    assert contents(root) == before and not (root / ".repair").exists()


def test_a_huge_number_of_episodes_is_named_in_short(root):
    set_info(root, total_episodes=2_000_000)
    assert texts(root)[0] == "meta/episodes: lacks episode 3 to 1999999: info.json says 2000000 episodes, 3 are here"


def test_videos_of_another_size_are_named(root):
    front, wrist = video(root, 1), video(root, 1, "wrist")
    content = front.read_bytes()
    front.write_bytes(wrist.read_bytes())
    wrist.write_bytes(content)
    assert texts(root) == [
        "episode 1: videos/observation.images.front/chunk-000/file-001.mp4 is 32×32, 64×48 is right (cannot be mended)",
        "episode 1: videos/observation.images.wrist/chunk-000/file-001.mp4 is 64×48, 32×32 is right (cannot be mended)",
    ]


def test_rows_that_name_a_task_beyond_the_table_are_named(root):
    change(data(root, 1), "task_index", [9] * 5)
    assert texts(root) == ["episode 1: its rows name a task beyond the 2 of meta/tasks.parquet (cannot be mended)"]


@pytest.mark.parametrize("lost", [video, data])
def test_an_empty_or_shorter_file_is_seen_on_opening(root, lost):
    path = lost(root, 1)
    if lost is data:
        pq.write_table(pq.ParquetFile(path).read().slice(0, 3), path)  # it is there, and whole in itself
    else:
        path.write_bytes(b"")
    with pytest.raises(UserError, match="data repair"):
        Dataset.open(root)


def test_what_only_decoding_shows_is_mended_by_a_repair_that_decodes(root, monkeypatch):
    read = read_video

    def damaged(path, start=0.0):
        for number, frame in enumerate(read(path, start)):
            if number == 9 and path.name == "file-002.mp4":
                raise OSError("damaged")
            yield frame

    monkeypatch.setattr("ros_rl.data.integrity.read_video", damaged)
    assert check(root) == repair(root) == []
    assert "has 9 frames for 30 rows (damaged)" in str(check(root, decode=True)[0])
    assert "episode 2: has 9 rows now, of 30" in repair(root, decode=True)
    assert check(root, decode=True) == []


def test_an_episode_ends_where_its_video_does(root):
    frames = make_videos(20, 2)["observation.images.wrist"]
    commit_file(video(root, 2, "wrist"), lambda path: write_video(path, frames, 30))
    assert texts(root) == ["episode 2: videos/observation.images.wrist/chunk-000/file-002.mp4 has 20 frames for 30 rows"]
    assert "episode 2: has 20 rows now, of 30" in repair(root)
    assert_whole(root, [0, 1, 2])
    last, columns = Dataset.open(root, stats=True).episodes[2], Dataset.open(root).columns(2)
    for key in ("next.done", "next.truncated"):  # nobody judged it there
        assert columns[key].tolist() == [False] * 19 + [True]
    assert not columns["next.terminated"].any() and not columns["next.success"].any()
    assert last.length == 20 and last.stats["observation.images.front"]["count"] == [20] and last.outcome == ""


def test_an_episode_ends_where_its_rows_do(root):
    table = pq.ParquetFile(data(root, 0)).read()
    pq.write_table(table.slice(0, 7), data(root, 0))
    assert "episode 0: the metadata say 12 rows, data/chunk-000/file-000.parquet holds 7" in texts(root)
    repair(root)
    assert_whole(root, [0, 1, 2])
    assert [episode.start for episode in Dataset.open(root).episodes] == [0, 7, 12]


def test_an_end_in_the_wrong_row_is_named(root):
    change(data(root, 0), "next.done", [False] * 12)
    change(data(root, 1), "next.done", [False, False, True, False, True])
    assert texts(root) == ["episode 0: its last row is not next.done", "episode 1: row 2 is next.done, the last is 4 (cannot be mended)"]
    repair(root)
    assert texts(root) == ["episode 1: row 2 is next.done, the last is 4 (cannot be mended)"]
    assert not Dataset.open(root).columns(0)["next.truncated"].any()  # it was terminated


def test_an_episode_that_is_taken_in_has_the_outcome_of_its_rows(root):
    meta(root, 1).unlink()
    repair(root)
    assert [episode.outcome for episode in Dataset.open(root).episodes] == ["success"] * 3


def test_values_that_are_not_finite_are_named_and_left(root):
    change(data(root, 1), "safety_lambda", [0.0, 1.0, np.nan, np.inf, 0.0])
    assert texts(root) == ["episode 1: safety_lambda is not finite in 2 rows, the first is 2 (cannot be mended)"]
    before = contents(root)
    assert repair(root) == [] and contents(root) == before


def test_times_that_do_not_go_on_are_named(root):
    columns = make_columns(LENGTHS[1], 1)
    columns["stamp"][3] = columns["stamp"][2] - 0.5
    flat = pa.array(columns["stamp"].reshape(-1))
    change(data(root, 1), "stamp", pa.FixedSizeListArray.from_arrays(flat, len(SPEC.sources)))
    assert any("episode 1: time does not go on: row 3 is at" in text for text in texts(root))
    assert any("episode 1: a measured stamp goes back in row 3" in text for text in texts(root))


def test_half_written_files_of_a_crash_are_named_and_moved_aside(root):
    partial = root / "videos/observation.images.front/chunk-000/.file-003.mp4.4711.partial"
    partial.write_bytes(b"half")
    assert texts(root) == [f"{partial.relative_to(root)}: belongs to no episode"]
    assert len(Dataset.open(root).episodes) == 3
    repair(root)
    assert_whole(root, [0, 1, 2])
    assert (root / "aside" / partial.relative_to(root)).read_bytes() == b"half"


def test_totals_behind_the_episodes_are_brought_up_to_date_by_the_next_writer(root):
    info, stats = (json.loads((root / name).read_text()) for name in (layout.INFO, layout.STATS))
    stats["action"]["mean"][0] += 1.0
    (root / layout.INFO).write_text(json.dumps(info | {"total_episodes": 2, "total_frames": 17}))
    (root / layout.STATS).write_text(json.dumps(stats))
    assert texts(root) == [
        "meta/info.json: total_episodes is 2, 3 is right",
        "meta/info.json: total_frames is 17, 47 is right",
        "meta/stats.json: does not follow from the episodes for action",
    ]
    assert len(Dataset.open(root).episodes) == 3
    DatasetWriter(root, SPEC).close()
    assert check(root) == []


@pytest.mark.parametrize("renames", range(5))
def test_a_repair_that_was_interrupted_is_finished_and_nobody_writes_before(root, renames, monkeypatch):
    data(root, 1).unlink()
    before = contents(root)
    left = iter(range(renames))

    def interrupted(act, path, *arguments, **options):
        if path.parent in (root, root / ".repair") and next(left, None) is None:
            raise KeyboardInterrupt
        return act(path, *arguments, **options)

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink"):
            patch.setattr(
                Path, name, partialmethod(lambda path, act, *args, **options: interrupted(act, path, *args, **options), getattr(Path, name))
            )
        with pytest.raises(KeyboardInterrupt):
            repair(root)
    assert "a repair was interrupted" in texts(root)[0]
    for use in (lambda: Dataset.open(root), lambda: DatasetWriter(root, SPEC)):
        with pytest.raises(UserError, match=r"a repair was interrupted.*data repair"):
            use()
    assert repair(root)[0] == "finished a repair that had been interrupted"
    assert_whole(root, [0, 2])
    assert before <= contents(root)


def test_a_repair_waits_for_no_one_who_writes(root):
    with DatasetWriter(root, SPEC), pytest.raises(UserError, match="another process writes"):
        repair(root)
