import numpy as np
import pytest
from sample_logs import ROBOT, usual, write_log

from ros_rl.data.convert import Recording, begin_log, commit_log
from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.data.integrity import check
from ros_rl.data.log import LogReader
from ros_rl.data.repair import repair


def test_d1_an_episode_that_was_cut_off_is_named_and_recovered_with_the_next_number(tmp_path):
    root = tmp_path / "set"
    with DatasetWriter(root, ROBOT) as writer:
        commit_log(writer, Recording.read(write_log(tmp_path / "first.mcap", usual(0.5), instruction="push")))
    log = write_log(root / "logs/b.mcap", usual(2.0))
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    size = log.stat().st_size
    assert [str(finding) for finding in check(root)] == ["logs/b.mcap: an episode that was not committed; 1.0 s of it can be read"]
    assert len(Dataset.open(root).episodes) == 1
    assert repair(root) == ["b.mcap: is episode 1 now; the log is in aside/"]
    dataset = Dataset.open(root)
    assert check(root, decode=True) == [] and [episode.tasks for episode in dataset.episodes] == [("push",), ("lift",)]
    assert 26 <= dataset.episodes[1].length <= 31 and dataset.columns(1)["next.truncated"][-1]
    assert (root / "aside/logs/b.mcap").stat().st_size == size


def test_a_log_whose_episode_was_committed_is_not_taken_twice(tmp_path):
    root = tmp_path / "set"
    log = write_log(root / "logs/a.mcap", usual(0.5))
    with DatasetWriter(root, ROBOT) as writer:
        commit_log(writer, Recording.read(log))  # and killed before the log was removed
    assert [str(finding) for finding in check(root)] == ["logs/a.mcap: is an episode already"]
    assert repair(root) == ["a.mcap: is an episode already"]
    assert check(root) == [] and len(Dataset.open(root).episodes) == 1


def test_a_log_that_makes_no_episode_is_moved_aside_with_the_reason(tmp_path):
    root = tmp_path / "set"
    DatasetWriter(root, ROBOT).close()
    write_log(root / "logs/a.mcap", usual(0.5)[:1])
    (line,) = repair(root)
    assert line.startswith("a.mcap: moved to aside/ (") and "nothing came from action, front, wrist" in line
    assert check(root) == [] and (root / "aside/logs/a.mcap").is_file()


def test_a_log_that_cannot_be_made_an_episode_does_not_keep_the_others_from_it(tmp_path, monkeypatch):
    root = tmp_path / "set"
    DatasetWriter(root, ROBOT).close()
    for name in "ab":
        write_log(root / f"logs/{name}.mcap", usual(0.3))
    read = Recording.read
    monkeypatch.setattr(Recording, "read", lambda path: read(path) if path.name == "b.mcap" else [][0])
    assert repair(root) == ["a.mcap: moved to aside/ (list index out of range)", "b.mcap: is episode 0 now; the log is in aside/"]


def test_a_full_disk_leaves_the_logs_where_they_are(tmp_path, monkeypatch):
    root = tmp_path / "set"
    DatasetWriter(root, ROBOT).close()
    log = write_log(root / "logs/a.mcap", usual(0.3))
    with monkeypatch.context() as patch:
        patch.setattr("ros_rl.data.dataset.write_video", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            repair(root)
    assert log.is_file()


def test_logs_are_named_so_that_they_sort_by_time(tmp_path):
    names = []
    for _ in range(3):
        with begin_log(tmp_path, ROBOT, "lift") as log:
            names.append(log.path.name)
    assert names == sorted(set(names)) and np.all([LogReader(tmp_path / "logs" / name).about["instruction"] == "lift" for name in names])
