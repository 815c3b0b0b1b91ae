"""Tests of ros_rl.learning.safeexplorer: the gradient on a small decision process, values and outcomes of segments, bad input."""

import itertools
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from falling_point import FallingPoint
from torch.distributions import Independent, Normal

from ros_rl.errors import RobotFault, UserError
from ros_rl.learning.mlp import Mlp, Parameters
from ros_rl.learning.ppo import Ppo, PpoArgs, advantages, log_prob_of, surrogate
from ros_rl.learning.safeexplorer import (
    CHOSEN,
    FELL,
    REENTERED,
    STUCK,
    UNRESOLVED,
    ExplorerArgs,
    SafeExplorer,
    checked_instability,
    exit_rate,
    gap_bound,
    imitation,
    outcomes,
    recovery_values,
    region_at,
    through_recovery,
)

ARGS = PpoArgs(copies=2, rollout=16, epochs=3, batch=8, hidden=(8, 8))
TO_THE_MIDDLE = lambda seen: -np.sign(seen[:, :1])  # noqa: E731
AT_REST = lambda seen: np.zeros((len(seen), 1))  # noqa: E731


def explorer_of(recovery=TO_THE_MIDDLE, args=ARGS, iterations=10, seed=0, environments=None, **settings) -> SafeExplorer:
    environments = environments or FallingPoint(args.copies, limit=50)
    return SafeExplorer(args, environments, iterations, seed, recovery, ExplorerArgs(**{"imitation": 0.0, **settings}))


# --- The gradient of the mixture, on a decision process whose every trajectory can be listed -------------------------------------

STATES, ACTIONS, STEPS = 4, 2, 4  # states 0 and 1 are safe, 2 is the recovery policy's, 3 is fallen
MOVES = np.zeros((STATES, ACTIONS, STATES))
MOVES[0] = [[0.7, 0.3, 0, 0], [0, 0.6, 0.4, 0]]
MOVES[1] = [[0.5, 0.5, 0, 0], [0, 0.2, 0.8, 0]]
MOVES[2] = [[0, 0.9, 0, 0.1], [0, 0, 0.5, 0.5]]
MOVES[3, :, 3] = 1.0
REWARDS = np.array([[0.2, 1.0], [0.1, 2.0], [-0.5, -1.0], [0.0, 0.0]])
FEATURES = np.array([[[1, 0, 0], [0, 1, 0]], [[1, 0, 1], [0, 1, -1]], [[1, 0, 0.5], [0, 1, 0.5]], [[0, 0, 0], [0, 0, 0]]])
THETA = np.array([0.3, -0.2, 0.4])
SAFE = np.array([True, True, False, False])


def softmax(theta: np.ndarray) -> np.ndarray:
    odds = np.exp(FEATURES @ theta)
    return odds / odds.sum(axis=1, keepdims=True)


def mixed(theta: np.ndarray, mu: tuple[float, float]) -> np.ndarray:
    return np.where(SAFE[:, None], softmax(theta), mu)


def values_of(policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns V, (STEPS + 1, states), and Q, (STEPS, states, actions), of a policy."""
    value, q = np.zeros((STEPS + 1, STATES)), np.zeros((STEPS, STATES, ACTIONS))
    for step in reversed(range(STEPS)):
        q[step] = REWARDS + MOVES @ value[step + 1]
        value[step] = (policy * q[step]).sum(axis=1)
    return value, q


def trajectories(policy: np.ndarray):
    """Yields probability, states and actions of every trajectory that starts in state 0."""
    for path in itertools.product(range(ACTIONS), range(STATES), repeat=STEPS):
        actions, after = path[::2], path[1::2]
        states = (0, *after[:-1])
        chances = [policy[s, a] * MOVES[s, a, t] for s, a, t in zip(states, actions, after, strict=True)]
        if chance := np.prod(chances):
            yield chance, np.array(states), np.array(actions)


def estimator(kind: str, worth: str, mu: tuple[float, float]) -> tuple[np.ndarray, float]:
    """Returns mean and total variance of a gradient estimate; the weights of the steps are those of the clipped loss at ratio 1."""
    policy, acting = softmax(THETA), mixed(THETA, mu)
    value, q = values_of(acting)
    mean, square = np.zeros(3), 0.0
    for chance, states, actions in trajectories(acting):
        steps = np.arange(STEPS)
        own, running = SAFE[states], states != 3
        used = running & (own if kind == "masked" else True)
        advantage, earned = q[steps, states, actions] - value[steps, states], REWARDS[states, actions].sum()
        credit = np.full(STEPS, earned) if worth == "return" else advantage
        if kind == "importance":
            credit = credit * np.where(own, 1.0, policy[states, actions] / acting[states, actions])
        log_prob = np.where(own | (kind != "masked"), np.log(policy[states, actions]), np.nan)
        weight = surrogate(log_prob[used], log_prob[used], credit[used], 0.2)[1]
        score = FEATURES[states, actions] - np.einsum("ta,tak->tk", policy[states], FEATURES[states])
        found = -used.sum() * weight @ score[used]
        mean += chance * found
        square += chance * found @ found
    return mean, square - mean @ mean


def finite_difference(mu: tuple[float, float], step=1e-6) -> np.ndarray:
    value = lambda theta: values_of(mixed(theta, mu))[0][0, 0]  # noqa: E731
    return np.array([(value(THETA + step * unit) - value(THETA - step * unit)) / (2 * step) for unit in np.eye(3)])


@pytest.mark.parametrize(
    ("mu", "objective", "gradient"),
    [((0.8, 0.2), 1.476193, [-0.498514, 0.498514, -0.592858]), ((1.0, 0.0), 1.566242, [-0.569195, 0.569195, -0.658061])],
)
def test_the_masked_gradient_is_that_of_the_mixture(mu, objective, gradient):
    assert values_of(mixed(THETA, mu))[0][0, 0] == pytest.approx(objective, abs=1e-6)
    np.testing.assert_allclose(finite_difference(mu), gradient, atol=1e-6)
    for worth in ("return", "advantage"):
        np.testing.assert_allclose(estimator("masked", worth, mu)[0], gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "worth", "mu", "gradient"),
    [
        ("importance", "advantage", (0.8, 0.2), [-0.387012, 0.387012, -0.592858]),
        ("unmasked", "advantage", (0.8, 0.2), [-0.422599, 0.422599, -0.592858]),
        ("unmasked", "return", (0.8, 0.2), [-0.316831, 0.316831, -0.592858]),
        ("unmasked", "return", (1.0, 0.0), [-0.305250, 0.305250, -0.658061]),
    ],
)
def test_other_gradients_are_biased_by_what_theory_says(kind, worth, mu, gradient):
    np.testing.assert_allclose(estimator(kind, worth, mu)[0], gradient, atol=1e-6)


def test_the_variance_of_importance_sampling_grows_without_bound():
    assert estimator("masked", "advantage", (0.8, 0.2))[1] == pytest.approx(0.978, abs=5e-4)
    assert estimator("importance", "advantage", (0.8, 0.2))[1] == pytest.approx(1.233, abs=5e-4)
    variance = [estimator("importance", "advantage", (1 - rare, rare))[1] for rare in (1e-6, 1e-7)]
    assert variance[0] == pytest.approx(5.3e4, rel=0.01)
    assert variance[1] / variance[0] == pytest.approx(10.0, rel=0.01)
    assert estimator("masked", "advantage", (1 - 1e-6, 1e-6))[1] == pytest.approx(1.12, abs=5e-3)


def test_the_gap_bound_holds_on_the_decision_process():
    discount, mu, draw = 0.9, (0.8, 0.2), np.random.default_rng(0)
    gaps = []
    for _ in range(100):
        theta = draw.normal(0.0, 2.0, 3)
        objectives = []
        for policy in (softmax(theta), mixed(theta, mu)):
            move, reward = np.einsum("sa,sat->st", policy, MOVES), (policy * REWARDS).sum(axis=1)
            objectives.append(np.linalg.solve(np.eye(STATES) - discount * move, reward)[0])
        move, place, outside = np.einsum("sa,sat->st", softmax(theta), MOVES), np.eye(STATES)[0], []
        for _ in range(300):
            outside.append(place[2:].sum())
            place = place @ move
        bound = gap_bound(2.0, exit_rate(np.array(outside), discount), discount)
        gaps.append(abs(objectives[0] - objectives[1]))
        assert 0.0 <= gaps[-1] <= bound
    assert max(gaps) > 0.3  # so that there is a gap to bound


def test_the_exit_rate_is_a_discounted_share():
    assert exit_rate(np.ones(5), 0.9) == pytest.approx(1.0)
    assert exit_rate(np.zeros(5), 0.9) == 0.0
    assert exit_rate(np.array([0.0, 1.0]), 0.9) == pytest.approx(0.9)  # outside from the second step on
    assert gap_bound(2.0, 0.5, 0.9) == pytest.approx(200.0)


# --- Segments: values, advantages, outcomes ------------------------------------------------------------------------------------


def column(*values: float) -> np.ndarray:
    return np.array(values, float)[:, None]


REWARD, VALUE, CHOICE = column(1, -1, -1, 2, 0.5), column(2, 77, -55, 3, 1), column(1, 0, 0, 1, 1) > 0
NOWHERE = np.zeros((5, 1), bool)


def at(*steps: int) -> np.ndarray:
    return np.isin(np.arange(5), steps)[:, None]


def test_advantages_run_through_a_segment():
    following = np.concatenate([VALUE[1:], [[4.0]]])
    recovered = recovery_values(REWARD, CHOICE, following, NOWHERE, at(4), 0.9)
    np.testing.assert_allclose(recovered[:, 0], [np.nan, 0.53, 1.7, np.nan, np.nan])
    advantage, target = through_recovery(REWARD, VALUE, following, CHOICE, NOWHERE, at(4), 0.9, 0.8)
    np.testing.assert_allclose(advantage[:, 0], [0.272764736, 1.1052288, 1.53504, 2.132, 3.1])
    np.testing.assert_allclose(target[:, 0], [2.272764736, 0.53, 1.7, 5.132, 4.1])


def test_a_fall_in_a_segment_has_no_value_behind_it():
    following = np.concatenate([VALUE[1:], [[4.0]]])
    following[2] = 1234.0  # of the last observation before the new episode
    recovered = recovery_values(REWARD, CHOICE, following, at(2), at(4), 0.9)
    np.testing.assert_allclose(recovered[1:3, 0], [-1.9, -1.0])
    advantage, target = through_recovery(REWARD, VALUE, following, CHOICE, at(2), at(4), 0.9, 0.8)
    assert advantage[0, 0] == pytest.approx(1 + 0.9 * -1.9 - 2)
    np.testing.assert_allclose(target[1:3, 0], [-1.9, -1.0])
    np.testing.assert_allclose(advantage[3:, 0], [2.132, 3.1])  # of the next episode, as before


def test_a_segment_that_is_cut_bootstraps_from_the_critic_and_leaks_nowhere():
    """By the time limit in one copy and by the end of the rollout in the other, whose neighbour's numbers must not matter."""
    choice = np.array([[1, 1], [0, 1], [0, 1], [0, 0], [0, 0]], bool)
    reward, following = np.ones((5, 2)), np.full((5, 2), 10.0)
    cut = np.array([[0, 0], [0, 0], [1, 0], [0, 0], [0, 0]], bool)
    recovered = recovery_values(reward, choice, following, np.zeros_like(cut), cut, 0.5)
    np.testing.assert_allclose(recovered, [[np.nan, np.nan], [4, np.nan], [6, np.nan], [4, 4], [6, 6]])
    other = following.copy()
    other[:, 1] = -3.0
    np.testing.assert_array_equal(recovery_values(reward, choice, other, np.zeros_like(cut), cut, 0.5)[:, 0], recovered[:, 0])


def test_the_five_ends_of_a_segment():
    """A copy for each: back in the region, a fall, the time limit, the end of the rollout, stuck; then two ends in one copy."""
    chosen = np.ones((6, 6), bool)
    chosen[1:3] = False
    chosen[3:, 3] = chosen[4:, 5] = False
    back, fallen, cut, stuck = (np.zeros((6, 6), bool) for _ in range(4))
    back[0] = back[3:, :3] = back[3:, 4] = True
    back[2, 0] = back[2, 5] = fallen[2, 1] = cut[2, 2] = cut[2, 4] = stuck[2, 4] = fallen[5, 5] = True
    found = outcomes(chosen, back, fallen, cut, stuck)
    for copy, wanted in enumerate((REENTERED, FELL, UNRESOLVED, UNRESOLVED, STUCK, REENTERED)):
        np.testing.assert_array_equal(found[:3, copy], [CHOSEN, wanted, wanted])
    np.testing.assert_array_equal(found[3:], np.where(chosen[3:], CHOSEN, [[CHOSEN] * 3 + [UNRESOLVED, CHOSEN, FELL]] * 3))


def test_a_recovery_takes_over_in_the_step_in_which_the_region_is_left():
    explorer = explorer_of(start_region=0.4, max_region=0.4)
    rollout = explorer._collect()
    outside = np.abs(rollout.raw[..., 0]) >= 0.4
    assert outside.any()
    np.testing.assert_array_equal(rollout.acted, ~outside)
    np.testing.assert_array_equal(np.isnan(rollout.log_prob), outside)
    np.testing.assert_array_equal(rollout.action[outside], -np.sign(rollout.raw[outside][:, :1]))
    assert explorer.counts["recovery"] == outside.sum()
    assert explorer.counts["triggers"] == explorer.counts["reentered"] + (~explorer._back[-1] & outside[-1]).sum()
    assert not rollout.terminated.any() and explorer.falls == 0


def test_a_fall_is_one_also_where_the_environment_does_not_say_so():
    class Endless(FallingPoint):
        def step(self, actions):
            seen, reward, fallen, late, info = super().step(actions)
            return seen, reward, np.zeros_like(fallen), late, info

    outwards = lambda seen: np.sign(seen[:, :1])  # noqa: E731
    explorer = explorer_of(outwards, environments=Endless(2), start_region=0.31, max_region=0.31)
    rollout = explorer._collect()
    assert rollout.terminated.any() and explorer.falls == rollout.terminated.sum() == explorer.counts["fell"] > 0
    assert (np.abs(rollout.raw[..., 0]) < 1.0).all()
    assert set(explorer._outcomes[~rollout.acted]) <= {FELL, UNRESOLVED}


def test_who_lies_still_is_cut_off_and_counted():
    explorer = explorer_of(AT_REST, start_region=0.4, max_region=0.4, stuck_after=4, environments=FallingPoint(2, limit=1000))
    rollout = explorer._collect()
    cuts = np.argwhere(rollout.truncated)
    assert len(cuts) == explorer.counts["stuck"] > 0
    for step, copy in cuts:
        np.testing.assert_array_equal(explorer._outcomes[step - 3 : step + 1, copy], STUCK)
    assert not rollout.terminated.any()


def test_a_segment_goes_on_in_the_next_rollout_and_its_first_part_stays_unresolved():
    explorer = explorer_of(AT_REST, start_region=0.4, max_region=0.4, stuck_after=20, environments=FallingPoint(2, limit=1000))
    explorer.environments.x[:] = explorer._observation[:, 0] = explorer._rho[:] = 0.7
    explorer._collect()
    assert (explorer._outcomes == UNRESOLVED).all()
    assert explorer.counts["triggers"] == 2 and explorer.counts["unresolved"] == 0
    explorer._collect()
    np.testing.assert_array_equal(explorer._outcomes[:4], STUCK)  # the 17th to 20th step
    assert explorer.counts["stuck"] == 2


# --- Losses ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [np.nan, 1e30, -3.0])
def test_nothing_reads_the_actions_and_log_probabilities_of_recovery_steps(garbage):
    def learned(spoil: bool) -> np.ndarray:
        explorer = explorer_of(start_region=0.3, max_region=0.3)
        rollout = explorer._collect()
        outside = ~rollout.acted
        assert outside.any()
        if spoil:
            rollout.action[outside] = rollout.log_prob[outside] = garbage
        explorer._learn(explorer._batch(rollout))
        return explorer.parameters.values

    np.testing.assert_array_equal(learned(False), learned(True))


def test_a_rollout_that_stays_in_the_region_is_learned_from_as_ppo_does():
    environments = FallingPoint(2, reach=0.01)
    explorer, ppo = explorer_of(environments=environments, imitation=0.05), Ppo(ARGS, FallingPoint(2, reach=0.01), 10, 0)
    explorer.environments.spread = ppo.environments.spread = 0.05
    for _ in range(3):
        explorer.iterate(), ppo.iterate()
    assert explorer.counts["recovery"] == 0
    np.testing.assert_array_equal(explorer.parameters.values, ppo.parameters.values)
    np.testing.assert_array_equal(explorer.moments.mean, ppo.moments.mean)


def test_without_a_step_of_the_policy_the_critic_learns_alone_and_20_iterations_are_too_many(caplog):
    explorer = explorer_of(AT_REST, start_region=0.01, max_region=0.01, stuck_after=10**6, environments=FallingPoint(2, limit=10**6))
    explorer.environments.x[:] = explorer._observation[:, 0] = explorer._rho[:] = 0.7
    warm = explorer_of(start_region=0.99, max_region=0.99)
    warm.iterate()
    explorer.parameters.restore(warm.parameters.state())  # with momentum, that would move the policy on
    actor, critic = explorer._actor_gradient.size, explorer.parameters.values.copy()
    with caplog.at_level(logging.WARNING):
        for _ in range(19):
            figures = explorer.iterate()
    assert np.isfinite([figures["kl"], figures["critic_loss"]]).all() and figures["recovery"] == 1.0
    assert "the 19. in a row" in caplog.text
    np.testing.assert_array_equal(explorer.parameters.values[:actor], critic[:actor])
    assert explorer.log_std[0] == critic[-1] != ARGS.log_std
    assert (explorer.parameters.values[actor:-1] != critic[actor:-1]).any()
    with pytest.raises(RobotFault, match="20 iterations in a row without a step of the policy"):
        explorer.iterate()


def test_imitation_is_the_gradient_of_the_gated_log_probability():
    draw = np.random.default_rng(0)
    action, mean, log_std = draw.standard_normal((6, 2)), draw.standard_normal((6, 2)), np.array([-0.5, 0.3])
    gate = np.array([1, 0, 0, 1, 1, 0], float)
    gradient = imitation(action, mean, log_std, gate, 0.05)
    means = torch.tensor(mean, requires_grad=True)
    policy = Independent(Normal(means, torch.tensor(log_std).exp()), 1)
    (-0.05 / 6 * (torch.tensor(gate) * policy.log_prob(torch.tensor(action))).sum()).backward()
    np.testing.assert_allclose(gradient, means.grad.numpy())
    assert not gradient[gate == 0].any()


def test_only_recoveries_that_worked_are_imitated():
    """With a huge weight the policy comes to do what the recovery does; where no segment led back, it does not move towards it."""
    args = replace(ARGS, epochs=20, target_kl=np.inf, learning_rate=1e-2)

    def distance(worked: bool) -> float:
        explorer = explorer_of(args=args, start_region=0.3, max_region=0.3, imitation=100.0)
        rollout = explorer._collect()
        outside = ~rollout.acted
        if not worked:
            explorer._outcomes[outside] = FELL
        explorer._learn(explorer._batch(rollout))
        return float(np.abs(explorer.actor(rollout.observation[outside]) - rollout.action[outside]).mean())

    assert distance(True) < 0.8 * distance(False)


def test_imitation_and_the_clipped_loss_are_one_gradient():
    explorer = explorer_of(start_region=0.3, max_region=0.3, imitation=0.5)
    rollout = explorer._collect()
    batch = explorer._batch(rollout)
    rows = np.flatnonzero(batch.acted)[:7]
    streams = explorer.streams.state()
    explorer._policy_gradient(batch, rows)
    both, spread = explorer._actor_gradient.copy(), explorer._log_std_gradient.copy()
    explorer.streams.restore(streams)
    drawn = explorer.streams.generators[1].choice(np.flatnonzero(~batch.acted), 7)
    Ppo._policy_gradient(explorer, batch, rows)
    plain = explorer._actor_gradient.copy()
    np.testing.assert_allclose(spread, explorer._log_std_gradient, rtol=1e-5)
    values = explorer.actor.forward(batch.observation[drawn])
    gate = explorer._outcomes.ravel()[drawn] == REENTERED
    explorer.actor.backward(values, imitation(batch.action[drawn], values[-1].numpy(), explorer.log_std, gate, 0.5))
    np.testing.assert_allclose(both, plain + explorer._actor_gradient, rtol=1e-4, atol=1e-6)
    assert gate.any()


def test_without_the_mask_recovery_steps_are_learned_from_under_the_policy():
    explorer = explorer_of(start_region=0.3, max_region=0.3, mask=False, analytic=False)
    rollout = explorer._collect()
    assert rollout.acted.all() and not explorer._chosen.all()
    mean = np.stack([explorer.actor(row) for row in rollout.observation])
    np.testing.assert_allclose(rollout.log_prob, log_prob_of(rollout.action, mean, explorer.log_std), rtol=1e-5)


# --- Curriculum, going on, bad input ---------------------------------------------------------------------------------------------


def test_the_region_grows_from_end_to_end():
    args = ExplorerArgs()
    regions = [region_at(iteration, 100, args) for iteration in range(101)]
    assert regions[0] == 0.35 and regions[60:] == [pytest.approx(0.8)] * 41
    assert regions[30] == pytest.approx((0.35 + 0.8) / 2)
    assert (np.diff(regions) >= 0).all()
    explorer = explorer_of(iterations=4, start_region=0.4, max_region=0.6, ramp=0.5)
    assert [explorer.iterate()["region"] for _ in range(4)] == pytest.approx([0.4, 0.5, 0.6, 0.6])


def test_a_training_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    fresh = lambda: explorer_of(start_region=0.3, max_region=0.35, imitation=0.05)  # noqa: E731
    whole, stopped, resumed = fresh(), fresh(), fresh()
    for _ in range(5):
        whole.iterate()
    for _ in range(2):
        stopped.iterate()
    stopped.save(tmp_path / "run.npz")
    resumed.resume(tmp_path / "run.npz")
    for _ in range(3):
        resumed.iterate()
    assert resumed.counts == whole.counts and whole.counts["recovery"] > 0
    for one, other in zip(whole.state().values(), resumed.state().values(), strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start_region": 0.0}, "must be within 0 and 1, the first not above the second, got 0.0 and 0.8"),
        ({"max_region": 1.0}, "got 0.35 and 1.0"),
        ({"start_region": 0.6, "max_region": 0.5}, "got 0.6 and 0.5"),
        ({"start_region": float("nan")}, "got nan and 0.8"),
        ({"ramp": 0.0}, "ramp must be above 0 and at most 1, got 0.0"),
        ({"imitation": float("nan")}, "imitation must not be negative"),
        ({"stuck_after": 0}, "stuck_after be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        ExplorerArgs(**settings)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"speed": 1}, "infos have no 'rho' \\(they have: speed\\)"),
        ({"rho": [0.1, np.nan]}, "'rho' must be at least 0, got nan in copy 1"),
        ({"rho": [-0.1, 0.2]}, "'rho' must be at least 0, got -0.1 in copy 0"),
        ({"rho": 0.3}, "'rho' must have the shape \\(2,\\), got \\(\\)"),
    ],
)
def test_an_instability_that_is_none_is_refused(info, message):
    with pytest.raises(UserError, match=message):
        checked_instability(info, 2)


@pytest.mark.parametrize(
    ("recovery", "message"),
    [
        (lambda seen: np.zeros((len(seen), 2)), "must have the shape \\(1, 1\\), got \\(1, 2\\)"),
        (lambda seen: np.full((len(seen), 1), 1.1), "must be within -1 and 1, got 1.1"),
        (lambda seen: np.full((len(seen), 1), np.nan), "must be within -1 and 1, got nan"),
    ],
)
def test_recovery_actions_that_are_none_are_refused(recovery, message):
    explorer = explorer_of(recovery)
    explorer._rho[:] = [0.9, 0.0]
    with pytest.raises(UserError, match=message):
        explorer._choose(np.zeros((2, 1), np.float32))
    within = explorer_of(lambda seen: np.full((len(seen), 1), 1.0 + 5e-7))
    within._rho[:] = 0.9
    within._choose(np.zeros((2, 1), np.float32))


def test_a_recovery_policy_that_learns_is_refused():
    explorer = explorer_of()
    layer = torch.nn.Linear(2, 1)
    for recovery in (layer, layer.forward):
        with pytest.raises(UserError, match="requires_grad: freeze them"):
            explorer_of(recovery)
    layer.requires_grad_(False)
    explorer_of(layer)
    network = Mlp(Parameters(Mlp.size_of((2, 1)), 1e-3), 0, (2, 1), np.random.default_rng(0), 1.0)
    explorer_of(network)
    from ros_rl.learning.safeexplorer import refuse_shared

    for recovery in (explorer.actor, explorer.policy):
        with pytest.raises(UserError, match="are the actor's: give it a copy"):
            refuse_shared(recovery, explorer.parameters.values)


def test_a_region_that_most_episodes_begin_outside_of_is_a_fault():
    environments = FallingPoint(2, limit=2)
    with pytest.raises(RobotFault, match=r"of 20 episodes begin outside the region \(ρ < 0.01\), at a mean ρ of 0\.1"):
        explorer_of(args=replace(ARGS, rollout=20), environments=environments, start_region=0.01, max_region=0.01)._collect()


def test_a_missing_log_probability_of_the_policys_own_step_is_refused():
    explorer = explorer_of()
    rollout = explorer._collect()
    step, copy = np.argwhere(rollout.acted)[3]
    rollout.log_prob[step, copy] = np.nan
    with pytest.raises(UserError, match=f"log_prob is NaN at step {step} of copy {copy}, which the policy chose"):
        explorer._batch(rollout)


def test_stochastic_dynamics_are_warned_of_once(caplog):
    environments = FallingPoint(2)
    environments.metadata["stochastic"] = True
    explorer_of(environments=environments).iterate()
    assert caplog.text.count("the environment is stochastic") == 1


def test_a_minibatch_without_a_step_of_the_policy_moves_the_critic_alone(monkeypatch):
    """Four steps of the policy in 32: in four of eight minibatches there is nothing to imitate beside, and no divergence to count."""
    explorer = explorer_of(args=replace(ARGS, epochs=1, batch=4), imitation=0.05, start_region=0.3, max_region=0.3)
    explorer.iterate()
    rollout = explorer._collect()
    batch = explorer._batch(rollout)
    own = np.flatnonzero(batch.acted)[:4]
    acted = np.zeros_like(batch.acted)
    acted[own] = True
    explorer._chosen[:] = acted.reshape(explorer._chosen.shape)
    moves, descend = [], explorer.parameters.descend
    actor = slice(0, explorer._actor_gradient.size)

    def watched(rate, norm, only):
        before = explorer.parameters.values.copy()
        descend(rate, norm, only)
        moves.append([(explorer.parameters.values != before)[part].any() for part in (actor, explorer._critic_part)])

    monkeypatch.setattr(explorer.parameters, "descend", watched)
    surrogates, plain = [], explorer._surrogate_gradient
    monkeypatch.setattr(explorer, "_surrogate_gradient", lambda *given: surrogates.append(plain(*given)) or surrogates[-1])
    figures = explorer._learn(batch._replace(acted=acted))
    assert moves == [[True, True]] * 4 + [[False, True]] * 4
    assert figures["kl"] == pytest.approx(np.concatenate([found[1] for found in surrogates]).mean())


def test_without_the_mask_a_round_still_ends_by_the_divergence_at_steps_of_the_policy():
    """Recovery actions are far in the policy's tail, where q - 1 - log q explodes."""
    explorer = explorer_of(args=replace(ARGS, target_kl=np.inf), start_region=0.3, max_region=0.3, mask=False, analytic=False)
    rollout = explorer._collect()
    batch, chosen = explorer._batch(rollout), explorer._chosen.ravel().copy()
    assert batch.acted.all() and 0 < chosen.sum() < chosen.size
    batch.log_prob[~chosen] -= 3.0
    figures = explorer._learn(batch)
    assert 0.0 < figures["kl"] < 0.5  # with the recovery steps it is above 16 times their share
    assert (~chosen).mean() > 0.05


def test_the_plain_critic_does_not_use_the_analytic_value_and_the_other_one_does():
    explorer = explorer_of(start_region=0.3, max_region=0.3, analytic=True)
    rollout = explorer._collect()
    plain = explorer_of(start_region=0.3, max_region=0.3, analytic=False)
    plain._collect()
    value, following = explorer._values(rollout, explorer.critic)
    ends = rollout.terminated, rollout.truncated
    estimate = advantages(rollout.reward, value, following, *ends, ARGS.discount, ARGS.trace)
    np.testing.assert_array_equal(plain._estimate(rollout)[0], estimate)
    np.testing.assert_array_equal(plain._estimate(rollout)[1], estimate + value)
    outside = ~rollout.acted
    recovered = recovery_values(rollout.reward, rollout.acted, following, *ends, ARGS.discount)
    assert outside.any()
    np.testing.assert_array_equal(explorer._estimate(rollout)[1][outside], recovered[outside])
    assert np.abs(recovered[outside] - (estimate + value)[outside]).max() > 0.01
    before = np.flatnonzero(rollout.acted[:-1, 0] & outside[1:, 0])  # the step before a recovery is credited with its outcome
    assert (explorer._estimate(rollout)[0][before, 0] != estimate[before, 0]).all()


def test_advantages_are_normalised_over_steps_of_the_policy():
    explorer = explorer_of(start_region=0.3, max_region=0.3)
    rollout = explorer._collect()
    batch = explorer._batch(rollout)
    own = batch.advantage[batch.acted]
    assert not batch.acted.all()
    assert own.mean() == pytest.approx(0.0, abs=1e-5) and own.std() == pytest.approx(1.0, rel=1e-4)
    assert abs(batch.advantage.mean()) > 1e-3


def test_what_is_restored_evaluates_in_the_region_in_which_it_was_trained(tmp_path):
    explorer = explorer_of(iterations=4, start_region=0.3, max_region=0.6, ramp=0.5)
    explorer.iterate(), explorer.iterate()
    explorer.save(tmp_path / "run.npz")
    resumed = explorer_of(iterations=4, start_region=0.3, max_region=0.6, ramp=0.5)
    resumed.resume(tmp_path / "run.npz")
    assert resumed.region == explorer.region == pytest.approx(0.45)
    with pytest.raises(UserError, match=r"explorer\.max_region = 0\.6, asked for is 0\.7"):
        explorer_of(iterations=4, start_region=0.3, max_region=0.7, ramp=0.5).resume(tmp_path / "run.npz")
