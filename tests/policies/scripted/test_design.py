"""Tests of ros_rl.policies.scripted.design: what ships is what the designs give."""

import numpy as np
import pytest

from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.interface import Policy
from ros_rl.policies.scripted.design import DESIGNS
from ros_rl.robots.spec import load_robot


@pytest.mark.parametrize("name", DESIGNS)
def test_the_shipped_bundle_is_the_design(name):
    shipped, designed = load_bundle(name), DESIGNS[name]()
    assert shipped.name == designed.name == name
    assert (shipped.actor, shipped.spec, shipped.parameters, shipped.region) == (
        designed.actor,
        designed.spec,
        designed.parameters,
        designed.region,
    )
    assert shipped.tensors.keys() == designed.tensors.keys()
    for key, tensor in designed.tensors.items():
        np.testing.assert_allclose(shipped.tensors[key], tensor, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", DESIGNS)
def test_the_shipped_bundle_makes_a_policy_and_was_measured(name):
    bundle = load_bundle(name)
    assert isinstance(load_policy(bundle, load_robot(bundle.spec.robot)), Policy)
    if bundle.actor == "tabletop":
        return  # measured split by split, by `ros-rl bench tabletop`
    assert bundle.metrics["tasks"]
    for metrics in bundle.metrics["tasks"].values():
        assert metrics["episodes"] >= 100
        assert metrics["success_rate"] >= 0.97
