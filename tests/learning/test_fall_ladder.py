"""Tests of ros_rl.learning.fall_ladder: the real commands for a few short iterations."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from falling_point import FallingPoint

from ros_rl.cli.main import main as command
from ros_rl.errors import RobotFault, UserError
from ros_rl.learning import fall_ladder
from ros_rl.learning.fall_ladder import METHODS, Run, evaluate, recovery_of, train
from ros_rl.learning.ppo import Ppo, PpoArgs
from ros_rl.learning.recovery import RecoveryArgs, load_recovery, save_recovery
from ros_rl.learning.sac import SacArgs
from ros_rl.learning.safeexplorer import ExplorerArgs, SafeExplorer, exit_rate
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
    assert len(table["claims"]) == 2 and 0.0 <= table["guard"]["rescue_rate"] <= 1.0
    assert any("steps with" in line and "were spent on the recovery policy before" in line for line in out)
    run = json.loads((folder / "halfcheetah" / "strong" / "full_0.json").read_text())
    assert [row[0] for row in run["evaluations"]] == [0, 64, 128, 160]
    row = dict(zip(run["columns"], run["evaluations"][-1], strict=True))
    assert 0.0 <= row["gap"] <= row["gap_bound"] + 1e-6 and 0.0 <= row["exit_rate"] <= 1.0
    assert len(run["history"]["region"]) == 5
    assert not list(folder.rglob("*_0*.npz"))
    monkeypatch.setattr(Ppo, "iterate", lambda self: pytest.fail("trains again"))
    assert command([*words, "--only-trained"]) == 0
    with pytest.raises(UserError, match=r"ppo_0\.json holds a training with steps = 160, asked for is 320; name another --folder"):
        train("halfcheetah", "ppo", 0, 320, "strong", folder)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_and_goes_on_where_it_was_stopped(method, folder, tmp_path, monkeypatch):
    """As good as never stopped: results and evaluations are the same, bit for bit."""
    stopped = shutil.copytree(folder, tmp_path / "stopped")
    whole = train("halfcheetah", method, 0, STEPS, "strong", folder, bar=False)
    stop_after(3, method, stopped, monkeypatch)
    assert train("halfcheetah", method, 0, STEPS, "strong", stopped, bar=False) == whole
    assert whole["steps"] == STEPS
    finite = [value for row in whole["evaluations"] for value in row if value is not None]
    assert all(math.isfinite(value) for value in finite)
    assert (whole["guard"] is None) == (method in ("ppo", "lagrangian", "cpo"))


def stop_after(iterations, method, folder, monkeypatch):
    step = Run.step

    def until(self):
        if self.learner.iteration == iterations:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", until)
        with pytest.raises(KeyboardInterrupt):
            train("halfcheetah", method, 0, STEPS, "strong", folder, bar=False)


@pytest.mark.parametrize("steps", [96, 320])
def test_a_stopped_run_does_not_go_on_as_one_of_another_length(steps, folder, monkeypatch):
    """Its learning rate and region follow a schedule that ends where the run was to end."""
    stop_after(4, "ppo", folder, monkeypatch)
    with pytest.raises(UserError, match=f"ppo_0.npz: the checkpoint holds a training with steps = 160, asked for is {steps}; train anew"):
        train("halfcheetah", "ppo", 0, steps, "strong", folder, bar=False)


def test_a_stopped_run_does_not_go_on_beside_another_recovery_policy(folder, monkeypatch):
    stop_after(4, "masked", folder, monkeypatch)
    place = folder / "halfcheetah"
    policy = load_recovery(place / "recovery_strong.safetensors", 17, 6)
    policy.biases[-1][0] += 0.1
    save_recovery(place / "recovery_strong.safetensors", policy)
    with pytest.raises(UserError, match=r"recovery_strong\.safetensors: is not the policy that .*recovery\.json tells of"):
        train("halfcheetah", "masked", 0, STEPS, "strong", folder, bar=False)
    record = json.loads((place / "recovery.json").read_text())
    record["policies"]["strong"]["digest"] = policy.digest()
    (place / "recovery.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=rf"masked_0\.npz: .* recovery = \w+, asked for is {policy.digest()}"):
        train("halfcheetah", "masked", 0, STEPS, "strong", folder, bar=False)


def test_a_finished_run_is_of_the_recovery_policy_of_its_folder(folder):
    train("halfcheetah", "full", 0, 32, "strong", folder, bar=False)
    for path in (folder / "halfcheetah").glob("recovery*"):
        path.unlink()
    longer = replace(RECOVERY, steps=480)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fall_ladder, "RECOVERY", longer)
        with pytest.raises(UserError, match=r"full_0\.json holds a training with recovery = \w+, asked for is \w+; name another"):
            train("halfcheetah", "full", 0, 32, "strong", folder, bar=False)
    with pytest.raises(UserError, match=r"recovery\.json holds a training with steps = 480, asked for is 320; name another --folder"):
        recovery_of("halfcheetah", "strong", folder)


def test_what_the_recovery_policies_cost_is_told(folder):
    record = json.loads((folder / "halfcheetah" / "recovery.json").read_text())
    snapshots = record["snapshots"]
    assert snapshots["steps"] > 264 and snapshots["held_out"] == 200
    for strength in ("strong", "weak"):
        told = recovery_of("halfcheetah", strength, folder).record
        assert told == record["policies"][strength]
        assert told["steps"] == snapshots["steps"] + RECOVERY.steps and told["falls"] >= snapshots["falls"]


def test_a_training_that_breaks_down_is_a_result_and_the_bench_goes_on(folder, capsys, monkeypatch):
    iterate = Ppo.iterate

    def breaks(self):
        if self.seed == 1 and self.iteration == 3:
            raise RobotFault("PPO diverged")
        return iterate(self)

    monkeypatch.setattr(Ppo, "iterate", breaks)
    words = ["bench", "safeexplorer", "--seeds", "2", "--steps", str(STEPS), "--folder", str(folder), "--methods", "ppo", "full"]
    assert command(words) == 0
    out = capsys.readouterr().out
    assert out.count("one failed at step 96") == 2
    table = json.loads((folder / "halfcheetah_strong.json").read_text())
    failed = {"steps": 96, "reason": "PPO diverged"}
    for row in table["methods"].values():
        assert row["failed"] == [None, failed] and row["passed"][1] is False
    assert not any(entry["holds"] for entry in table["claims"])
    monkeypatch.setattr(Ppo, "iterate", lambda self: pytest.fail("trains again"))
    assert command([*words, "--only-trained"]) == 0
    assert fall_ladder.main(["--method", "ppo", "--seed", "1", "--steps", str(STEPS), "--folder", str(folder)]) == 1
    assert "failed at step 96: PPO diverged" in capsys.readouterr().err


def test_a_policy_that_is_no_number_at_its_evaluation_ends_the_run(monkeypatch):
    run = Run("halfcheetah", "ppo", 0, STEPS, None)
    run.step()
    run.learner.parameters.values[:] = math.nan
    run.step()
    assert run.over and run.failed["steps"] == 32 and "not finite after 32 steps" in run.failed["reason"]
    assert run.result()["evaluations"][-1] == [32.0, run.learner.falls, 0.0, *[None] * 5]


def test_methods_without_recovery_are_trained_once_for_all_strengths(folder, monkeypatch):
    train("halfcheetah", "ppo", 0, 32, "strong", folder, bar=False)
    monkeypatch.setattr(Ppo, "iterate", lambda self: pytest.fail("trains again"))
    train("halfcheetah", "ppo", 0, 32, "weak", folder, bar=False)


def test_what_is_left_out_for_it_is_not_trained_is_named(folder, capsys):
    train("halfcheetah", "ppo", 0, 32, "strong", folder, bar=False)
    words = ["bench", "safeexplorer", "--seeds", "1", "--steps", "32", "--folder", str(folder), "--only-trained"]
    assert command([*words, "--methods", "ppo", "full", "cpo"]) == 0
    assert "left out, for not all of their 1 runs are finished: full, cpo" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read"), ("[]", "holds no JSON object"), ("{}", "holds a training with")])
@pytest.mark.parametrize("name", ["recovery.json", "strong/full_0.json"])
def test_a_broken_record_is_named(name, text, message, folder, capsys):
    place = folder / "halfcheetah" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    assert fall_ladder.main(["--steps", "32", "--folder", str(folder)]) == 2
    words = capsys.readouterr().err
    assert f"{place}" in words and message in words


def test_an_evaluation_is_of_the_mean_policy_and_the_same_again(folder):
    run = Run("halfcheetah", "full", 0, STEPS, recovery_of("halfcheetah", "weak", folder))
    found = [evaluate(make_fall_env("halfcheetah", 6, 30), run.learner, [3]) for _ in range(2)]
    assert found[0] == found[1]
    run.learner.region = 0.999  # nothing to recover from: alone and guarded are the same
    same = evaluate(make_fall_env("halfcheetah", 6, 30), run.learner, [3])
    assert same.alone == same.mixed == found[0].alone
    assert same.gap == same.bound == 0.0
    run.learner.region = 1e-9
    outside = evaluate(make_fall_env("halfcheetah", 6, 30), run.learner, [3])
    assert outside.mixed != same.mixed


def test_who_has_fallen_counts_as_outside_for_ever():
    """A policy that walks outwards alone, 0.2 a step: β in closed form from where the episodes began."""
    point = FallingPoint(2, limit=10**6)
    learner = SafeExplorer(ARGS, point, 10, 0, lambda seen: -np.sign(seen[:, :1]), ExplorerArgs(start_region=0.5, max_region=0.5))
    learner.policy = lambda seen: np.ones((len(seen), 1))
    copies = FallingPoint(4, limit=10**6)
    starts = [int(number) for number in np.random.SeedSequence([7]).generate_state(2)]
    x = FallingPoint(2).reset(seed=starts)[0][:, 0]
    found = evaluate(copies, learner, [7])
    places = x + 0.2 * np.arange(fall_ladder.EPISODE_STEPS + 1)[:, None]
    assert found.exits == pytest.approx(exit_rate((places >= 0.5).mean(axis=1), ARGS.discount))
    assert found.alone == pytest.approx(
        np.mean([(1 - (column[1:] - 0.5) ** 2)[: np.argmax(column[1:] >= 1) + 1].sum() for column in places.T])
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "halfcheeta"], "unknown environment 'halfcheeta', did you mean 'halfcheetah'?"),
        (["--method", "ful"], "unknown method 'ful', did you mean 'full'?"),
        (["--seed", "-1"], "--seed must not be negative"),
        (["--method", "full", "--steps", "0"], "--steps be at least 1, got 0 and 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    assert fall_ladder.main([*words, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # nothing was trained before it was said


def test_a_summary_of_nothing_is_refused(tmp_path, capsys):
    assert command(["bench", "safeexplorer", "--only-trained", "--folder", str(tmp_path)]) == 2
    assert "holds no method with 3 finished runs" in capsys.readouterr().err
    assert command(["bench", "safeexplorer", "--steps", "0", "--folder", str(tmp_path)]) == 2
    assert "--seeds and --steps must be at least 1, got 3 and 0" in capsys.readouterr().err


def test_a_checkpoint_that_is_not_whole_is_said(tmp_path, capsys):
    place = tmp_path / "halfcheetah" / "alone"
    place.mkdir(parents=True)
    (place / "ppo_0.npz").write_bytes(b"")
    train("halfcheetah", "ppo", 0, 32, "strong", tmp_path, bar=False)
    words = capsys.readouterr().err
    assert "ppo_0.npz is not whole" in words and "starting from zero" in words
