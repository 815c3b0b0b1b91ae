"""Tests of ros_rl.learning.ladder, ladder_results and autosafe_bundle: the real commands for a few steps after the warm-up."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.cli.main import main as command
from ros_rl.errors import UserError
from ros_rl.learning import ladder, training
from ros_rl.learning.autosafe_bundle import DESIGNS, trained
from ros_rl.learning.goal_tasks import TASKS, glucose_prior
from ros_rl.learning.ladder import METHODS, Experiment, prior_of, train
from ros_rl.learning.ladder_results import _return_curve, bench, claims
from ros_rl.learning.training import inputs_of
from ros_rl.paths import share_dir
from ros_rl.policies.actors import load_policy
from ros_rl.robots.spec import load_robot
from ros_rl.safety.prior import load_prior, save_prior
from ros_rl.safety.stance import stance_prior

STEPS = 1060


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Intervals and evaluations as short as the trainings."""
    monkeypatch.setattr(training, "LOG_EVERY", 20)
    monkeypatch.setattr(ladder, "LOG_EVERY", 20)
    monkeypatch.setattr(ladder, "EVALUATION_EPISODES", 1)


def test_a_short_bench_leaves_results_and_figures_and_is_not_done_twice(tmp_path, capsys, monkeypatch):
    words = ["bench", "autosafe", "--task", "glucose", "--seeds", "1", "--steps", str(STEPS), "--folder", str(tmp_path)]
    assert command([*words, "--methods", "sac", "autosafe"]) == 0
    *rows, _, _, _, _ = lines = capsys.readouterr().out.splitlines()
    files = lines[len(rows) :]
    assert [row.split(" | ")[0] for row in rows[2:4]] == ["| SAC", "| AutoSafe"]
    assert len({row.count("|") for row in rows[: rows.index("")]}) == 1
    assert "| AutoSafe has no violation in training | 0 | before | yes |" in rows
    assert {row.split(" | ")[2] for row in rows if "at most 1.25 times" in row} == {"after a look"}
    assert [path.removeprefix(f"{tmp_path}/") for path in files] == [
        "glucose.json",
        "glucose_ladder.png",
        "glucose_training.png",
        "glucose_weight.png",
    ]
    table = json.loads((tmp_path / "glucose.json").read_text())
    assert (table["steps"], table["seeds"], set(table["methods"])) == (STEPS, 1, {"sac", "autosafe"})
    row = table["methods"]["autosafe"]["high"]
    assert row["training_return_last"] == {"iqm": None, "interval": [None, None], "runs": [None]}  # no episode ended so late
    trained_weight = np.array(json.loads((tmp_path / "glucose" / "autosafe.json").read_text())["training"]["weight"])[:, 2]
    assert row["weight_first"]["iqm"] == pytest.approx(trained_weight[50:].mean(), rel=1e-3)  # 1000 steps of warm-up in intervals of 20
    assert row["violations"] == [0] and row["interventions"] == [0]
    assert row["nominal"]["return"]["runs"] == [row["nominal"]["return"]["iqm"]]
    assert not list(tmp_path.rglob("*.npz"))
    assert command([*words, "--methods", "autosafe", "--minimal-weight"]) == 0
    head, _, *cells = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert head == "| method | samples of an estimate | λ | λ* | steps with λ* > 0 | noise of λ* where it is needed |"
    assert cells[0].startswith("| AutoSafe | 4 | 0.") and cells[1].startswith("| AutoSafe | 16 | 0.")
    weights = json.loads((tmp_path / "glucose.json").read_text())["minimal_weight"]["autosafe"]
    assert set(weights) == {"4", "16"} and set(weights["4"]) == {"low", "mid", "high"}
    assert command([*words, "--methods", "sac", "--minimal-weight"]) == 2
    assert "--minimal-weight compares what mixes a safe action in; sac mixes none" in capsys.readouterr().err
    assert command([*words, "--methods", "sac", "linear", "--only-trained"]) == 2
    assert "glucose holds no finished linear; run it without --only-trained" in capsys.readouterr().err
    monkeypatch.setattr(ladder.Trainer, "step", lambda self: pytest.fail("trains again"))
    train(TASKS["glucose"], "sac", 1, STEPS, tmp_path)
    save_prior(tmp_path / "glucose" / "prior.safetensors", replace(glucose_prior(), sharpness_bound=1.0))
    with pytest.raises(UserError, match=f"sac.json: trained with the safe prior {glucose_prior().digest()}, that of the folder is"):
        train(TASKS["glucose"], "sac", 1, STEPS, tmp_path)


@pytest.mark.parametrize(("key", "other"), [("steps", 5000), ("seeds", [0, 0, 0]), ("prior", "0123")])
def test_methods_that_were_trained_otherwise_are_not_put_into_one_table(key, other, tmp_path):
    result = {"steps": 30000, "seeds": [0, 0, 0, 1, 1, 1], "prior": "abcd"}
    (tmp_path / "glucose").mkdir()
    for name, found in (("sac", result), ("autosafe", result | {key: other})):
        (tmp_path / "glucose" / f"{name}.json").write_text(json.dumps(found))
    with pytest.raises(UserError, match=f"glucose/autosafe.json and .*glucose/sac.json cannot be in one table: their {key} are"):
        bench("glucose", [], 2, 0, tmp_path, only_trained=True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_result_that_is_damaged_is_named(text, tmp_path):
    (tmp_path / "glucose").mkdir()
    (tmp_path / "glucose" / "sac.json").write_text(text)
    with pytest.raises(UserError, match=r"glucose/sac\.json: is no result of a training; train the method again"):
        bench("glucose", ["sac"], 2, 0, tmp_path, only_trained=True)


def test_networks_that_are_damaged_are_named(tmp_path):
    (tmp_path / "autosafe.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UserError, match=r"autosafe\.safetensors: cannot be read .*; train the method again"):
        ladder.read_networks(tmp_path / "autosafe.safetensors")


def test_a_training_curve_is_the_mean_of_the_runs_however_many_episodes_each_ended():
    rows = [[0, 10, 100.0, 10, 0], *([1, step, 20.0, 2, 0] for step in (2, 4, 6)), [0, 60, 50.0, 50, 0], [2, 5, 999.0, 5, 0]]
    edges, means = _return_curve({"episodes": rows, "steps": 60}, np.array([True, True, False]), points=3)
    np.testing.assert_array_equal(edges, [20, 40, 60])
    np.testing.assert_array_equal(means, [60.0, np.nan, 50.0])


def test_a_training_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, "SAVE_EVERY", 500)
    task, step = TASKS["glucose"], ladder.Trainer.step
    whole = train(task, "simplex", 1, STEPS, tmp_path / "whole", bar=False)

    def until(self):
        if self.steps == 1030:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(ladder.Trainer, "step", until)
    with pytest.raises(KeyboardInterrupt):
        train(task, "simplex", 1, STEPS, tmp_path / "stopped", bar=False)
    monkeypatch.setattr(ladder.Trainer, "step", step)
    assert train(task, "simplex", 1, STEPS, tmp_path / "stopped", bar=False) == whole


def row_of(value: float, loss: float, violations: int, first: float = 0.5, last: float = 0.4) -> dict:
    runs = lambda middle: {"runs": [middle - 0.1 * abs(middle), middle, middle + 0.1 * abs(middle)]}  # noqa: E731
    found = {"nominal": {"return": runs(value)}, "critic_loss_last": runs(loss), "violations": [violations] * 3}
    return found | {"weight_first": runs(first), "weight_last": runs(last)}


def test_claims_are_judged_by_medians_and_by_every_level():
    levels = {"low": 1, "mid": 2, "high": 3}
    methods = {
        "sac": {level: row_of(200.0, 0.2, 30) for level in levels},
        "lagrangian": {level: row_of(180.0, 0.2, 30) for level in levels},
        "simplex": {level: row_of(50.0, 10.0**k, 0) for k, level in enumerate(levels)},
        **{name: {level: row_of(209.0, 0.005, 0) for level in levels} for name in ("linear", "fixed_half", "fixed_full")},
        "autosafe": {level: row_of(210.0, 0.005, 0, last=0.1 * (k + 1)) for k, level in enumerate(levels)},
    }
    table = {"task": "cartpole", "goals": levels, "methods": methods}
    assert len(claims(table)) == 11
    assert all(entry["holds"] for entry in claims(table)), [entry for entry in claims(table) if not entry["holds"]]
    methods["autosafe"]["mid"] = row_of(189.0, 0.05, 1, last=0.35)
    broken = [entry["claim"] for entry in claims(table) if not entry["holds"]]
    assert broken == [
        "AutoSafe has no violation in training",
        "AutoSafe's mean weight at the end grows with conflict",
        "AutoSafe's return is at least 0.95 of SAC's",
        "AutoSafe's return is at least that of the best soft baseline",
        "learned p: a return of at least 0.97 of the best fixed p's",
    ]


def test_few_violations_of_the_quadruped_are_held_against_those_of_sac():
    levels = {"low": 1, "mid": 2, "high": 3}
    for ours, theirs, expected in ((3, 50, [True]), (4, 50, [False]), (0, 0, [])):
        methods = {"sac": {level: row_of(200.0, 0.2, theirs) for level in levels}}
        methods["autosafe"] = {level: row_of(210.0, 0.005, ours if level == "low" else 0) for level in levels}
        table = {"task": "quadruped", "goals": levels, "methods": methods}
        found = [entry for entry in claims(table) if "violation" in entry["claim"]]
        assert [entry["holds"] for entry in found] == expected
        assert all(entry["claim"] == "AutoSafe's violations in training are at most 0.02 of SAC's" for entry in found)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_set_up_and_stepped(name, tmp_path):
    experiment = Experiment(TASKS["glucose"], name, 1, STEPS, prior_of(TASKS["glucose"], tmp_path))
    for _ in range(3):
        experiment.trainer.step()
    assert np.isfinite(experiment.trainer._seen.observation).all()


@pytest.mark.parametrize("method", ["sac", "autosafe", "simplex"])
def test_the_quadruped_can_be_trained(method, tmp_path, monkeypatch):
    """A hundred steps after a short warm-up, through the command."""
    task = TASKS["quadruped"]
    short = replace(task, args=replace(task.args, warmup=20, batch=16), make_prior=lambda: replace(stance_prior(), sharpness_bound=0.5))
    monkeypatch.setattr(ladder, "task_named", {"quadruped": short}.__getitem__)
    monkeypatch.setattr(task.environments["nominal"], "episode_steps", 60)
    assert ladder.main(["--task", "quadruped", "--method", method, "--seeds", "1", "--steps", "120", "--folder", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "quadruped" / f"{method}.json").read_text())
    assert np.isfinite(result["evaluation"]["nominal"]["return"]).all()
    assert len(result["training"]["critic_loss"]) > 0 and np.isfinite(result["training"]["critic_loss"]).all()
    assert len(result["episodes"]) >= 3
    if method == "autosafe":
        assert np.sum(result["training"]["violations"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "cartpol"], "unknown task 'cartpol', did you mean 'cartpole'?"),
        (["--method", "autosave"], "unknown method 'autosave', did you mean 'autosafe'?"),
        (["--task", "glucose", "--seeds", "0"], "--seeds must be at least 1"),
        (["--task", "glucose", "--steps", "900"], "--steps a multiple of 20 above the 1000"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    assert ladder.main([*words, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_other_numbers_than_those_that_were_trained_are_refused(tmp_path):
    (tmp_path / "glucose").mkdir()
    (tmp_path / "glucose" / "sac.json").write_text(json.dumps({"steps": 5000, "seeds": [0, 0, 0], "prior": "abcd"}))
    with pytest.raises(UserError, match="holds 1 seeds of 5000 steps, asked for are 2 of 30000"):
        train(TASKS["glucose"], "sac", 2, 0, tmp_path)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_bundle_is_made_of_seed_0_of_its_level(name, tmp_path, monkeypatch):
    design = DESIGNS[name]
    task = replace(TASKS[design.task], make_prior=lambda: load_prior(share_dir() / "policies" / name))
    monkeypatch.setitem(TASKS, design.task, task)
    with pytest.raises(UserError, match=r"autosafe\.safetensors is not there; train it with"):
        trained(name, design, tmp_path)
    experiment = Experiment(task, "autosafe", 2, STEPS, prior_of(task, tmp_path))
    networks = tmp_path / task.name / "autosafe.safetensors"
    ladder.save_networks(networks, experiment.agent)
    done, found = tmp_path / task.name / "autosafe.json", {"steps": STEPS, "seeds": experiment.seeds}
    done.write_text(json.dumps(found | {"prior": "another"}))
    with pytest.raises(UserError, match=r"autosafe\.json: trained with the safe prior another, that of the folder is"):
        trained(name, design, tmp_path)
    done.write_text(json.dumps(found | {"prior": prior_of(task, tmp_path).digest()}))
    bundle = trained(name, design, tmp_path)
    assert bundle.training["data"] == f"{STEPS} steps of the task {task.name} at mid conflict, seed 0"
    assert "--seeds 2" in bundle.training["command"]
    policy = load_policy(bundle, load_robot(design.robot))
    run = 1  # seed 0, level "mid"
    seen = experiment.trainer._seen
    expected = experiment.agent.act(*inputs_of(seen, 6), None).action[run, 0].detach().numpy()
    np.testing.assert_allclose(policy.action(seen.state[run]), expected, atol=2e-6)
    assert experiment.goals[run] == task.goals["mid"]
