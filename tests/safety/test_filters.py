"""Tests of ros_rl.safety.filters: what a robot is made to do near the boundary of its safe set, and when nothing is safe."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import load_robot
from ros_rl.safety.autosafe import mixing_weight
from ros_rl.safety.filters import RULES, Mixing, PriorFilter, make_filter
from ros_rl.safety.interface import NoSafeAction, PassThrough, SafetyFilter
from ros_rl.safety.prior import CallablePrior, save_prior
from ros_rl.safety.simplex import Simplex

SPEC = load_robot("cartpole", 50.0)

# Of the prior in conftest.py: about x = 0.25 m and 1 N, V = 4 x² + v², u = (-2 x - 1.5 v) N, 4 N for the action 1, |x| <= 2/3 m.


def seen(x: float, v: float = 0.0) -> Observation:
    """The cart x m from its equilibrium, with its velocity."""
    return Observation(0.0, np.array([0.25 + x, 3.0]), np.array([v, 9.0]), np.zeros(2))


def test_autosafe_mixes_by_the_margin_in_the_robots_units(prior):
    safety = PriorFilter(SPEC, prior, Mixing(prior, 2.0))
    assert isinstance(safety, SafetyFilter)
    assert safety.reads == ("joint_position", "joint_velocity")
    command, report = safety.filter(seen(0.25), np.array([3.0]))
    weight = float(mixing_weight(0.5, 2.0))
    np.testing.assert_allclose(command, [1.0 + (1 - weight) * 2.0 + weight * -0.5])
    assert report.intervened
    assert report.values == {
        "weight": pytest.approx(weight),
        "sharpness": 2.0,
        "margin": pytest.approx(0.5),
        "lyapunov": pytest.approx(0.25),
        "exits": 0,
        "violations": 0,
    }


def test_any_prior_can_be_mixed_in():
    prior = CallablePrior(1, 1, lambda state: 1.0 - np.abs(state[..., 0]), lambda state: -state)
    action, watched = Mixing(prior, 0.0).act(np.array([0.25]), np.array([1.0]))
    np.testing.assert_allclose(action, [0.75 * 1.0 + 0.25 * -0.25])
    assert watched == {"weight": 0.25, "sharpness": 0.0}


def test_in_the_centre_the_policy_acts_alone(prior):
    command, report = PriorFilter(SPEC, prior, Mixing(prior, 2.0)).filter(seen(0.0), np.array([-2.5]))
    np.testing.assert_array_equal(command, [-2.5])
    assert not report.intervened


@pytest.mark.parametrize("name", RULES)
def test_without_an_action_the_safe_one_acts_and_the_state_is_judged_all_the_same(prior, name):
    safety = PriorFilter(SPEC, prior, RULES[name](prior), "hold")
    command, report = safety.filter(seen(0.25), None)
    np.testing.assert_allclose(command, [0.5])
    assert report.intervened
    assert (report.values["weight"], report.values["lyapunov"]) == (1.0, pytest.approx(0.25))
    with pytest.raises(NoSafeAction, match="outside the certified set"):
        safety.filter(seen(0.55), None)


def test_at_the_boundary_the_safe_action_alone_acts(prior):
    command, report = PriorFilter(SPEC, prior, Mixing(prior, 2.0)).filter(seen(0.5), np.array([5.0]))
    np.testing.assert_allclose(command, [0.0])
    assert report.values["weight"] == 1.0


@pytest.mark.parametrize("name", RULES)
def test_outside_every_filter_falls_back_and_counts_each_exit_once(prior, name):
    safety = PriorFilter(SPEC, prior, RULES[name](prior))
    found = [safety.filter(seen(x), np.array([5.0])) for x in (0.0, 0.55, 0.7, 0.6, 0.1, 0.75)]
    for (command, report), x in zip(found, (0.0, 0.55, 0.7, 0.6, 0.1, 0.75), strict=True):
        if abs(x) > 0.5:
            np.testing.assert_allclose(command, [1.0 - 2.0 * x])
            assert report.intervened and report.values["weight"] == 1.0 and report.values["margin"] == 0.0
    assert [report.values["exits"] for _, report in found] == [0, 1, 1, 1, 1, 2]
    assert [report.values["violations"] for _, report in found] == [0, 0, 1, 1, 1, 2]


def test_outside_it_may_hold_instead(prior):
    safety = PriorFilter(SPEC, prior, Mixing(prior, 2.0), "hold")
    safety.filter(seen(0.1), np.array([1.0]))
    with pytest.raises(NoSafeAction, match=r"outside the certified set, at 1\.100 of its radius"):
        safety.filter(seen(0.55), np.array([1.0]))
    assert safety.fallback() is None
    safety.filter(seen(0.1), np.array([1.0]))
    np.testing.assert_allclose(safety.fallback(), [0.8])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_state_that_is_no_number_has_no_safe_action(prior, bad):
    safety = PriorFilter(SPEC, prior, Mixing(prior, 2.0))
    safety.filter(seen(0.1), np.array([1.0]))
    with pytest.raises(NoSafeAction, match=r"joint_velocity\.slider is not finite") as caught:
        safety.filter(seen(0.1, bad), np.array([1.0]))
    assert isinstance(caught.value, RobotFault)
    assert safety.fallback() is None


def test_what_the_state_does_not_read_may_be_missing(prior):
    observation = replace(seen(0.1), joint_effort=np.full(2, np.nan), joint_position=np.array([0.35, np.nan]))
    command, _ = PriorFilter(SPEC, prior, Mixing(prior, 2.0)).filter(observation, np.array([1.0]))
    assert np.isfinite(command).all()


def test_an_action_beyond_the_range_is_cut_to_it(prior):
    command, report = PriorFilter(SPEC, prior, Simplex(prior)).filter(seen(0.0), np.array([30.0]))
    np.testing.assert_array_equal(command, [5.0])
    assert report.intervened


def test_a_new_episode_forgets_the_switch_but_not_the_counts(prior):
    safety = PriorFilter(SPEC, prior, Simplex(prior))
    safety.filter(seen(0.55), np.array([3.0]))
    safety.filter(seen(0.45), np.array([3.0]))
    assert safety.filter(seen(0.35), np.array([3.0]))[1].values["weight"] == 1.0
    safety.reset()
    assert safety.fallback() is None
    command, report = safety.filter(seen(0.35), np.array([3.0]))
    np.testing.assert_array_equal(command, [3.0])
    assert report.values["exits"] == 1


@pytest.mark.parametrize(
    ("robot", "rate", "message"),
    [
        ("cartpole", 0.0, "the safe prior is for 50 Hz, robot 'cartpole' runs at 100 Hz; 'ros-rl safety certify' makes one"),
        ("quadrotor", 50.0, "the safe prior commands slider; robot 'quadrotor' has rotor_1, rotor_2"),
    ],
)
def test_a_prior_for_another_robot_or_rate_is_refused(prior, robot, rate, message):
    with pytest.raises(UserError, match=message):
        PriorFilter(load_robot(robot, rate), prior, Mixing(prior, 2.0))


def test_filters_are_made_by_name(prior, tmp_path):
    assert isinstance(make_filter("none", SPEC, "no such file", "fallback"), PassThrough)
    save_prior(tmp_path / "p.safetensors", prior)
    for name in RULES:
        safety = make_filter(name, SPEC, tmp_path / "p.safetensors", "fallback")
        command, _ = safety.filter(seen(0.4, 0.55), np.array([5.0]))  # V is 0.94, and grows
        assert command[0] < 5.0, name
    with pytest.raises(UserError, match="there is no safe prior"):
        make_filter("simplex", load_robot("arm"), "arm", "fallback")


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("robot", ["cartpole", "quadrotor_wrench"])
def test_a_policy_that_pushes_outwards_does_not_leave_the_box(robot, name):
    from ros_rl.hardware.interface import JointCommand
    from ros_rl.hardware.mujoco import MujocoRobot
    from ros_rl.safety.stage import SafetyStage
    from ros_rl.sim.coordinates import Coordinates

    simulated = MujocoRobot(load_robot(robot), "floor")
    safety = make_filter(name, simulated.spec, robot, "fallback")
    prior = safety._prior
    Coordinates(simulated.spec, prior.state_names, prior.state_equilibrium).place(
        simulated.model, simulated.data, np.zeros(prior.state_size)
    )
    stage = SafetyStage(simulated.spec, safety)
    simulated.stop()
    pushed = prior.action_equilibrium + prior.action_range  # always as hard as it can, to one side
    for _ in range(400):
        command, report = stage.apply(simulated.read(), JointCommand(simulated.spec.joint_names, pushed, 0.0))
        simulated.write(command)
        simulated.step()
    assert report.values["violations"] == 0
    assert report.values["lyapunov"] > 0.05  # and yet it is pushed away from the centre
    if name == "autosafe":
        assert report.values["exits"] == 0
