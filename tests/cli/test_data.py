import json

import numpy as np
import pytest
from sample_episodes import SPEC, make_columns, make_videos
from sample_logs import usual, write_log

from ros_rl.cli.main import main
from ros_rl.data.dataset import DatasetWriter


@pytest.fixture
def root(tmp_path):
    with DatasetWriter(tmp_path / "set", SPEC) as writer:
        for index, rows in enumerate((6, 4)):
            writer.commit(make_columns(rows, index), make_videos(rows, index), "lift", "success")
    return tmp_path / "set"


def test_info_says_what_is_there(root, capsys):
    assert main(["data", "info", str(root), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["robot"], info["episodes"], info["rows"], info["rate"]) == ("arm", 2, 10, "30 Hz")
    assert info["cameras"] == ["front 64×48", "wrist 32×32"] and info["instructions"] == ["lift"]
    columns = [make_columns(rows, index) for index, rows in enumerate((6, 4))]
    share = np.concatenate([part["intervention"] for part in columns]).mean()
    gaps = np.max([np.diff(part["stamp"], axis=0).max(axis=0) for part in columns], axis=0)
    assert info["interventions"] == f"{share:.1%} of the rows" and 0 < share < 1
    assert info["largest gap between stamps"][0] == f"joint_states: {1e3 * gaps[0]:.1f} ms"
    assert main(["data", "info", str(root)]) == 0
    assert "outcomes:\n  success: 2\n" in capsys.readouterr().out


def test_info_reads_logs_too(tmp_path, capsys):
    path = write_log(tmp_path / "log.mcap", usual(1.0, {"joints": 200.0, "front": 20.0, "wrist": 30.0}))
    path.write_bytes(path.read_bytes()[:-5000])
    assert main(["data", "info", str(path)]) == 0
    said = capsys.readouterr().out
    assert "whole: no, it was cut off" in said and "20.0 Hz of 30 Hz asked" in said


def test_check_and_repair_tell_what_is_wrong_by_exit_code(root, capsys):
    assert main(["data", "check", str(root)]) == 0
    assert capsys.readouterr().out == "ok\n"
    (root / "data/chunk-000/file-000.parquet").unlink()
    assert main(["data", "check", str(root), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"] and report["findings"][0]["where"] == "episode 0"
    assert main(["data", "info", str(root)]) == 2
    assert "data repair" in capsys.readouterr().err
    assert main(["data", "repair", str(root)]) == 0
    assert "episode 1: is number 0 now" in capsys.readouterr().out
    assert main(["data", "check", str(root), "--decode"]) == 0


def test_what_cannot_be_mended_is_still_wrong_after_a_repair(root, capsys, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = root / "data/chunk-000/file-001.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(table.column_names.index("next.reward"), "next.reward", pa.array([float("nan")] * 4)), path)
    assert main(["data", "repair", str(root)]) == 1
    assert "still wrong: episode 1: next.reward is not finite in 4 rows" in capsys.readouterr().err


def test_export_merge_and_view_write_their_files(root, tmp_path, capsys):
    assert main(["data", "export", str(root), str(tmp_path / "out"), "--format", "npz", "--episodes", "1"]) == 0
    assert (tmp_path / "out/episode_000001.npz").is_file()
    assert main(["data", "merge", str(root), str(root), "--out", str(tmp_path / "both")]) == 0
    assert capsys.readouterr().out.endswith("both has 4 episodes\n")
    assert main(["data", "view", str(root), "--episode", "1", "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "{tmp}"], "is no LeRobot dataset, it has no meta/info.json"),
        (["check", "{tmp}/nowhere"], "is no LeRobot dataset"),
        (["repair", "{tmp}/nowhere"], "is no LeRobot dataset"),
        (["repair", "{tmp}"], "is no LeRobot dataset"),
        (["info", "{tmp}/nothing.mcap"], "there is no such log"),
        (["view", "{set}", "--episode", "7"], "has no episode 7, it has 0 to 1"),
        (["view", "{set}", "--out", "a.jpg"], "its name must end in .png"),
        (["export", "{set}", "{tmp}/out", "--format", "xls"], "'xls'"),
        (["merge", "--out", "{tmp}/out"], "merge"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(root, tmp_path, capsys, words, message):
    assert main(["data", *(word.format(tmp=tmp_path, set=root) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / ".lock").exists()
