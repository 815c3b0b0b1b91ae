"""Tests of ros_rl.cli.bench: a short measurement gives whole, finite figures; what they are is for the benchmark to say."""

import json
import math
import subprocess
import sys

import pytest
import token_samples

from ros_rl.cli.main import main
from ros_rl.learning import grpo_bench


def numbers(value):
    """Returns every number in a JSON value."""
    if isinstance(value, dict):
        return [number for entry in value.values() for number in numbers(entry)]
    return [value] if isinstance(value, int | float) else []


def test_the_simulator_is_measured(tmp_path, capsys):
    out = tmp_path / "results" / "bench_sim.json"
    words = ["--envs", "2", "--steps", "3", "--repetitions", "1", "--subjects", "quadruped, ant,quadruped", "--out", str(out), "--json"]
    assert main(["bench", "sim", *words]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == figures
    assert set(figures["subjects"]) == {"quadruped", "ant"}
    for subject in figures["subjects"].values():
        rates = subject["steps_per_second"]
        assert {"ours", "gymnasium_sync", "gymnasium_async", "rollout"} <= set(rates)
        assert {"gymnasium", "rollout"} <= set(subject["ratio"])
    assert all(math.isfinite(number) and number > 0 for number in numbers(figures["subjects"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--subjects", "arm,quadroped"], "unknown subject 'quadroped', did you mean 'quadruped'?"),
        (["--subjects", ""], "unknown subject ''"),
        (["--envs", "0"], "--envs, --steps and --repetitions must be from 1 to 10000, got 0, 50 and 9"),
    ],
)
def test_bad_subjects_and_numbers_are_one_line(capsys, words, message):
    assert main(["bench", "sim", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ros_rl.sim.bench.measure", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").touch()
    places = {
        tmp_path: f"--out {tmp_path} is a folder, it must be a file",
        tmp_path / "file" / "bench.json": f"--out {tmp_path / 'file' / 'bench.json'}: its folder cannot be made (File exists)",
    }
    for place, message in places.items():
        assert main(["bench", "sim", "--out", str(place)]) == 2
        assert message in capsys.readouterr().err


def test_the_tabletop_suite_is_measured_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    played = []

    def measure(players, row, episodes, progress):
        played.append((row.split, row.task))
        return {"split": row.split, "task": row.task, "episodes": episodes, "success_rate": 1.0, "mean_duration": 2.0}

    monkeypatch.setattr("ros_rl.learning.tabletop_bench.measure", measure)
    out = tmp_path / "tabletop.json"
    words = ["bench", "tabletop", "--tasks", "lift,slide", "--episodes", "2", "--out", str(out)]
    assert main([*words, "--splits", "train"]) == 0
    assert "| `lift` | 100% of 2 | 2.0 s |" in capsys.readouterr().out
    assert main([*words, "--splits", "train, unseen_pairings", "--json"]) == 0
    assert played == [("train", "lift"), ("train", "slide"), ("unseen_pairings", "lift")]
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())
    assert main([*words, "--policy", "tabletop_blocks"]) == 2
    assert "holds figures of 2 episodes with scripted experts; name another file" in capsys.readouterr().err
    out.write_text(json.dumps({"policy": "tabletop_blocks", "episodes": 2, "digest": "of before", "rows": []}))
    assert main([*words, "--policy", "tabletop_blocks"]) == 2
    assert "holds figures of tabletop_blocks with other weights; name another file" in capsys.readouterr().err
    out.write_text(json.dumps({"policy": "tabletop_blocks", "episodes": 2, "tokens": "mode", "rows": []}))
    assert main([*words, "--policy", "tabletop_blocks"]) == 2
    assert "with tokens chosen by mode, not None; name another file" in capsys.readouterr().err
    out.write_text("[]")
    assert main(words) == 2
    assert "does not hold figures of this bench" in capsys.readouterr().err
    assert main(["bench", "tabletop", "--splits", "test"]) == 2
    assert main(["bench", "tabletop", "--episodes", "0"]) == 2


@pytest.mark.usefixtures("domain")
def test_the_loop_is_measured():
    pytest.importorskip("rclpy")
    command = [sys.executable, "-m", "ros_rl.cli.main", "bench", "loop", "--robot", "cartpole", "--rate", "100", "--seconds", "3", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert (figures["robot"], figures["rate"], figures["seconds"]) == ("cartpole", 100.0, 3.0)
    assert figures["ticks"] > 0 and figures["answered_share"] > 0
    assert set(figures["hops_us"]) == {"observation→policy", "policy→safety", "safety→command"}
    assert all(set(hop) == {"p50", "p99", "max", "bare_p50", "ratio"} for hop in figures["hops_us"].values())
    assert len(numbers(figures)) > 20
    assert all(math.isfinite(number) and number >= 0 for number in numbers(figures))


def test_a_machine_too_busy_for_a_single_answer_is_one_line(monkeypatch, capsys):
    bench = pytest.importorskip("ros_rl.nodes.bench")
    silent = bench.Trace()
    silent("observation", 0.0)
    monkeypatch.setattr(bench, "start_ros", lambda: None)
    monkeypatch.setattr(bench.rclpy, "shutdown", lambda: None)
    monkeypatch.setattr(bench, "bare_loop", lambda spec, seconds: silent)
    monkeypatch.setattr(bench, "stack_loop", lambda described, seconds: (silent, 0, 0))
    assert main(["bench", "loop", "--robot", "cartpole", "--rate", "100", "--seconds", "1"]) == 1
    error = capsys.readouterr().err
    assert "no observation was answered by a command within 1 s at 100 Hz; take longer" in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loop", "--robot", "cartpol"], "unknown robot 'cartpol', did you mean 'cartpole'?"),
        (["loop", "--rate", "3000"], "--rate must be at most 2000 Hz and --seconds above 0 and below 3600, got 3000 and 20"),
        (["loop", "--seconds", "0"], "--seconds above 0 and below 3600"),
        (["walk", "--minutes", "0"], "--minutes must be above 0 and at most 600, --seed not negative, got 0 and 0"),
        (["walk", "--push-speed", "-1"], "--push-every must be from 0 to 3600 s and --push-speed from 0 to 10 m/s, got 10 and -1"),
        (["walk", "--recovery", "go1_stand"], "--recovery has no effect without --filter recovery; leave it out"),
        (["walk", "--film", "."], "--film . is a folder, it must be a file"),
        (["walk", "--robot", "quadrupet"], "unknown robot 'quadrupet', did you mean 'quadruped'?"),
        (["record", "--fps", "0"], "--fps must be from 1 to 240 and --seconds from 1 to 3600, got 0 and 60"),
        (["record", "--folder", "."], "--folder . is there already; choose a new folder"),
        (["record", "--robot", "cartpol"], "unknown robot 'cartpol', did you mean 'cartpole'?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, words, message):
    pytest.importorskip("rclpy")
    monkeypatch.setenv("ROS_DOMAIN_ID", "1")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("domain")
def test_a_walk_is_measured_and_filmed(tmp_path):
    pytest.importorskip("rclpy")
    out, film = tmp_path / "results" / "walk.json", tmp_path / "walk.mp4"
    words = ["bench", "walk", "--minutes", "0.08", "--push-every", "1", "--json", "--out", str(out), "--film", str(film)]
    result = subprocess.run([sys.executable, "-m", "ros_rl.cli.main", *words], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert json.loads(out.read_text()) == figures
    assert (figures["robot"], figures["policy"], figures["filter"], figures["rate"]) == ("quadruped", "quadruped_walk", "none", 200.0)
    assert figures["ticks"] > 0 and set(figures["cpu"]) == {"hardware_node", "safety_node", "policy_node", "task_node"}
    assert film.read_bytes()[4:8] == b"ftyp"


@pytest.mark.usefixtures("domain")
def test_a_recording_is_measured(tmp_path):
    pytest.importorskip("rclpy")
    words = ["bench", "record", "--seconds", "2", "--fps", "10", "--folder", str(tmp_path / "set"), "--json"]
    result = subprocess.run([sys.executable, "-m", "ros_rl.cli.main", *words], capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert set(figures["sources"]) == {"joint_states", "action", "policy", "wrist", "front"}
    assert figures["sources"]["wrist"]["asked"] == figures["sources"]["front"]["asked"] == 20
    assert figures["sources"]["front"]["delivered"] > 0 and figures["rows"] > 0
    assert set(figures["cpu"]) == {"cameras", "hardware_node", "safety_node", "policy_node", "recorder_node"}
    assert all(math.isfinite(number) and number >= 0 for number in numbers(figures))
    assert (tmp_path / "set/meta/info.json").is_file()


def test_an_act_is_measured_for_every_method(capsys, monkeypatch):
    from ros_rl.learning import act_time

    monkeypatch.setattr(act_time, "_ROUNDS", 2)
    monkeypatch.setattr(act_time, "_SECONDS", 1e-4)
    for robot in ("cartpole", "quadrotor_wrench", "quadruped"):
        assert main(["bench", "safety", "--robot", robot, "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert {batch: set(rows) for batch, rows in figures["batches"].items()} == {
            "1": {"sac", "autosafe", "simplex", "cbf_qp"},
            "256": {"sac", "autosafe", "simplex", "cbf_qp", "cbf_exact"},
        }
        assert all(math.isfinite(number) and number > 0 for number in numbers(figures["batches"]))
        assert figures["batches"]["1"]["sac"]["ratio"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["safety", "--robot", "arm"], "there is no safe prior; 'ros-rl safety certify' makes one"),
        (["safety", "--hidden", "0"], "--hidden must be at least 1, got 0"),
        (["autosafe", "--task", "cartpol"], "unknown task 'cartpol', did you mean 'cartpole'?"),
        (["autosafe", "--methods", "sack"], "unknown method 'sack', did you mean 'sac'?"),
        (["autosafe", "--only-trained", "--folder", "/nonexistent"], "/nonexistent/cartpole holds no finished method"),
    ],
)
def test_bad_input_to_the_safety_benches_is_one_line_and_exit_code_2(capsys, words, message):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_ppo_is_measured(tmp_path, capsys, monkeypatch):
    from ros_rl.learning import ppo

    short = ppo.PpoArgs
    monkeypatch.setattr(ppo, "PpoArgs", lambda target_kl: short(copies=2, rollout=8, batch=8, epochs=1, target_kl=target_kl))
    out = tmp_path / "bench_ppo.json"
    assert main(["bench", "ppo", "--turns", "1", "--out", str(out), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == figures
    assert all(math.isfinite(number) and number > 0 for number in numbers(figures["ratio"]))
    assert main(["bench", "ppo", "--turns", "0"]) == 2
    assert "--turns must be from 1 to 10000" in capsys.readouterr().err


def test_a_vla_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grpo_bench, "subject", lambda: (token_samples.make_model(), [token_samples.make_task(tmp_path)]))
    words, out = ["--turns", "1", "--iterations", "1", "--groups", "1"], tmp_path / "bench_vla.json"
    assert main(["bench", "vla", *words, "--out", str(out), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == figures
    assert set(figures["batches"]) == {"1", "16"} and figures["tokens"] == 40 and figures["parameters"] < 8e6
    assert all(math.isfinite(number) and number > 0 for number in numbers(figures["batches"]))
    assert figures["grpo"]["episodes"] == 8 and figures["grpo"]["episodes_per_minute"]["rollouts"] > 0
    assert main(["bench", "vla", *words]) == 0
    said = capsys.readouterr().out
    assert "GRPO  8 episodes, " in said and " episodes a minute, " in said and "simulate " in said
    for option in ("--turns", "--iterations", "--groups"):
        assert main(["bench", "vla", option, "0"]) == 2
        assert "--turns, --iterations and --groups must be from 1 to 10000" in capsys.readouterr().err
    assert main(["bench", "vla", "--out", str(tmp_path)]) == 2
