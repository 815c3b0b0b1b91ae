from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_backbones
import torch
from token_samples import make_model, make_task

from ros_rl.errors import UserError
from ros_rl.learning.grpo import Grpo, GrpoArgs, agreement, group_parts, to_batch
from ros_rl.learning.objectives.ratio import clipped_surrogate
from ros_rl.learning.token_rollout import TokenWorld, run_requests
from ros_rl.policies.vla import digest
from ros_rl.robots.spec import load_robot

ARGS = GrpoArgs(group=4, groups=2, epochs=2, minibatches=1, learning_rate=1e-3, copies=4, chunk=5)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return make_task(tmp_path_factory.mktemp("world"))


def with_outcomes(traces):
    """Half of each group succeeded, whatever really happened."""
    for number, trace in enumerate(traces):
        trace.success = number % 2 == 0
    return traces


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
def test_ratios_are_1_at_the_first_update_and_not_after_it(task, decoding):
    learner = Grpo(make_model(decoding), [task], ARGS)
    batch, decisions, level, weight, figures = learner.prepare(with_outcomes(learner.sample()))
    assert figures["kept"] == 1.0 and figures["all_fail"] == figures["all_success"] == 0.0
    assert figures["reward_variance"] == pytest.approx(0.25)
    assert figures["entropy"] == pytest.approx(np.log(256), abs=0.1)  # a new head is nearly uniform
    learnt = learner.learn(batch, decisions, level, weight)
    assert "agreement" not in learnt  # there is one part
    assert learnt["first_log_ratio_max"] < 1e-5 and learnt["first_clipped_share"] == 0.0
    assert learnt["log_ratio_max"] > 1e-4
    learner.rollouts.close()


def test_figures_are_those_of_updates_that_had_rows(task):
    """One group in two parts: one of them is empty, whichever comes first."""
    for seed in range(3):
        learner = Grpo(make_model(), [task], replace(ARGS, groups=1, minibatches=2, seed=seed))
        batch, decisions, level, weight, _ = learner.prepare(with_outcomes(learner.sample()))
        learnt = learner.learn(batch, decisions, level, weight)
        assert learnt["gradient_norm"] > 0 and learnt["log_ratio_max"] > 1e-6 and learnt["first_log_ratio_max"] < 1e-5
        learner.rollouts.close()


def test_the_gradient_does_not_depend_on_how_many_decisions_pass_together(task):
    gradients = []
    for chunk in (3, 1000):
        learner = Grpo(make_model(), [task], replace(ARGS, chunk=chunk))
        batch, decisions, level, weight, _ = learner.prepare(with_outcomes(learner.sample()))
        learner._backward(batch, decisions, level, weight, torch.arange(len(batch)), torch.device("cpu"))
        gradients.append(torch.cat([value.grad.flatten() for value in learner.parameters if value.grad is not None]))
        learner.rollouts.close()
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-7)
    # The same by autograd in one pass.
    new = learner.model.network.score(decisions.inputs, decisions.tokens).log_prob
    rows = [new[decisions.row == row].flatten() for row in range(len(batch))]
    value, _ = clipped_surrogate(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), batch, level)
    direct = torch.autograd.grad(-value, [p for p in learner.parameters if p.grad is not None])
    torch.testing.assert_close(torch.cat([g.flatten() for g in direct]), gradients[1], rtol=1e-4, atol=1e-7)


def test_an_update_tells_how_far_its_parts_agree(task):
    """Both parts have the same episodes, and steps are small."""
    learner = Grpo(make_model(), [task], replace(ARGS, minibatches=2, learning_rate=1e-6))
    traces = with_outcomes(learner.sample())
    half = [trace for trace in traces if trace.request.group == 0]
    twice = [*half, *(replace(trace, request=replace(trace.request, group=1)) for trace in half)]
    batch, decisions, level, weight, _ = learner.prepare(twice)
    assert learner.learn(batch, decisions, level, weight)["agreement"] == pytest.approx(1.0, abs=1e-3)
    learner.rollouts.close()


def test_a_step_makes_what_succeeded_likelier_than_what_failed(task):
    learner = Grpo(make_model(), [task], replace(ARGS, groups=1))
    traces = with_outcomes(learner.sample())
    batch, decisions, level, weight, _ = learner.prepare(traces)
    learner.learn(batch, decisions, level, weight)
    with torch.no_grad():
        new = learner.model.network.score(decisions.inputs, decisions.tokens).log_prob.sum(1)
    gain = torch.tensor([float(new[decisions.row == row].sum()) for row in range(4)]) - (batch.logp_old * batch.mask).sum(1)
    assert gain[[0, 2]].min() > 0 > gain[[1, 3]].max()
    learner.rollouts.close()


def test_a_stopped_training_goes_on_as_if_it_had_not_been(task, tmp_path):
    def steps(learner, count):
        for _ in range(count):
            batch, decisions, level, weight, _ = learner.prepare(with_outcomes(learner.sample()))
            learner.learn(batch, decisions, level, weight)
            learner.iteration += 1
        learner.rollouts.close()
        return digest(learner.model.network)

    args = replace(ARGS, groups=1, kl=0.01)
    whole = steps(Grpo(make_model(), [task], args), 2)
    first = Grpo(make_model(), [task], args)
    steps(first, 1)
    first.save(tmp_path / "c.safetensors")
    second = Grpo(make_model(), [task], args)
    second.load(tmp_path / "c.safetensors")
    assert steps(second, 1) == whole
    with pytest.raises(UserError, match="group=4, not 8"):
        Grpo(make_model(), [task], replace(args, group=8)).load(tmp_path / "c.safetensors")
    other = Grpo(make_model(seed=3), [task], args)
    before = digest(other.model.network)
    with pytest.raises(UserError, match="is of a training with start="):
        other.load(tmp_path / "c.safetensors")
    assert digest(other.model.network) == before and other.iteration == 0
    with pytest.raises(UserError, match=r"is of a training with tasks=\['turn'\], not \['turn', 'turn'\]"):
        Grpo(make_model(), [task, task], args).load(tmp_path / "c.safetensors")
    model = make_model()
    model.code.ranges.upper[:] = 0.5
    with pytest.raises(UserError, match="is of a training with ranges="):
        Grpo(model, [task], args).load(tmp_path / "c.safetensors")
    (tmp_path / "c.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match="damaged checkpoint"):
        second.load(tmp_path / "c.safetensors")


@pytest.mark.parametrize("family", ["smolvlm", "qwen2_5_vl", "paligemma"])
def test_each_family_of_backbones_takes_a_step_of_grpo(task, family, tmp_path):
    model = make_model(backbone=tiny_backbones.make(family, tmp_path))
    learner = Grpo(model, [task], replace(ARGS, group=2, groups=1, epochs=1))
    frozen = {name: value.clone() for name, value in model.network.named_parameters() if not value.requires_grad}
    before = digest(model.network)
    batch, decisions, level, weight, _ = learner.prepare(with_outcomes(learner.sample()))
    learnt = learner.learn(batch, decisions, level, weight)
    assert learnt["first_log_ratio_max"] < 1e-4
    assert digest(model.network) != before
    now = dict(model.network.named_parameters())
    assert frozen and all(torch.equal(value, now[name]) for name, value in frozen.items())
    learner.rollouts.close()


def test_only_the_weights_that_are_named_are_trained(task):
    learner = Grpo(make_model(), [task], replace(ARGS, only=("cameras.", "out.")))
    before = {name: value.detach().clone() for name, value in learner.model.network.named_parameters()}
    batch, decisions, level, weight, _ = learner.prepare(with_outcomes(learner.sample()))
    learner.learn(batch, decisions, level, weight)
    now = dict(learner.model.network.named_parameters())
    changed = {name for name, value in before.items() if not torch.equal(value, now[name])}
    assert changed and changed == {name for name in before if name.startswith(("cameras.", "out."))}
    learner.rollouts.close()
    with pytest.raises(
        UserError, match="the name of no weight that is trained begins with 'eyes'; there are start, out, words, cameras, state, trunk"
    ):
        Grpo(make_model(), [task], replace(ARGS, only=("eyes",)))
    idle = Grpo(make_model(), [task], replace(ARGS, only=("trunk.embed_tokens.",)))  # which nothing asks when decoding in parallel
    batch, decisions, level, weight, _ = idle.prepare(with_outcomes(idle.sample()))
    with pytest.raises(UserError, match="only: the weights that it names have no part in what is decoded"):
        idle.learn(batch, decisions, level, weight)
    idle.rollouts.close()


def test_steps_grow_to_their_size_in_the_warmup(task):
    """AdamW's first step changes each weight by the step size, whatever its gradient."""
    sizes = []
    for learnt in range(4):
        learner = Grpo(make_model(), [task], replace(ARGS, epochs=1, warmup=2))
        learner._learnt = learnt
        weight_before = learner.model.network.out.weight.detach().clone()
        batch, decisions, level, weight, _ = learner.prepare(with_outcomes(learner.sample()))
        learner.learn(batch, decisions, level, weight)
        sizes.append(float((learner.model.network.out.weight.detach() - weight_before).abs().max()))
        learner.rollouts.close()
    assert sizes == pytest.approx([ARGS.learning_rate * share for share in (1 / 3, 2 / 3, 1, 1)], rel=0.01)


def test_dead_groups_teach_nothing(task):
    learner = Grpo(make_model(), [task], replace(ARGS, groups=1))
    traces = learner.sample()
    for trace in traces:
        trace.success = True
    batch, _, _, _, figures = learner.prepare(traces)
    assert len(batch) == 0 and figures["all_success"] == 1.0 and figures["kept"] == 0.0
    learner.rollouts.close()


def test_a_batch_has_the_tokens_of_its_episodes_in_order(task):
    learner = Grpo(make_model(), [task], replace(ARGS, groups=1))
    traces = learner.sample()
    batch = to_batch(traces, 1.0)
    length = learner.model.network.length
    for row, trace in enumerate(traces):
        count = len(trace.tokens) * length
        assert batch.mask[row].sum() == count and not batch.mask[row, count:].any()
        assert batch.tokens[row, :count].tolist() == np.concatenate(trace.tokens).tolist()
        assert batch.step[row, :count].tolist() == np.repeat(np.arange(len(trace.tokens)), length).tolist()
    learner.rollouts.close()


def test_control_periods_are_counted_wherever_episodes_run(task):
    learner = Grpo(make_model(), [task], replace(ARGS, groups=1))
    elsewhere = TokenWorld(task, load_robot("arm"), 4, threads=1)
    learner.rollouts._pool = SimpleNamespace(
        run=lambda model, name, requests, temperature: run_requests(model, elsewhere, requests, temperature), close=elsewhere.close
    )
    traces = learner.sample()
    assert learner.ticks == sum(round(trace.seconds / load_robot("arm").period) for trace in traces) > 100
    assert learner.prepare(traces)[-1]["diverged"] == 0
    learner.rollouts.close()


def test_agreement_tells_the_noise_scale():
    """Means over b samples of a gradient G with noise of variance tr(Σ) agree by 1 / (1 + tr(Σ) / (b |G|²))."""
    draw = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, generator=draw)
    for noise in (0.0, 1.0, 3.0):
        found = agreement([true + noise * torch.randn(20_000, generator=draw) for _ in range(6)])
        assert found == pytest.approx(1 / (1 + noise**2), abs=0.02)
    assert agreement([true, -true]) == pytest.approx(-1.0)


def test_parts_are_whole_groups():
    group = torch.tensor([4, 4, 1, 1, 7, 7])
    parts = group_parts(group, 2, np.random.default_rng(0))
    assert sorted(torch.cat(parts).tolist()) == list(range(6))
    for part in parts:
        assert all(((group == name).nonzero()[:, 0][:, None] == part).any(1).all() for name in group[part].unique())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": 1}, "group must be 2"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"epochs": 0}, "epochs"),
        ({"warmup": -1}, "warmup"),
    ],
)
def test_settings_that_make_no_sense_are_refused(task, change, message):
    with pytest.raises(UserError, match=message):
        Grpo(make_model(), [task], replace(ARGS, **change))
