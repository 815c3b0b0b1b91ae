"""Tests of ros_rl.learning.training on the glucose plant, which costs next to nothing to step."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.learning.goal_tasks import TASKS, glucose_prior
from ros_rl.learning.lagrangian import LagrangianSac
from ros_rl.learning.sac import Sac, SacArgs
from ros_rl.learning.shields import ResidualShield, SimplexShield
from ros_rl.learning.training import Trainer, evaluate, look, streams_of
from ros_rl.safety.autosafe import Sharpness, mixing_weight
from ros_rl.sim.goals.glucose import GlucoseGoal

ARGS = SacArgs(learning_rate=1e-3, batch=16, hidden=(16, 16), warmup=40)
GOALS = list(TASKS["glucose"].goals.values())


def trainer_of(kind: str = "autosafe", seeds=(0, 1, 2), store="executed") -> Trainer:
    prior, streams = glucose_prior(), streams_of(seeds)
    environment = GlucoseGoal(np.array([GOALS[seed % 3] for seed in seeds]), prior)
    agent = LagrangianSac(ARGS, 4, 1, streams) if kind == "lagrangian" else Sac(ARGS, 4, 1, streams, sharpness_of(kind))
    shield = {"simplex": SimplexShield(prior, len(seeds)), "residual": ResidualShield()}.get(kind)
    return Trainer(environment, agent, prior, seeds, streams, 500, shield, store)


def sharpness_of(kind: str) -> Sharpness | None:
    return Sharpness(0.0, glucose_prior().sharpness_bound) if kind == "autosafe" else None


def run(trainer: Trainer, steps: int) -> Trainer:
    for _ in range(steps):
        trainer.step()
    return trainer


@pytest.mark.parametrize("kind", ["autosafe", "simplex", "lagrangian"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(kind, tmp_path):
    """Stopped in the middle of an episode and of an interval, with the optimisers warm."""
    whole = run(trainer_of(kind), 340)
    stopped = run(trainer_of(kind), 90)
    stopped.save(tmp_path / "checkpoint.npz")
    resumed = trainer_of(kind)
    assert resumed.resume(tmp_path / "checkpoint.npz") == f"going on from {tmp_path / 'checkpoint.npz'}"
    run(resumed, 250)
    assert resumed.steps == whole.steps
    assert resumed.episodes == whole.episodes
    np.testing.assert_array_equal(resumed._seen.observation, whole._seen.observation)
    for name, value in whole.agent.state().items():
        np.testing.assert_array_equal(resumed.agent.state()[name], value, err_msg=name)
    np.testing.assert_array_equal(resumed._act().action.numpy(), whole._act().action.numpy())


def test_a_checkpoint_of_another_prior_is_refused(tmp_path):
    trainer = trainer_of()
    trainer.save(tmp_path / "checkpoint.npz")
    trainer.prior = replace(trainer.prior, sharpness_bound=1.0)
    with pytest.raises(UserError, match="trained with the safe prior"):
        trainer.resume(tmp_path / "checkpoint.npz")


def test_a_checkpoint_of_other_runs_is_refused(tmp_path):
    trainer_of().save(tmp_path / "checkpoint.npz")
    with pytest.raises(UserError, match="holds 3 runs, asked for are 1"):
        trainer_of(seeds=(0,)).resume(tmp_path / "checkpoint.npz")


def test_a_checkpoint_that_is_not_whole_is_named_and_the_one_before_is_taken(tmp_path):
    path, trainer = tmp_path / "checkpoint.npz", trainer_of()
    for _ in range(2):
        run(trainer, 10).save(path)
    path.write_bytes(path.read_bytes()[:1000])
    resumed = trainer_of()
    words = resumed.resume(path)
    assert words.startswith(f"{path} is not whole (") and words.endswith("going on from " + str(tmp_path / "checkpoint.previous.npz"))
    assert resumed.steps == 10


def test_a_run_draws_the_same_whichever_runs_train_beside_it():
    """Until networks are learnt, in which the rounding of batched products differs, everything is equal bit for bit."""
    together, alone = run(trainer_of(seeds=(0, 1, 2)), 40), run(trainer_of(seeds=(1,)), 40)
    np.testing.assert_array_equal(together._replay._data[1, :40], alone._replay._data[0, :40])
    run(together, 20), run(alone, 20)
    np.testing.assert_allclose(together._replay._data[1, :60], alone._replay._data[0, :60], rtol=1e-3, atol=1e-4)


def test_every_executed_action_of_autosafe_is_mixed_also_in_the_warm_up():
    """With the weight λ an action is within (1 - λ)·(1 + |safe|) of the safe one; λ is least at the largest sharpness."""
    trainer = trainer_of()
    for step in range(60):
        if step in (20, 50):  # in the warm-up and after it
            state, root = trainer.environment._state, np.linalg.cholesky(trainer.prior.P)
            state[0] = 1.01 * np.linalg.solve(root.T, np.eye(3)[0])
            trainer._seen = look(trainer.environment, trainer.prior)
            assert trainer._seen.radius[0] == pytest.approx(1.01)
        trainer.step()
    rows = trainer._replay._data[:, :60].reshape(-1, trainer._replay._data.shape[-1]).astype(float)
    margin, safe, action = rows[:, 4], rows[:, 5], rows[:, 6]
    least = mixing_weight(margin, trainer.prior.sharpness_bound)
    assert (np.abs(action - safe) <= (1 - least) * (1 + np.abs(safe)) + 1e-6).all()
    assert (least > 0.2).any()
    assert (margin == 0).sum() >= 2
    np.testing.assert_array_equal(action[margin == 0], safe[margin == 0])


def test_the_critic_learns_from_the_executed_or_from_the_proposed_action():
    executed, proposed = (run(trainer_of("residual", store=store), 30) for store in ("executed", "proposed"))
    one, other = (trainer._replay._data[:, :30] for trainer in (executed, proposed))
    start = 4 + 1 + 1  # observation, margin, safe action
    action, raw, safe = one[..., start], other[..., start], one[..., 5]
    np.testing.assert_allclose(action, np.clip(safe + 0.5 * raw, -1, 1), atol=1e-6)
    np.testing.assert_array_equal(np.delete(one, start, axis=2), np.delete(other, start, axis=2))


def test_a_time_limit_is_no_end_and_a_new_episode_begins():
    trainer = run(trainer_of(), 289)
    assert [row[:2] + row[3:] for row in trainer.episodes] == [[run, 288, 288, 0] for run in range(3)]
    assert not trainer._replay._data[:, :289, 8].any()  # terminated
    assert (trainer._seen.radius <= 1.0).all()


def test_evaluation_is_deterministic_and_leaves_the_runs_apart():
    trainer = run(trainer_of(), 60)
    found = []
    for _ in range(2):
        environment = GlucoseGoal(np.repeat(trainer.environment.goals, 2), trainer.prior)
        found.append(evaluate(environment, trainer.agent, trainer.prior, [0, 1, 2]))
    np.testing.assert_array_equal(found[0].returns, found[1].returns)
    assert found[0].returns.shape == (3, 2)
    assert not found[0].violated.any() and not found[0].exits.any()


def test_an_observation_that_is_no_number_stops_the_training():
    trainer = trainer_of()
    trainer.environment._state[1] = np.nan
    with pytest.raises((UserError, ValueError), match="copy 1 is not finite"):
        trainer.step()
