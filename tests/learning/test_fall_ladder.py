"""Tests of ros_rl.learning.fall_ladder and fall_results: the real commands for a few short iterations."""

import json
import math
import shutil

import pytest

from ros_rl.cli.main import main as command
from ros_rl.errors import UserError
from ros_rl.learning import fall_ladder
from ros_rl.learning.fall_ladder import METHODS, Run, evaluate, recovery_of, train
from ros_rl.learning.fall_results import claims, falls_until
from ros_rl.learning.ppo import Ppo, PpoArgs
from ros_rl.learning.recovery import RecoveryArgs
from ros_rl.learning.sac import SacArgs
from ros_rl.sim.fall_env import make_fall_env

ARGS = PpoArgs(copies=2, rollout=16, epochs=2, batch=16, hidden=(8, 8))
STEPS = 160  # five iterations


RECOVERY = RecoveryArgs(snapshots=64, steps=320, updates=1, sac=SacArgs(batch=16, hidden=(8, 8), warmup=160))


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for name, value in (("PPO", ARGS), ("RECOVERY", RECOVERY), ("EPISODE_STEPS", 30), ("EVALUATE_EVERY", 2)):
        monkeypatch.setattr(fall_ladder, name, value)


@pytest.fixture(scope="module")
def _recovery(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recovery")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fall_ladder, "RECOVERY", RECOVERY)
        recovery_of("halfcheetah", "strong", folder)
    return folder


@pytest.fixture
def folder(tmp_path, _recovery):
    """A folder in which the recovery policies are trained."""
    return shutil.copytree(_recovery, tmp_path / "runs")


def test_a_short_bench_leaves_results_and_a_figure_and_is_not_done_twice(folder, capsys, monkeypatch):
    words = ["bench", "safeexplorer", "--seeds", "1", "--steps", str(STEPS), "--folder", str(folder)]
    assert command([*words, "--methods", "ppo", "full"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0] for row in out[2:4]] == ["| PPO", "| SafeExplorer"]
    assert out[-2:] == [str(folder / "halfcheetah_strong.json"), str(folder / "halfcheetah_strong.png")]
    table = json.loads((folder / "halfcheetah_strong.json").read_text())
    assert (table["steps"], table["seeds"], set(table["methods"])) == (STEPS, 1, {"ppo", "full"})
    assert len(table["claims"]) == 2 and 0.0 <= table["rescue_rate"] <= 1.0
    run = json.loads((folder / "halfcheetah" / "strong" / "full_0.json").read_text())
    assert [row[0] for row in run["evaluations"]] == [0, 64, 128, 160]
    row = dict(zip(run["columns"], run["evaluations"][-1], strict=True))
    assert 0.0 <= row["gap"] <= row["gap_bound"] + 1e-6 and 0.0 <= row["exit_rate"] <= 1.0
    assert len(run["history"]["region"]) == 5
    assert not list(folder.rglob("*.npz"))
    monkeypatch.setattr(Ppo, "iterate", lambda self: pytest.fail("trains again"))
    assert command([*words, "--only-trained"]) == 0
    with pytest.raises(UserError, match="holds a run of 160 steps, asked for are 320"):
        train("halfcheetah", "ppo", 0, 320, "strong", folder)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_and_goes_on_where_it_was_stopped(method, folder, tmp_path, monkeypatch):
    """As good as never stopped: results and evaluations are the same, bit for bit."""
    stopped = shutil.copytree(folder, tmp_path / "stopped")
    whole = train("halfcheetah", method, 0, STEPS, "strong", folder, bar=False)
    step = Run.step

    def until(self):
        if self.learner.iteration == 3:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(Run, "step", until)
    with pytest.raises(KeyboardInterrupt):
        train("halfcheetah", method, 0, STEPS, "strong", stopped, bar=False)
    monkeypatch.setattr(Run, "step", step)
    assert train("halfcheetah", method, 0, STEPS, "strong", stopped, bar=False) == whole
    assert whole["steps"] == STEPS
    finite = [value for row in whole["evaluations"] for value in row if value is not None]
    assert all(math.isfinite(value) for value in finite)
    assert (whole["rescue_rate"] is None) == (method in ("ppo", "lagrangian", "cpo"))


def test_an_evaluation_is_of_the_mean_policy_and_the_same_again(folder):
    recovery, rate = recovery_of("halfcheetah", "weak", folder)
    assert rate == json.loads((folder / "halfcheetah" / "recovery.json").read_text())["rescue_rate"]["weak"]
    run = Run("halfcheetah", "full", 0, STEPS, recovery)
    found = [evaluate(make_fall_env("halfcheetah", 6, 30), run.learner, [3]) for _ in range(2)]
    assert found[0] == found[1]
    run.learner.region = 0.999  # nothing to recover from: alone and guarded are the same
    same = evaluate(make_fall_env("halfcheetah", 6, 30), run.learner, [3])
    assert same.alone == pytest.approx(same.mixed) == pytest.approx(found[0].alone)
    assert same.gap == pytest.approx(0.0, abs=1e-9)
    run.learner.region = 1e-9
    outside = evaluate(make_fall_env("halfcheetah", 6, 30), run.learner, [3])
    assert outside.mixed != same.mixed


def test_falls_are_counted_until_the_threshold_and_all_of_them_without():
    columns = ["steps", "falls", "stuck", "return"]
    run = {"columns": columns, "evaluations": [[0, 0, 0, -5], [10, 7, 1, 50], [20, 9, 1, 100], [30, 9, 4, 80]]}
    assert falls_until(run, 90.0) == (10.0, True)
    assert falls_until(run, 40.0) == (8.0, True)
    assert falls_until(run, 101.0) == (13.0, False)


def row_of(falls: float, final: float, passed: bool = True) -> dict:
    return {"falls_until_threshold": {"runs": [falls] * 3}, "final_return": {"runs": [final] * 3}, "passed": [True, True, passed]}


def test_claims_are_judged_by_medians():
    rows = {"ppo": row_of(1000, 100), "unmasked": row_of(900, 100, False), "masked": row_of(300, 100), "masked_value": row_of(100, 100)}
    rows |= {"full": row_of(90, 96), "recovery_rl": row_of(200, 50)}
    assert [entry["holds"] for entry in claims("ant", "weak", rows)] == [True] * 5
    rows["full"] = row_of(90, 96, False)
    assert not claims("ant", "strong", rows)[0]["holds"]  # few falls are nothing to who never gets there
    rows["full"] = row_of(130, 90, False)
    assert [entry["holds"] for entry in claims("ant", "weak", rows)] == [False, False, False, True, False]
    assert len(claims("ant", "strong", rows)) == 4
    assert claims("halfcheetah", "strong", {"masked": row_of(1, 1)}) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "halfcheeta"], "unknown environment 'halfcheeta', did you mean 'halfcheetah'?"),
        (["--method", "ful"], "unknown method 'ful', did you mean 'full'?"),
        (["--method", "ppo", "--seed", "-1"], "--seed must not be negative"),
        (["--method", "ppo", "--steps", "0"], "--steps be at least 1, got 0 and 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    assert fall_ladder.main([*words, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert command(["bench", "safeexplorer", "--only-trained", "--folder", str(tmp_path)]) == 2
    assert "holds no method with 3 finished runs" in capsys.readouterr().err


def test_a_checkpoint_that_is_not_whole_is_said(tmp_path, capsys):
    place = tmp_path / "halfcheetah" / "strong"
    place.mkdir(parents=True)
    (place / "ppo_0.npz").write_bytes(b"")
    train("halfcheetah", "ppo", 0, 32, "strong", tmp_path, bar=False)
    words = capsys.readouterr().err
    assert "ppo_0.npz is not whole" in words and "starting from zero" in words
