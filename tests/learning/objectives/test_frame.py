from dataclasses import replace

import pytest
import torch

from ros_rl.learning.objectives.frame import RolloutBatch, normalise, spread


def make_batch(steps=((0, 0, 1, 1), (0, 0)), group=None, outcome=None, logp=None, **changes):
    """Rows whose tokens belong to the given decision steps; log-probs are -1 where not given."""
    rows, length = len(steps), max(map(len, steps))
    step = torch.full((rows, length), -1)
    for row, entries in enumerate(steps):
        step[row, : len(entries)] = torch.tensor(entries)
    old = torch.full((rows, length), -1.0) if logp is None else torch.as_tensor(logp, dtype=torch.float32)
    fields = {
        "tokens": torch.zeros(rows, length, dtype=torch.long),
        "step": step,
        "mask": step >= 0,
        "temperature": torch.ones(rows, length),
        "logp_old": old,
        "logp_behaviour": old.clone(),
        "group": torch.zeros(rows, dtype=torch.long) if group is None else torch.as_tensor(group),
        "n_steps": torch.tensor([len(set(entries)) for entries in steps]),
        "outcome": torch.zeros(rows) if outcome is None else torch.as_tensor(outcome),
        "terminated": torch.zeros(rows, dtype=torch.bool),
        "truncated": torch.zeros(rows, dtype=torch.bool),
    }
    return RolloutBatch(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": torch.tensor([0.0, 0.5])}, "outcome of row 1 is 0.5"),
        ({"group": torch.zeros(3, dtype=torch.long)}, "group has the shape"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, "mask of row 1 is set at token 2"),
        ({"logp_old": torch.tensor([[-1.0] * 4, [0.5, -1, -1, -1]])}, "logp_old of row 1, token 0 .* is 0.5"),
        ({"logp_old": torch.tensor([[-1.0, torch.nan, -1, -1], [-1.0] * 4])}, "logp_old of row 0, token 1"),
        ({"logp_behaviour": torch.full((2, 4), -2.0)}, "mark the batch as stale"),
        ({"entropy": torch.zeros(2, 4, requires_grad=True)}, "entropy has a gradient"),
    ],
)
def test_batches_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_batch(**changes)


def test_padding_may_hold_nan_and_stale_batches_other_log_probs():
    logp = torch.tensor([[-1.0] * 4, [-1.0, -1.0, torch.nan, torch.inf]])
    batch = make_batch(logp=logp)
    assert batch.n.tolist() == [4, 2]
    assert replace(batch, logp_behaviour=torch.full((2, 4), -2.0), stale=True).stale


def test_normalising_within_groups():
    group = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    values = torch.tensor([1.0, 0, 0, 0, 5.0, 5.0, 3.0])
    expected = torch.tensor([1.732047, -0.577349, -0.577349, -0.577349, 0, 0, 0])
    torch.testing.assert_close(normalise(values, group), expected, atol=2e-5, rtol=0)
    assert (normalise(torch.full((7,), 0.7), torch.zeros(7, dtype=torch.long)) == 0).all()


def test_values_of_rows_and_of_steps_spread_over_tokens():
    batch = make_batch()
    assert spread(torch.tensor([2.0, 3.0]), batch).tolist() == [[2, 2, 2, 2], [3, 3, 0, 0]]
    assert spread(torch.tensor([[1.0, 2.0], [5.0, torch.nan]]), batch).tolist() == [[1, 1, 2, 2], [5, 5, 0, 0]]
