"""Tests of ros_rl.safety.prior."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.safety.prior import CallablePrior, LmiPrior, SafePrior, load_prior, save_prior

# Of the prior in conftest.py: V = 4 x² + v², u = (-2 x - 1.5 v) N with 4 N for the action 1.


def test_margin_and_safe_action_are_what_the_matrices_say(prior):
    assert isinstance(prior, SafePrior)
    states = np.array([[0.0, 0.0], [0.25, 0.0], [0.0, 0.5], [0.5, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(prior.value(states), [0.0, 0.25, 0.25, 1.0, 52.0])
    np.testing.assert_allclose(prior.margin(states), [1.0, 0.5, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(prior.safe_action(states)[:, 0], [0.0, -0.125, -0.1875, -0.25, -1.0])
    np.testing.assert_array_equal(prior.inside_box(states), [True, True, True, True, False])


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (0,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_and_tensors_of_any_leading_shape_give_the_same(prior, shape, dtype):
    states = np.random.default_rng(0).normal(size=(*shape, 2)).astype(dtype)
    tensors = torch.tensor(states)
    for name in ("radius", "value", "margin", "safe_action", "inside_box"):
        array, tensor = getattr(prior, name)(states), getattr(prior, name)(tensors)
        assert array.shape == tensor.shape == (shape + ((1,) if name == "safe_action" else ()))
        if name != "inside_box":
            assert array.dtype == dtype and tensor.dtype == tensors.dtype
        np.testing.assert_allclose(np.asarray(array, float), tensor.numpy().astype(float), rtol=1e-5, atol=1e-6)


def test_a_state_that_is_no_number_has_no_margin(prior):
    assert np.isnan(prior.margin(np.array([np.nan, 0.0])))
    assert not prior.inside_box(np.array([np.nan, 0.0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": np.eye(3)}, r"A has shape \(3, 3\), 2 states and 1 actions need \(2, 2\)"),
        ({"F": np.zeros((2, 2))}, "F has shape"),
        ({"B": np.full((2, 1), np.inf)}, "B is not finite"),
        ({"action_range": [0.0]}, "action_range must be more than 0"),
        ({"contraction": 1.0}, "contraction must be between 0 and 1, got 1.0"),
        ({"period": 0.0}, "period 0.0 must be more than 0"),
        ({"sharpness_bound": np.inf}, "sharpness_bound inf finite"),
        ({"P": np.diag([1.0, -1.0])}, "P is not symmetric and positive definite"),
        ({"P": np.array([[1.0, 0.1], [0.0, 1.0]])}, "P is not symmetric and positive definite"),
    ],
)
def test_malformed_numbers_are_refused(prior, change, message):
    with pytest.raises(UserError, match=message):
        replace(prior, **change)


def test_a_file_gives_the_same_prior_bit_for_bit(prior, tmp_path):
    save_prior(tmp_path / "new" / "prior.safetensors", prior)
    again = load_prior(tmp_path / "new" / "prior.safetensors")
    assert again.digest() == prior.digest()
    assert (again.state_names, again.action_names, again.empirical) == (prior.state_names, prior.action_names, False)
    for name, value in prior.to_tensors().items():
        assert again.to_tensors()[name].tobytes() == value.tobytes(), name


def test_a_matrix_that_lies_by_columns_is_written_right(prior, tmp_path):
    save_prior(tmp_path / "prior.safetensors", replace(prior, A=np.asfortranarray(prior.A)))
    np.testing.assert_array_equal(load_prior(tmp_path / "prior.safetensors").A, prior.A)


def test_the_digest_tells_any_change(prior):
    changes = [{"P": prior.P * (1 + 1e-15)}, {"sharpness_bound": 2.01}, {"empirical": True}, {"action_names": ("slide",)}, {"period": 0.01}]
    assert len({prior.digest(), *(replace(prior, **change).digest() for change in changes)}) == len(changes) + 1


def test_a_changed_or_incomplete_prior_is_refused(prior):
    tensors, words = prior.to_tensors(), prior.description()
    with pytest.raises(UserError, match=r"digest is \w+, \w+ was recorded"):
        LmiPrior.from_tensors(tensors | {"F": tensors["F"] * 1.001}, words)
    with pytest.raises(UserError, match="F is missing"):
        LmiPrior.from_tensors({name: value for name, value in tensors.items() if name != "F"}, words)
    with pytest.raises(UserError, match="digest is missing"):
        LmiPrior.from_tensors(tensors, {name: value for name, value in words.items() if name != "digest"})


@pytest.mark.parametrize("damage", [lambda data: data[:-8], lambda data: b"", lambda data: data[:200] + b"\xff" + data[201:]])
def test_a_damaged_file_is_refused_in_one_line(prior, tmp_path, damage):
    path = tmp_path / "prior.safetensors"
    save_prior(path, prior)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"prior\.safetensors: ") as caught:
        load_prior(path)
    assert "\n" not in str(caught.value)


def test_a_missing_prior_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none.safetensors: there is no safe prior; 'ros-rl safety certify' makes one"):
        load_prior(tmp_path / "none.safetensors")
    with pytest.raises(UserError, match=r"arm/safe_prior.safetensors: there is no safe prior"):
        load_prior("arm")
    with pytest.raises(UserError, match="unknown robot 'cartpol', did you mean 'cartpole'"):
        load_prior("cartpol")


def test_any_two_functions_are_a_prior():
    stance = CallablePrior(2, 1, lambda state: 1.0 - abs(state[..., 0]), lambda state: -state[..., :1])
    assert isinstance(stance, SafePrior)
    np.testing.assert_array_equal(stance.margin(np.array([[0.25, 5.0]])), [0.75])
    assert stance.safe_action(torch.tensor([0.25, 5.0])).tolist() == [-0.25]
    with pytest.raises(ValueError, match=r"margin must be within 0 and 1, got -0\.5"):
        stance.margin(np.array([1.5, 0.0]))
    with pytest.raises(ValueError, match=r"safe action must be within -1 and 1, got -1\.5"):
        stance.safe_action(np.array([[0.0, 0.0], [1.5, 0.0]]))
    with pytest.raises(ValueError, match="margin must be within 0 and 1, got nan"):
        stance.margin(torch.tensor([float("nan"), 0.0]))
