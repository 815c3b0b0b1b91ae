"""Tests of ros_rl.learning.cpo: the constrained step against a general solver, the Fisher matrix against autograd."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from falling_point import FallingPoint
from scipy.optimize import minimize
from torch.distributions import Independent, Normal, kl_divergence

from ros_rl.learning import cpo
from ros_rl.learning.cpo import Cpo, CpoArgs, conjugate_gradient, constrained_step
from ros_rl.learning.mlp import Mlp, Parameters
from ros_rl.learning.ppo import PpoArgs

ARGS = PpoArgs(copies=4, rollout=64, epochs=2, batch=64, hidden=(8, 8))


def problem(seed: int, excess: float):
    draw = np.random.default_rng(seed)
    root = draw.standard_normal((4, 4))
    matrix = root @ root.T + np.eye(4)
    g, b = draw.standard_normal((2, 4))
    return matrix, g, b, np.linalg.solve(matrix, g), np.linalg.solve(matrix, b), excess


@pytest.mark.parametrize("excess", [-0.5, -0.05, -0.01, 0.0, 0.01, 0.05])
@pytest.mark.parametrize("seed", range(6))
def test_the_step_is_the_best_one_that_is_allowed(seed, excess):
    matrix, g, b, hg, hb, c = problem(seed, excess)
    radius = 0.01
    step = constrained_step(g, b, hg, hb, c, radius)
    assert step @ matrix @ step / 2 <= radius * (1 + 1e-6)
    if c > 0 and c**2 / (b @ hb) > 2 * radius:  # nothing is feasible: the step of steepest descent of the cost
        np.testing.assert_allclose(step, -np.sqrt(2 * radius / (b @ hb)) * hb)
        return
    assert c + b @ step <= 1e-6
    allowed = [{"type": "ineq", "fun": lambda x: radius - x @ matrix @ x / 2}, {"type": "ineq", "fun": lambda x: -c - b @ x}]
    start = -max(c, 0.0) / (b @ hb) * hb
    best = minimize(
        lambda x: -(g @ x), start, jac=lambda x: -g, constraints=allowed, method="SLSQP", options={"maxiter": 500, "ftol": 1e-12}
    )
    assert g @ step == pytest.approx(-best.fun, abs=1e-5)


def test_without_a_gradient_of_the_cost_it_is_the_natural_gradient_and_without_any_it_is_nothing():
    _, g, _, hg, _, _ = problem(0, 0.0)
    step = constrained_step(g, np.zeros(4), hg, np.zeros(4), 0.3, 0.01)
    np.testing.assert_allclose(step, np.sqrt(0.02 / (g @ hg)) * hg)
    assert not constrained_step(np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4), 0.3, 0.01).any()


def test_conjugate_gradient_solves():
    matrix, g, _, hg, _, _ = problem(1, 0.0)
    np.testing.assert_allclose(conjugate_gradient(lambda x: matrix @ x, g, 10), hg, rtol=1e-8)
    assert not conjugate_gradient(lambda x: matrix @ x, np.zeros(4), 10).any()


def test_the_tangent_of_a_network_is_its_directional_derivative():
    parameters = Parameters(Mlp.size_of((3, 8, 8, 2)), 1e-3)
    draw = np.random.default_rng(0)
    network = Mlp(parameters, 0, (3, 8, 8, 2), draw, 1.0)
    rows, direction = draw.standard_normal((5, 3)).astype(np.float32), draw.standard_normal(parameters.values.size).astype(np.float32)
    found = network.tangent(network.forward(rows), direction)
    sides = []
    for sign in (1, -1):
        parameters.values[:] += np.float32(sign * 1e-2) * direction
        sides.append(network(rows))
        parameters.values[:] -= np.float32(sign * 1e-2) * direction
    np.testing.assert_allclose(found, (sides[0] - sides[1]) / 2e-2, rtol=0.02, atol=0.05)


def test_the_divergence_is_that_of_torch():
    draw = np.random.default_rng(0)
    mean, other = draw.standard_normal((2, 6, 3))
    log_std, other_log_std = draw.standard_normal((2, 3)) / 2
    first, second = (Independent(Normal(torch.tensor(m), torch.tensor(s).exp()), 1) for m, s in ((mean, log_std), (other, other_log_std)))
    assert cpo.kl_divergence(mean, log_std, other, other_log_std) == pytest.approx(kl_divergence(first, second).mean().item())


def test_a_step_raises_the_surrogate_and_keeps_within_the_region(monkeypatch):
    learner = Cpo(ARGS, FallingPoint(4), 10, 0)
    learner._collect()
    batch = learner._batch(learner._collect())
    seen = []
    step = cpo.constrained_step
    monkeypatch.setattr(cpo, "constrained_step", lambda *args: seen.append((*args, step(*args))) or seen[-1][-1])
    before, mean = learner.parameters.values.copy(), learner.actor(batch.observation).copy()
    log_std = learner.log_std.copy()
    divergence = learner._constrained_update(batch)
    assert 0.0 < divergence <= 0.01
    towards, cost, _, _, excess, radius, _ = seen[0]
    moved = learner.actor(batch.observation)
    assert cpo.kl_divergence(mean, log_std, moved, learner.log_std) == pytest.approx(divergence, rel=1e-3)
    change = np.concatenate([(learner.parameters.values - before)[: learner._actor_gradient.size], learner.log_std - log_std])
    assert towards @ change > 0.0
    assert excess == pytest.approx(learner.cost - 0.05)
    assert radius == 0.01 and cost @ change <= max(0.0, -excess) + 1e-3


def test_the_fisher_matrix_is_the_curvature_of_the_divergence():
    learner = Cpo(ARGS, FallingPoint(4), 10, 0, CpoArgs(damping=0.0))
    batch = learner._batch(learner._collect())
    values = learner.actor.forward(batch.observation)
    mean, log_std, split = values[-1].numpy().copy(), learner.log_std.copy(), learner._actor_gradient.size
    direction = np.random.default_rng(0).standard_normal(split + 1)
    means = learner.actor.tangent(values, direction[:split].astype(np.float32)) * np.exp(-2.0 * log_std) / np.float32(len(mean))
    product = learner._pulled_back(values, means, 2.0 * direction[split:])
    length = 1e-3
    learner.parameters.values[:split] += (length * direction[:split]).astype(np.float32)
    divergence = cpo.kl_divergence(mean, log_std, learner.actor(batch.observation), log_std + length * direction[split:])
    assert direction @ product / 2 * length**2 == pytest.approx(divergence, rel=0.02)


def test_it_learns_and_falls_less_than_without_the_constraint():
    def trained(limit: float) -> tuple[float, int]:
        args = replace(ARGS, copies=8, epochs=5)
        learner = Cpo(args, FallingPoint(8, goal=0.95), 40, 0, CpoArgs(limit=limit))
        figures = [learner.iterate() for _ in range(40)]
        return float(np.mean([row["return"] for row in figures[-5:]])), learner.falls

    (free, many), (_, few) = trained(1e9), trained(0.05)
    assert free > 12.0
    assert few < 0.7 * many
