"""Tests of ros_rl.learning.minimal_weight: weights of policies as they come from the networks, on the glucose plant."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.learning import ladder, minimal_weight
from ros_rl.learning.goal_tasks import TASKS
from ros_rl.learning.ladder import Experiment, prior_of
from ros_rl.learning.minimal_weight import compare
from ros_rl.learning.training import EVALUATION, inputs_of, look
from ros_rl.safety.prior import save_prior
from ros_rl.sim.goals import interface

TASK = TASKS["glucose"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Networks as they are drawn, under the name of a training, and short episodes."""
    monkeypatch.setattr(TASK.environments["nominal"], "episode_steps", 10)
    monkeypatch.setattr(interface, "START_RADIUS", 1.0)  # near the boundary the weight is needed
    prior = prior_of(TASK, tmp_path)
    for method in ("autosafe", "linear", "sac"):
        experiment = Experiment(TASK, method, 1, 0, prior)
        ladder.save_networks(tmp_path / "glucose" / f"{method}.safetensors", experiment.agent)
        found = {"steps": TASK.steps, "seeds": experiment.seeds, "prior": prior.digest()}
        (tmp_path / "glucose" / f"{method}.json").write_text(json.dumps(found))
    return tmp_path


def test_every_level_has_both_weights_and_the_noise(folder):
    found = compare(TASK, "linear", folder, 16, episodes=4)
    assert list(found) == list(TASK.goals)
    for row in found.values():
        assert 0.0 < row["weight"] < 1.0  # 1 - margin, as p is 0
        assert 0.0 <= row["minimal"] < row["weight"]
        assert 0.0 <= row["needed"] <= 1.0 and row["noise"] <= row["needed"]
    assert found["high"]["minimal"] > 0.0 and found["high"]["needed"] > 0.0
    assert compare(TASK, "linear", folder, 16, episodes=4) == found


def test_the_estimate_is_that_of_the_policy_before_mixing(folder, monkeypatch):
    """Its actions spread as those of the same networks without a mixture do, and not (1 - λ) times as much."""
    seen = []
    monkeypatch.setattr(minimal_weight, "minimal_weight_of", lambda prior, states, actions: seen.append(actions) or np.zeros(len(states)))
    monkeypatch.setattr(TASK.environments["nominal"], "episode_steps", 1)
    row = compare(TASK, "linear", folder, 2000, episodes=1)
    assert seen[0].shape == (3 * 8, 2000, 1)  # eight estimates for each of three runs
    experiment = Experiment(TASK, "linear", 1, 0, prior_of(TASK, folder))
    experiment.agent.sharpness = None
    environment = TASK.environments["nominal"](experiment.goals, experiment.prior)
    environment.reset(range(3), [[0, EVALUATION, 0]] * 3)
    inputs = [part.expand(3, 2000, *part.shape[2:]) for part in inputs_of(look(environment, experiment.prior), 3)]
    noise = torch.randn(3, 2000, 1, generator=torch.Generator().manual_seed(9))
    alone = experiment.agent.act(*inputs, noise).action.detach().numpy()[..., 0].std(axis=1)
    np.testing.assert_allclose(seen[0].std(axis=1).reshape(3, 8), np.tile(alone[:, None], 8), rtol=0.08)
    assert all(level["weight"] > 0.15 for level in row.values())  # by which it would be less


def test_more_samples_make_less_noise(folder):
    few, many = (compare(TASK, "linear", folder, samples, episodes=4)["high"] for samples in (2, 64))
    assert 0.0 < many["noise"] < few["noise"]
    assert 0.0 < many["noise_where_needed"] < few["noise_where_needed"]
    assert many["noise_where_needed"] > many["noise"]  # which counts the steps that need none as well


def test_where_nothing_is_needed_there_is_no_noise_to_tell(folder, monkeypatch):
    monkeypatch.setattr(interface, "START_RADIUS", 0.01)
    row = compare(TASK, "linear", folder, 16, episodes=1)["low"]
    assert (row["minimal"], row["needed"], row["noise_where_needed"]) == (0.0, 0.0, None)


def test_what_is_not_trained_or_mixes_nothing_is_refused(folder):
    with pytest.raises(UserError, match=r"fixed_full\.safetensors is not there; train it with"):
        compare(TASK, "fixed_full", folder, 4)
    with pytest.raises(UserError, match="sac mixes no safe action"):
        compare(TASK, "sac", folder, 4)
    save_prior(folder / "glucose" / "prior.safetensors", replace(prior_of(TASK, folder), sharpness_bound=1.0))
    with pytest.raises(UserError, match=r"autosafe\.json: trained with the safe prior"):
        compare(TASK, "autosafe", folder, 4)
