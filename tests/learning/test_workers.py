"""Two processes that torchrun starts learn as one with both their batches would."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from token_samples import make_model, make_task
from two_processes import BC, GRPO, learn, mixed, state_of

from ros_rl.learning import bc, workers
from ros_rl.learning.bc import Cloner
from ros_rl.learning.demonstrations import Demonstrations, Episode, Sampling, Source
from ros_rl.learning.grpo import Grpo
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.vla import VlaModel, digest
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("arm")


def make_demonstrations(folder):
    Source("arm", {"small": (32, 32)}, Sampling(("small",), (32, 32), 2, 0.1)).mark(folder)
    draw = np.random.default_rng(0)
    for number in range(2):
        position = ROBOT.home + 0.05 * draw.normal(size=(10, len(ROBOT.home)))
        waypoints = np.repeat(position[:, None, :8], 2, axis=1) + 0.05 * draw.normal(size=(10, 2, 8))
        images = draw.integers(0, 256, (10, 1, 32, 32, 3)).astype(np.uint8)
        Episode("turn left", images, position, waypoints).save(folder / f"{number}.safetensors")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs both processes; returns their folder and what they printed."""
    folder = tmp_path_factory.mktemp("run")
    make_demonstrations(folder / "demos")
    for name in ("task0", "task1", "task"):
        (folder / name).mkdir()
    make_task(folder / "task")
    shape = ["--grpo.iterations", "1", "--grpo.group", "2", "--grpo.groups", "1", "--grpo.copies", "2"]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
        *(str(Path(__file__).with_name("two_processes.py")), str(folder)),
        *("train", "--demos", str(folder / "demos"), "--out", str(folder / "vla"), "--bc.steps", "2", "--bc.batch", "4", "--"),
        *("--policy", str(folder / "vla"), "--out", str(folder / "better"), "--tasks", str(folder / "task/turn.yaml"), *shape),
    ]
    path = os.pathsep.join([str(Path(__file__).parents[1] / "data"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done


def states_of(run, what):
    one, other = (load_file(run[0] / f"{what}{rank}.safetensors") for rank in (0, 1))
    assert one.keys() == other.keys() and any(name.startswith("gradient.") for name in one)
    for name, value in one.items():
        assert torch.equal(value, other[name]), name  # bit for bit: else they drift apart
    return one


def assert_close(found, expected):
    """Weights are compared where the gradient is more than rounding: the first step of Adam has its sign, and one size."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        gradient = expected.get(f"gradient.{name}")
        counts = torch.ones_like(value, dtype=torch.bool) if gradient is None else gradient.abs() > 1e-6
        torch.testing.assert_close(found[name][counts], value[counts], rtol=1e-3, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_an_update_of_behaviour_cloning_is_that_of_both_batches_together(run, monkeypatch):
    model, data = make_model(seed=0), Demonstrations.load(run[0] / "demos")
    chosen = np.concatenate([np.random.default_rng([BC.seed, rank, 0]).integers(len(data), size=BC.batch) for rank in (0, 1)])
    both = Cloner(model, data, replace(BC, batch=len(chosen)))
    draw = SimpleNamespace(integers=lambda high, size: chosen, normal=np.random.default_rng(0).normal)
    monkeypatch.setattr(bc.np.random, "default_rng", lambda seed: draw)
    both.update()
    assert_close(states_of(run, "bc"), state_of(model.network))


def test_an_update_of_grpo_is_that_of_all_groups_together(run):
    """The processes have unlike numbers of tokens: each token must count the same."""
    task, args = make_task(run[0] / "task"), replace(GRPO, seed=1)
    traces = []
    for rank in (0, 1):
        sampler = Grpo(make_model(), [task], args, (rank, 2))
        found = mixed(sampler.sample(), rank)
        for trace in found:
            trace.request = replace(trace.request, group=trace.request.group + 10 * rank)
        traces += found
        sampler.rollouts.close()
    learner = Grpo(make_model(), [task], args)
    counts = [sum(len(trace.tokens) for trace in part) for part in (traces[:4], traces[4:6])]
    assert counts[0] != counts[1] > 0
    learn(learner, traces)
    learner.rollouts.close()
    assert_close(states_of(run, "grpo"), state_of(learner.model.network))


def test_all_processes_tell_the_same_agreement(run):
    """One of them has groups in one part only."""
    one, other = ((run[0] / f"agreement{rank}").read_text() for rank in (0, 1))
    assert one == other and -1.0 <= float(one) <= 1.0


def test_a_process_without_groups_to_learn_from_follows_the_others(run):
    before, after = states_of(run, "grpo"), states_of(run, "later")
    assert any(not torch.equal(value, after[name]) for name, value in before.items() if not name.startswith("gradient."))


def test_the_commands_write_a_bundle_once(run):
    folder, done = run
    for name, method in (("vla", "bc"), ("better", "grpo")):
        assert done.stdout.count(f"wrote {folder / name}\n") == 1
        bundle = load_bundle(folder / name)
        assert bundle.method == method and digest(VlaModel.from_bundle(bundle).network) == bundle.metrics["digest"]
    assert done.stderr.count("hardly moves") <= 1
    assert len((folder / "better.jsonl").read_text().splitlines()) == 1


def test_one_process_needs_nothing_of_it(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert workers.join() == (0, 1) and workers.mean(2.5) == 2.5
    assert not torch.distributed.is_initialized()
