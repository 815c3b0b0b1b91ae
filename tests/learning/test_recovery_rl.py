"""Tests of ros_rl.learning.recovery_rl."""

import numpy as np
from falling_point import FallingPoint

from ros_rl.learning.ppo import PpoArgs, log_prob_of
from ros_rl.learning.recovery_rl import RecoveryRl, RiskArgs, risk_targets
from ros_rl.learning.safeexplorer import ExplorerArgs

ARGS = PpoArgs(copies=8, rollout=32, epochs=2, batch=64, hidden=(16, 16), learning_rate=3e-3)


def transitions(size=512, goal=0.95, reach=0.4, seed=0) -> dict[str, np.ndarray]:
    """Of random actions at random places of the point that falls where |x| reaches 1."""
    draw = np.random.default_rng(seed)
    x, action = draw.uniform(-1, 1, size), draw.uniform(-1, 1, (size, 1))
    after, goals = x + reach * action[:, 0], np.full(size, goal)
    return {
        "observation": np.stack([x, goals], axis=1),
        "action": action,
        "terminated": np.abs(after) >= 1.0,
        "next_observation": np.stack([after, goals], axis=1),
    }


def learner_of(args=ARGS, risk=None, first=None, **kwargs) -> RecoveryRl:
    recovery = lambda seen: -np.sign(seen[:, :1])  # noqa: E731
    return RecoveryRl(args, FallingPoint(args.copies, **kwargs), 30, 0, recovery, first or transitions(), ExplorerArgs(), risk)


def risk_at(learner: RecoveryRl, *pairs: tuple[float, float]) -> np.ndarray:
    """Returns the risk of places and actions."""
    seen, action = np.array([[x, 0.95] for x, _ in pairs]), np.array([[action] for _, action in pairs])
    return learner.risk_critic(learner._inputs(seen, action))[:, 0]


def test_a_fall_is_the_risk_and_what_is_ahead_counts_less():
    targets = risk_targets(np.array([1.0, 0.0, 0.0]), np.array([0.7, 0.5, 3.0]), 0.85)
    np.testing.assert_allclose(targets, [1.0, 0.425, 0.85])


def test_the_policy_learns_from_what_it_proposed_and_the_risk_from_what_was_done():
    learner = learner_of(risk=RiskArgs(threshold=-1e9))  # the recovery policy always acts
    rollout = learner._collect()
    assert rollout.acted.all() and not learner._chosen.any()
    np.testing.assert_array_equal(learner._executed[..., 0], -np.sign(rollout.raw[..., 0]))
    mean = np.stack([learner.actor(row) for row in rollout.observation])
    np.testing.assert_allclose(rollout.log_prob, log_prob_of(rollout.action, mean, learner.log_std), rtol=1e-4, atol=1e-5)
    assert np.abs(rollout.action - learner._executed).min(axis=-1).max() > 0.1


def test_risk_is_learned_and_falls_become_fewer():
    def trained(threshold: float) -> RecoveryRl:
        learner = learner_of(risk=RiskArgs(threshold=threshold, first_epochs=100), goal=0.95, reach=0.4, limit=50)
        for _ in range(30):
            learner.iterate()
        return learner

    learner, without = trained(0.2), trained(np.inf)
    assert learner.falls < 0.85 * without.falls and without.counts["recovery"] == 0
    outwards, inwards, middle = risk_at(learner, (0.8, 1.0), (0.8, -1.0), (0.0, 0.0))
    assert outwards > max(inwards, middle) + 0.1


def test_risk_is_known_before_the_first_step():
    """From the first transitions; whoever has seen no fall starts without a notion of risk."""
    outwards, inwards, middle = risk_at(learner_of(risk=RiskArgs(first_epochs=100)), (0.9, 1.0), (0.9, -1.0), (0.0, 0.0))
    assert outwards > 0.7 and max(inwards, middle) < 0.2
    calm = {**transitions(), "terminated": np.zeros(512, bool)}
    assert np.abs(risk_at(learner_of(risk=RiskArgs(first_epochs=100), first=calm), (0.9, 1.0), (0.0, 0.0))).max() < 0.1


def test_the_region_plays_no_part():
    learner = learner_of(spread=0.9)  # most episodes begin where SafeExplorer would call the region unusable
    for _ in range(3):
        learner.iterate()
    assert learner.counts["recovery"] > 0


def test_the_rate_of_the_risk_falls_to_zero_as_all_others_do(monkeypatch):
    learner, rates = learner_of(), []
    descend = learner.risk_parameters.descend
    monkeypatch.setattr(learner.risk_parameters, "descend", lambda rate, norm: (rates.append(rate), descend(rate, norm))[1])
    for _ in range(30):
        learner.iterate()
    assert rates[0] == ARGS.learning_rate and rates[-1] == ARGS.learning_rate * (1 - 29 / 30)


def test_a_training_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    whole, stopped, resumed = (learner_of() for _ in range(3))
    for _ in range(4):
        whole.iterate()
    stopped.iterate(), stopped.iterate()
    stopped.save(tmp_path / "run.npz")
    resumed.resume(tmp_path / "run.npz")
    resumed.iterate(), resumed.iterate()
    np.testing.assert_array_equal(resumed.parameters.values, whole.parameters.values)
    np.testing.assert_array_equal(resumed.risk_parameters.values, whole.risk_parameters.values)
    assert resumed.counts == whole.counts


def test_the_risk_learns_from_falls_also_while_there_are_none(monkeypatch):
    """The recovery policy always acts and nobody falls: half of what the risk learns from are the first transitions."""
    learner, seen = learner_of(risk=RiskArgs(threshold=-1e9)), []
    monkeypatch.setattr(learner, "_learn_risk", lambda parts, *rest: seen.append(parts) or 0.0)
    learner.iterate()
    (parts,), size = seen, ARGS.copies * ARGS.rollout
    assert learner.falls == 0 and {len(part) for part in parts.values()} == {2 * size}
    assert not parts["terminated"][:size].any() and parts["terminated"][size:].any()
    rows = np.concatenate([parts["observation"], parts["action"], parts["next_observation"]], axis=1)[size:]
    first = transitions()
    known = np.concatenate([first["observation"], first["action"], first["next_observation"]], axis=1)
    assert set(map(tuple, rows)) <= set(map(tuple, known))
