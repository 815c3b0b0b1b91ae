"""Tests of ros_rl.learning.grpo_bench: what is counted, that the parts are told apart, and that all episodes are learned from."""

from types import SimpleNamespace

import pytest
from token_samples import make_model, make_task

from ros_rl.learning import grpo_bench
from ros_rl.learning.grpo import GrpoArgs
from ros_rl.learning.grpo_bench import Stopwatch, figures, measure, subject
from ros_rl.learning.token_rollout import TokenWorld
from ros_rl.policies.vla import digest
from ros_rl.robots.spec import load_robot

ARGS = GrpoArgs(iterations=2, group=3, groups=2, epochs=1, copies=4)


class Clock:
    """Stands still but for what the parts of an iteration take."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def spend(self, monkeypatch, owner, name, seconds):
        method = getattr(owner, name)

        def slow(*args, **kwargs):
            self.now += seconds
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, slow)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return make_task(tmp_path_factory.mktemp("world"))


def test_each_part_is_charged_with_its_own_time(task, monkeypatch):
    """Episodes of 0.6 s and chunks of 0.2 s, four copies: a group of three is decided at most three times, together."""
    clock, model = Clock(), make_model()
    monkeypatch.setattr(grpo_bench, "time", clock)
    clock.spend(monkeypatch, grpo_bench.Grpo, "prepare", 1.0)
    clock.spend(monkeypatch, grpo_bench.Grpo, "learn", 10.0)
    clock.spend(monkeypatch, grpo_bench.Grpo, "sample", 100.0)
    clock.spend(monkeypatch, type(model.network), "decode", 2.0)
    for name, seconds in (("images", 3.0), ("play", 4.0)):
        clock.spend(monkeypatch, TokenWorld, name, seconds)
    turns = []
    found = measure(model, [task], ARGS, lambda: turns.append(clock.now))
    assert len(turns) == 3
    decided = found["seconds"]["decode"] / 2.0
    assert 4 <= decided <= 12 and decided == int(decided)
    assert found["seconds"] == {
        "simulate": 4 * decided,
        "render": 3 * decided,
        "decode": 2 * decided,
        "learn": 2 * (1.0 + 10.0),
        "other": 2 * 100.0,
    }
    whole = turns[-1] - turns[0]
    assert sum(found["seconds"].values()) == whole and sum(found["shares"].values()) == pytest.approx(1, abs=5e-4)
    assert found["episodes"] == 12
    assert found["episodes_per_minute"] == {
        "rollouts": pytest.approx(60 * 12 / (whole - 22), abs=0.05),
        "with_learning": pytest.approx(60 * 12 / whole, abs=0.05),
    }


def test_every_episode_is_counted_and_learned_from(task, monkeypatch):
    model, seen = make_model(), []
    before = digest(model.network)
    learn = grpo_bench.Grpo.learn

    def watched(learner, batch, decisions, level, weight):
        seen.append((len(batch), len(decisions.tokens), int((level != 0).any(1).sum()), learner.ticks))
        return learn(learner, batch, decisions, level, weight)

    monkeypatch.setattr(grpo_bench.Grpo, "learn", watched)
    found = measure(model, [task], ARGS)
    assert [row[0] for row in seen] == [row[2] for row in seen] == [6, 6, 6]  # groups that all failed, too
    assert found["decisions"] == seen[1][1] + seen[2][1]
    assert found["control_periods"] == seen[2][3] - seen[0][3]
    assert found["tasks"] == ["turn"] and list(found["images"]) == ["small"]
    assert digest(model.network) != before


def test_a_method_that_fails_is_timed_and_still_fails(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(grpo_bench, "time", clock)

    def fail():
        clock.now += 5.0
        raise ValueError("no")

    owner, watch = SimpleNamespace(fail=fail), Stopwatch()
    watch.on("render", owner, "fail")
    with pytest.raises(ValueError, match="no"):
        owner.fail()
    assert watch.seconds == {"simulate": 0.0, "render": 5.0, "decode": 0.0, "learn": 0.0}


def test_shares_are_of_the_whole():
    found = figures({"simulate": 5.0, "render": 2.0, "decode": 1.0, "learn": 1.5}, 10.0, 17)
    assert found["shares"] == {"simulate": 0.5, "render": 0.2, "decode": 0.1, "learn": 0.15, "other": 0.05}
    assert found["seconds"]["other"] == 0.5
    assert found["episodes_per_minute"] == {"rollouts": 120.0, "with_learning": 102.0}


def test_the_subject_has_the_default_shape_and_reads_the_cameras_of_the_suite():
    model, tasks = subject()
    assert [task.name for task in tasks] == ["press_button:green", "press_button:yellow"] and model.spec.cameras == ("front", "hand")
    config = model.settings.embedded
    assert config is not None and (config.width, config.layers, config.heads, config.image) == (128, 3, 4, [64, 64])
    assert all(set(task.instruction.split()) <= set(config.words) for task in tasks)
    assert model.spec.joint_names == load_robot("arm").joint_names
