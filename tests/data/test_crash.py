import pytest

from ros_rl.data.crash import _digest, count_lost, drill
from ros_rl.data.dataset import Dataset


def test_d1_killing_a_recorder_loses_no_committed_episode(tmp_path):
    ticks = []
    result = drill(2, 1, tmp_path, lambda: ticks.append(1))
    assert len(ticks) == result["kills"] == 2
    # The first kill comes after 283 joint states, an episode has at most 200.
    assert result["episodes_committed"] > 0 and len(Dataset.open(tmp_path / "set").episodes) >= result["episodes_committed"]
    assert result["committed_episodes_lost"] == 0 and result["unreadable_datasets"] == 0
    assert result["open_episodes"] <= 2 and result["tail_lost_s"]["p50"] <= result["tail_lost_s"]["max"]


def test_an_episode_that_is_gone_or_has_other_rows_or_frames_is_counted_as_lost(root):
    right = {index: _digest(Dataset.open(root), index) for index in range(3)}
    assert count_lost(root, right) == 0
    assert count_lost(root, right | {1: right[2], 7: right[0]}) == 2
    videos = root / "videos/observation.images.front/chunk-000"
    (videos / "file-000.mp4").write_bytes((videos / "file-002.mp4").read_bytes())
    assert count_lost(root, right) == 1


@pytest.mark.parametrize(("committed", "opened", "code"), [(0, 3, 1), (3, 0, 1), (3, 3, 0)])
def test_a_drill_in_which_nothing_happened_is_no_success(monkeypatch, capsys, committed, opened, code):
    from ros_rl.cli.main import main

    result = {"kills": 1, "episodes_committed": committed, "open_episodes": opened, "committed_episodes_lost": 0, "unreadable_datasets": 0}
    monkeypatch.setattr("ros_rl.data.crash.drill", lambda *_: result)
    assert main(["bench", "crash", "--kills", "1", "--json"]) == code
    assert ("nothing was tested" in capsys.readouterr().err) == bool(code)
