"""Rollouts on Ray are those of this process, with a stand-in for the package that runs its workers here."""

import pickle
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from token_samples import make_model, make_task

from ros_rl.errors import UserError
from ros_rl.learning import ray_rollouts
from ros_rl.learning.grpo import Grpo, GrpoArgs

ARGS = GrpoArgs(group=5, groups=2, epochs=1, minibatches=1, learning_rate=1e-2, copies=4)


def sent(value):
    """Returns what arrives in another process."""
    return pickle.loads(pickle.dumps(value))


class RayError(Exception):
    """What Ray raises."""


class RayTaskError(RayError):
    """What Ray raises for an error in a worker's own code."""


class StandIn(ModuleType):
    """What of Ray is used, on a cluster of three CPUs: all that passes between processes is copied, and calls wait until they are got."""

    def __init__(self):
        super().__init__("ray")
        self.__spec__ = SimpleNamespace(name="ray")
        self.started, self.alive, self.asked = False, [], []
        self.free, self.stuck = 3.0, 0
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def is_initialized(self):
        return self.started

    def init(self, **options):
        self.started = True

    def cluster_resources(self):
        return {"CPU": 4.0}

    def available_resources(self):  # what has none of something does not name it
        return {"CPU": self.free} if self.free else {}

    def wait(self, promises, num_returns, timeout):
        assert num_returns == len(promises) and timeout > 10
        return promises[self.stuck :], promises[: self.stuck]

    def remote(self, num_cpus):
        def actor(cls):
            return SimpleNamespace(remote=lambda *args: self._actor(cls(*sent(args))))

        return actor

    def _actor(self, worker):
        def run(weights, task, requests, temperature):
            self.asked.append((worker, len(requests)))
            arguments = sent((weights(), task, requests, temperature))
            return lambda: worker.run(*arguments)

        self.alive.append(SimpleNamespace(run=SimpleNamespace(remote=run), ready=SimpleNamespace(remote=lambda: worker.ready)))
        return self.alive[-1]

    def put(self, value):
        kept = sent(value)
        return lambda: kept

    def get(self, promises):
        return [sent(promise()) for promise in promises]

    def kill(self, worker):
        self.alive.remove(worker)


@pytest.fixture
def cluster(monkeypatch):
    made = StandIn()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def trained(task, scale):
    """Runs two iterations; returns the episodes and figures of each, and the weights in the end."""
    learner = Grpo(make_model(), [task], replace(ARGS, scale=scale))
    found = []
    for _ in range(2):
        traces = learner.sample()
        for number, trace in enumerate(traces):
            trace.success = number % 2 == 0
        batch, decisions, level, weight, figures = learner.prepare(traces)
        found.append((traces, figures | learner.learn(batch, decisions, level, weight)))
        learner.iteration += 1
    learner.rollouts.close()
    return found, learner.model.network.state_dict()


def test_an_iteration_on_ray_is_that_of_this_process(tmp_path, monkeypatch, cluster):
    """Five episodes on three workers; in the second iteration the workers must have the new weights."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # a worker in this process would change it for all tests
    task = make_task(tmp_path)
    (here, weights), (there, others) = trained(task, "local"), trained(task, "ray")
    for (ours, figures), (theirs, same) in zip(here, there, strict=True):
        assert [trace.request.stream for trace in theirs] == [trace.request.stream for trace in ours]
        for one, other in zip(ours, theirs, strict=True):
            for name in ("tokens", "images", "position"):
                assert np.array_equal(getattr(one, name), getattr(other, name)), name
            for name in ("log_prob", "entropy"):  # sums over batches of other sizes round differently
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)
            assert (one.seconds, one.terminated, one.truncated) == (other.seconds, other.terminated, other.truncated)
        assert same == pytest.approx(figures, rel=1e-3, abs=1e-4)
    for name, value in weights.items():
        assert float((others[name] - value).abs().mean()) < 1e-4, name
    assert [count for _, count in cluster.asked] == 4 * [2, 2, 1] and len({id(worker) for worker, _ in cluster.asked}) == 3
    assert not cluster.alive


def test_workers_take_the_free_cpus_and_say_when_there_is_none(tmp_path, monkeypatch, cluster):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    task = make_task(tmp_path)
    cluster.free = 2.0
    pool = ray_rollouts.Pool(make_model(), [task], 4)
    assert len(cluster.alive) == 2
    pool.close()
    cluster.stuck = 1
    with pytest.raises(UserError, match="1 of 2 workers on Ray did not start within 180 s; something else may have taken their CPUs"):
        ray_rollouts.Pool(make_model(), [task], 4)
    assert not cluster.alive
    cluster.free = 0.0
    with pytest.raises(UserError, match="no CPU of the Ray cluster is free, of 4; wait for what runs there"):
        ray_rollouts.Pool(make_model(), [task], 4)


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            RayError("The actor died unexpectedly.\n\tclass_name: Worker\n"),
            ConnectionError,
            r"^a worker on Ray is lost \(The actor died unexp.*",
        ),
        (RayTaskError("KeyError: 'turn'"), RayTaskError, "KeyError"),
    ],
)
def test_a_lost_worker_is_said_in_one_line(tmp_path, monkeypatch, cluster, error, raised, message):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    learner = Grpo(make_model(), [make_task(tmp_path)], replace(ARGS, scale="ray"))

    def fail(promises):
        raise error

    monkeypatch.setattr(cluster, "get", fail)
    with pytest.raises(raised, match=message) as caught:
        learner.sample()
    assert "\n" not in str(caught.value)
    learner.rollouts.close()


def test_several_learners_do_not_share_a_cluster(tmp_path, cluster):
    """Each would wait for the CPUs that the others have, and the others for it."""
    with pytest.raises(UserError, match=r"--grpo.scale ray is for one process, got 2"):
        Grpo(make_model(), [make_task(tmp_path)], replace(ARGS, scale="ray"), (1, 2))
    assert not cluster.started


def test_without_the_package_it_says_what_to_install(monkeypatch):
    model = make_model()
    monkeypatch.setattr(ray_rollouts.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="run: pip install ray"):
        ray_rollouts.Pool(model, [], 4)
