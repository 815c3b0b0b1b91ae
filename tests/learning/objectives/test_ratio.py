import pytest
import torch
from test_frame import make_batch

from ros_rl.learning.objectives.ratio import aggregate, clipped_surrogate, denominator, group_advantage

ONE_GROUP = torch.zeros(4, dtype=torch.long)


def test_group_advantages():
    def of(*rewards, **options):
        return group_advantage(torch.tensor(rewards), torch.zeros(len(rewards), dtype=torch.long), **options)

    torch.testing.assert_close(of(1.0, 0.0, 0.0, 1.0), torch.tensor([1.0, -1, -1, 1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(of(1.0, 0.0, 0.0, 0.0), torch.tensor([1.732047, *[-0.577349] * 3]), atol=1e-5, rtol=0)
    torch.testing.assert_close(of(1.0, 0.0, 0.0, 0.0, leave_one_out=True), torch.tensor([1.0, *[-1 / 3] * 3]))
    torch.testing.assert_close(of(1.0, 0.0, 0.0, 0.0, divide_by_std=False), torch.tensor([0.75, *[-0.25] * 3]))
    assert (of(*[0.7] * 7) == 0).all()


def test_singletons_count_0_and_nothing_but_singletons_is_refused():
    reward = torch.tensor([1.0, 0.0, 1.0])
    assert group_advantage(reward, torch.tensor([0, 0, 5]))[2] == 0
    with pytest.raises(ValueError, match="group 3 has 1 row; group advantages need 2"):
        group_advantage(reward, torch.tensor([3, 4, 5]))
    with pytest.raises(ValueError, match="reward of row 1 is nan"):
        group_advantage(torch.tensor([1.0, torch.nan]), torch.tensor([0, 0]))


@pytest.mark.parametrize(
    ("advantage", "expected", "still"), [(1.0, (1.28, 0.5, 1.1, 1.28), (0, 3)), (-1.0, (-1.5, -0.8, -1.1, -1.35), (1,))]
)
def test_the_clip_and_where_it_stops_the_gradient(advantage, expected, still):
    batch = make_batch(steps=((0, 1, 2, 3),), logp=[[-3.0] * 4])
    new = (batch.logp_old + torch.tensor([[1.5, 0.5, 1.1, 1.35]]).log()).requires_grad_(True)
    value, stats = clipped_surrogate(new, batch, torch.full((1, 4), advantage))
    assert float(value.detach()) == pytest.approx(sum(expected) / 4, abs=1e-5)
    (gradient,) = torch.autograd.grad(value, new)
    assert [i for i in range(4) if gradient[0, i] == 0] == list(still)
    assert stats["clipped_share"] == len(still) / 4


def test_aggregations():
    batch = make_batch(steps=((0, 0), (0, 0, 0, 0), ()))
    level = torch.tensor([[1.0], [-1.0], [9.0]]) * batch.mask
    new = batch.logp_old.clone()

    def of(**options):
        return float(clipped_surrogate(new, batch, level, **options)[0])

    assert of() == pytest.approx(-1 / 3)
    assert of(aggregation="row_mean") == pytest.approx(0.0)
    assert of(aggregation="constant", constant=4) == pytest.approx(-0.25)
    with pytest.raises(ValueError, match="constant"):
        of(aggregation="constant")


def test_parts_divided_by_the_wholes_denominator_add_up():
    batch = make_batch(steps=((0, 0), (0, 0, 0, 0), (0,)))
    value = torch.arange(12.0).reshape(3, 4) * batch.mask
    for how in ("token_mean", "row_mean"):
        whole = float(aggregate(value, batch.mask, how))
        total = denominator(batch.mask, how)
        parts = sum(float(aggregate(value[i : i + 1], batch.mask[i : i + 1], how, total=total)) for i in range(3))
        assert parts == pytest.approx(whole)


def test_the_divergence_from_the_reference():
    batch = make_batch(steps=((0, 0, 0),), logp=[[-2.0] * 3], logp_ref=torch.tensor([[-1.9, -2.2, -2.0]]))
    new = batch.logp_old.clone().requires_grad_(True)
    value, _ = clipped_surrogate(new, batch, torch.zeros(1, 3), kl=1.0)
    assert float(value.detach()) == pytest.approx(-(0.005171 + 0.018731) / 3, abs=1e-6)
    (gradient,) = torch.autograd.grad(value, new)
    torch.testing.assert_close(3 * gradient[0], torch.tensor([0.1, -0.2, 0.0]).exp() - 1, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="needs logp_ref"):
        clipped_surrogate(new, make_batch(steps=((0, 0, 0),)), torch.zeros(1, 3), kl=1.0)


def test_nan_in_padding_changes_nothing():
    results = []
    for fill in (0.0, torch.nan):
        batch = make_batch(logp=[[-1.0] * 4, [-1.0, -1.0, fill, fill]], logp_ref=torch.tensor([[-1.0] * 4, [-1.1, -1.1, fill, fill]]))
        new = torch.tensor([[-1.1] * 4, [-0.9, -0.8, fill, fill]], requires_grad=True)
        level = torch.tensor([[1.0] * 4, [-1.0, -1.0, fill, fill]])
        value, _ = clipped_surrogate(new, batch, level, weight=torch.where(batch.mask, 2.0, fill), kl=0.1)
        results.append((value.detach(), torch.autograd.grad(value, new)[0]))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


def test_at_ratio_1_the_objective_is_the_mean_level():
    batch = make_batch()
    level = torch.tensor([[2.0] * 4, [-1.0, -1.0, 0, 0]])
    value, stats = clipped_surrogate(batch.logp_old, batch, level)
    assert float(value) == pytest.approx((4 * 2 - 2) / 6)
    assert stats == {"clipped_share": 0.0, "log_ratio_mean": 0.0, "log_ratio_max": 0.0}


def test_the_dual_clip_bounds_what_a_large_ratio_costs():
    batch = make_batch(steps=((0,),), logp=[[-5.0]])
    new = torch.tensor([[-5.0]]) + torch.tensor(10.0).log()
    assert float(clipped_surrogate(new, batch, torch.tensor([[-1.0]]))[0]) == pytest.approx(-10, abs=1e-4)
    assert float(clipped_surrogate(new, batch, torch.tensor([[-1.0]]), dual_clip=3.0)[0]) == pytest.approx(-3, abs=1e-5)


def test_off_policy_rows_by_either_centre():
    """c = 2 and ρ = 1.5: 2·1.28 about the old policy, 1.28 about the behaviour; c is cut at 5."""
    batch = make_batch(steps=((0,),), logp=[[-3.0]], logp_behaviour=torch.tensor([[-3.0]]) - torch.tensor(2.0).log(), stale=True)
    new, level = torch.tensor([[-3.0]]) + torch.tensor(1.5).log(), torch.ones(1, 1)
    assert float(clipped_surrogate(new, batch, level)[0]) == pytest.approx(2.56, abs=1e-5)
    assert float(clipped_surrogate(new, batch, level, clip_centre="behaviour")[0]) == pytest.approx(1.28, abs=1e-5)
    far = make_batch(steps=((0,),), logp=[[-3.0]], logp_behaviour=torch.tensor([[-9.0]]), stale=True)
    assert float(clipped_surrogate(far.logp_old, far, level)[0]) == pytest.approx(5.0, abs=1e-5)


def test_only_the_new_log_probs_have_a_gradient_and_wrong_ones_are_named():
    batch = make_batch()
    with pytest.raises(ValueError, match="logp_new of row 1, token 1"):
        clipped_surrogate(torch.tensor([[-1.0] * 4, [-1.0, -torch.inf, 0, 0]]), batch, torch.ones(2, 4))
