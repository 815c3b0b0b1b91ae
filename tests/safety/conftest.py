"""Safe priors to test with, certified once."""

import numpy as np
import pytest

from ros_rl.safety.certify import Certified, certify_robot
from ros_rl.safety.prior import LmiPrior


@pytest.fixture(scope="session")
def cartpole() -> Certified:
    """The cart-pole at 50 Hz: a pole on a cart with ±20 N, |x| <= 1 m and |angle| <= 0.4 rad."""
    return certify_robot("cartpole", 50.0)


@pytest.fixture
def prior() -> LmiPrior:
    """A double integrator at 50 Hz under a feedback that damps it; its ellipsoid is round."""
    return LmiPrior(
        A=[[1.0, 0.02], [0.0, 1.0]],
        B=[[0.0002], [0.02]],
        P=np.diag([4.0, 1.0]),
        F=[[-2.0, -1.5]],
        action_range=[4.0],
        box=[[1.5, 0.0]],
        contraction=0.98,
        period=0.02,
        state_equilibrium=[0.25, 0.0],
        action_equilibrium=[1.0],
        sharpness_bound=2.0,
        empirical=False,
        state_names=("joint_position.slider", "joint_velocity.slider"),
        action_names=("slider",),
    )
