"""Tests of ros_rl.policies.learned: a bundle does on the robot what was trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.learning.goal_tasks import TASKS
from ros_rl.learning.sac import Sac, SacArgs
from ros_rl.learning.training import streams_of
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, load_bundle, save_bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.learned import prior_tensors
from ros_rl.robots.spec import load_robot
from ros_rl.safety.autosafe import Sharpness
from ros_rl.safety.certify import certify_robot
from ros_rl.sim.goals import cartpole, quadrotor
from ros_rl.sim.goals.interface import observe

ROBOT = load_robot("cartpole", cartpole.RATE)
PRIOR = certify_robot("cartpole", cartpole.RATE).prior
SHARPNESS = Sharpness(0.0, PRIOR.sharpness_bound)
TARGET = np.array([0.3])


def agent_of(sharpness: Sharpness | None) -> Sac:
    agent = Sac(SacArgs(hidden=(16, 16)), 5, 1, streams_of([3]), sharpness)
    if sharpness is not None:
        with torch.no_grad():
            agent.actor.layers.weights[-1] *= 20.0  # so that the sharpness depends on the state
    return agent


def bundle_of(agent: Sac) -> Bundle:
    keys = (ObservationKey("joint_position", (2,)), ObservationKey("joint_velocity", (2,)))
    spec = PolicySpec("cartpole", ("slider",), keys, cartpole.RATE, command_mode="effort")
    settings = {"prior": PRIOR.description(), "target": TARGET.tolist(), "reach": cartpole.REACH}
    if agent.sharpness is not None:
        settings["sharpness"] = [agent.sharpness.low, agent.sharpness.high]
    tensors = {f"actor.{name}": value.numpy() for name, value in agent.actor.state_dict().items()}
    return Bundle("test", "autosafe", "autosafe", spec, settings, tensors | {"scale": cartpole.SCALE, **prior_tensors(PRIOR)})


def seen(state: np.ndarray) -> Observation:
    return Observation(0.0, state[[0, 2]], state[[1, 3]], np.zeros(2))


def states(count: int) -> np.ndarray:
    draw = np.random.default_rng(0)
    directions = draw.normal(size=(count, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.linalg.solve(np.linalg.cholesky(PRIOR.P).T, directions.T).T * draw.uniform(0.0, 1.3, (count, 1))


@pytest.mark.parametrize("sharpness", [None, SHARPNESS])
def test_a_bundle_acts_as_the_agent_that_it_was_made_of(sharpness, tmp_path):
    agent = agent_of(sharpness)
    save_bundle(tmp_path / "test", bundle_of(agent))
    policy = load_policy(load_bundle(tmp_path / "test"), ROBOT)
    inputs = (
        torch.from_numpy(value.astype(np.float32))[None]
        for value in (observe(states(50), cartpole.SCALE, TARGET, cartpole.REACH), PRIOR.margin(states(50)), PRIOR.safe_action(states(50)))
    )
    with torch.no_grad():
        trained = agent.act(*inputs, None)
    expected = trained.action[0].numpy()
    np.testing.assert_allclose(policy.actions(states(50)), expected, atol=2e-6)
    for index, state in enumerate(states(50)):
        chunk = policy.act(seen(state))
        np.testing.assert_allclose(chunk.values[0], 20.0 * expected[index], atol=5e-5)
        if sharpness is not None:
            report = policy.report()
            assert report["weight"] == pytest.approx(float(trained.weight[0, index]), abs=2e-6)
            if report["radius"] < 1.0:
                assert report["sharpness"] == pytest.approx(float(trained.sharpness[0, index]), abs=1e-5)
            assert report["radius"] == pytest.approx(PRIOR.radius(state), abs=1e-12)


def test_on_the_boundary_and_outside_the_command_is_the_safe_one():
    policy = load_policy(bundle_of(agent_of(SHARPNESS)), ROBOT)
    outside = states(200)[PRIOR.radius(states(200)) >= 1.0]
    assert policy.report() == {}
    for count, state in enumerate(outside, 1):
        np.testing.assert_allclose(policy.act(seen(state)).values[0], 20.0 * PRIOR.safe_action(state), rtol=1e-14)
        assert (policy.report()["weight"], policy.report()["steps_outside"]) == (1.0, count)
        assert "sharpness" not in policy.report()
    policy.reset(1, "")
    assert policy.report() == {}


@pytest.mark.parametrize("far", [1e6, -1e6])
def test_far_outside_the_action_is_the_safe_one_for_one_state_and_for_many(far):
    """However the network's numbers explode there."""
    policy = load_policy(bundle_of(agent_of(SHARPNESS)), ROBOT)
    found = np.vstack([far * np.eye(4), np.full((1, 4), far)])
    expected = np.clip(found @ PRIOR.F.T / 20.0, -1.0, 1.0)
    np.testing.assert_array_equal(policy.actions(found), expected)
    for state, action in zip(found, expected, strict=True):
        np.testing.assert_array_equal(policy.action(state), action)


@pytest.mark.parametrize("bounds", [[0.0, 50.0], [0.0, PRIOR.sharpness_bound + 0.01], [-1.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
def test_a_sharpness_that_the_prior_does_not_allow_is_refused(bounds):
    bundle = bundle_of(agent_of(SHARPNESS))
    with pytest.raises(UserError, match=f"bundle 'test': sharpness must rise from 0 or more to at most {PRIOR.sharpness_bound:g}"):
        load_policy(replace(bundle, parameters=bundle.parameters | {"sharpness": bounds}), ROBOT)


def test_a_state_that_is_no_number_is_refused():
    with pytest.raises(UserError, match="'joint_velocity' is not finite"):
        load_policy(bundle_of(agent_of(SHARPNESS)), ROBOT).act(seen(np.array([0.0, np.nan, 0.0, 0.0])))


def test_a_bundle_whose_prior_was_changed_is_refused():
    bundle = bundle_of(agent_of(SHARPNESS))
    changed = bundle.tensors | {"prior.F": 1.01 * bundle.tensors["prior.F"]}
    with pytest.raises(UserError, match="bundle 'test': safe prior: its digest is"):
        load_policy(replace(bundle, tensors=changed), ROBOT)


def test_a_prior_for_another_rate_or_other_joints_is_refused():
    bundle = bundle_of(agent_of(SHARPNESS))
    with pytest.raises(UserError, match="for 50 Hz, the policy acts at 25 Hz"):
        load_policy(replace(bundle, spec=replace(bundle.spec, rate=25.0)), ROBOT)
    other = replace(PRIOR, action_names=("motor",))
    with pytest.raises(UserError, match="acts on motor, the policy commands slider"):
        load_policy(replace(bundle, parameters=bundle.parameters | {"prior": other.description()}), ROBOT)


def test_a_bundle_without_its_network_is_refused():
    bundle = bundle_of(agent_of(SHARPNESS))
    with pytest.raises(UserError, match=r"has no tensor 'actor\.layers\.biases\.1'"):
        load_policy(replace(bundle, tensors={k: v for k, v in bundle.tensors.items() if k != "actor.layers.biases.1"}), ROBOT)
    with pytest.raises(UserError, match=r"has no tensor 'actor\.layers\.weights\.0'"):
        load_policy(replace(bundle, tensors={k: v for k, v in bundle.tensors.items() if not k.startswith("actor.")}), ROBOT)


def test_the_quadrotor_that_ships_hovers_at_its_goal_and_never_leaves_its_box():
    policy = load_policy(load_bundle("quadrotor_autosafe"), load_robot("quadrotor_wrench"))
    goal = TASKS["quadrotor"].goals["mid"]
    environment = quadrotor.QuadrotorGoal(np.full(16, goal), policy.prior)
    environment.reset(range(16), [[7, copy] for copy in range(16)])
    for step in range(environment.episode_steps):
        outcome = environment.step(policy.actions(environment.safety_state))
        assert not outcome.violation.any(), step
    off = environment.safety_state[:, :3] - [goal, 0.0, 0.0]
    assert (np.linalg.norm(off, axis=1) < 0.15).all()
