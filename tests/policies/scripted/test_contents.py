"""Tests of ros_rl.policies.scripted.contents: what is wrong in a bundle is named."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.robots.spec import load_robot

BUNDLE = load_bundle("arm_circle")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({key: value for key, value in BUNDLE.parameters.items() if key != "radius"}, "'radius'"),
        ({**BUNDLE.parameters, "radios": 1.0}, "'radios'"),
        ({**BUNDLE.parameters, "radius": "big"}, "'radius'"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(UserError, match=f"bundle 'arm_circle': parameter {message}"):
        load_policy(replace(BUNDLE, parameters=parameters), load_robot("arm"))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "has no tensor 'centre'"),
        ({**BUNDLE.tensors, "centre": np.zeros(2)}, r"'centre' has shape \(2,\), needed is \(3,\)"),
        ({**BUNDLE.tensors, "centre": np.full(3, np.nan)}, "'centre' is not finite"),
    ],
)
def test_wrong_tensors_are_named(tensors, message):
    with pytest.raises(UserError, match=message):
        load_policy(replace(BUNDLE, tensors=tensors), load_robot("arm"))
