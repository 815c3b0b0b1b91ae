"""Tests of ros_rl.sim.goals.quadruped: its state against MuJoCo's own, its starts, its trot and its falls."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from ros_rl.errors import UserError
from ros_rl.learning.training import look
from ros_rl.robots.legs import LEGS
from ros_rl.safety.stance import stance_prior
from ros_rl.sim.goals import quadruped
from ros_rl.sim.goals.quadruped import CORRECTION, LOWEST, RANGE, TILT, QuadrupedGoal, attitude, stance, trot
from ros_rl.sim.terrain import Terrain

PRIOR = stance_prior()
FLAT = Terrain(np.zeros((3, 3)), 6.0)


def environment_of(speeds=(0.2, 0.4, 0.6), terrain: Terrain | None = None, seed: int = 0, shrunk: float = 1.0) -> QuadrupedGoal:
    environment = QuadrupedGoal(np.array(speeds), replace(PRIOR, P=shrunk**2 * PRIOR.P), terrain)
    environment.reset(range(len(environment)), [[seed, copy] for copy in range(len(environment))])
    return environment


def test_attitudes_are_roll_pitch_and_yaw():
    angles = np.random.default_rng(0).uniform([-3, -1.5, -3], [3, 1.5, 3], (100, 3))
    quat = Rotation.from_euler("ZYX", angles[:, ::-1]).as_quat()[:, [3, 0, 1, 2]]
    np.testing.assert_allclose(np.stack(attitude(quat), axis=1), angles, atol=1e-9)


def test_an_episode_starts_with_the_feet_at_rest_on_the_uneven_ground():
    environment = environment_of([0.2] * 8)
    model, data = environment._sim.model, mujoco.MjData(environment._sim.mj)
    depth = stance().feet[:, 2] + stance().state[2]  # of a foot's middle above the ground, a trifle less than its radius
    assert (np.abs(depth - 0.017) < 1e-3).all()
    for copy in range(8):
        data.qpos[:], data.qvel[:] = environment._sim.qpos[copy], environment._sim.qvel[copy]
        mujoco.mj_forward(model.mj, data)
        for leg, above in zip(LEGS, depth, strict=True):
            foot, velocity = data.body(f"{leg}_foot").xpos, np.zeros(6)
            ground = environment.terrain.height(foot[:1], foot[1:2])[0]
            assert foot[2] - ground == pytest.approx(above, abs=1e-9)
            mujoco.mj_objectVelocity(model.mj, data, mujoco.mjtObj.mjOBJ_BODY, data.body(f"{leg}_foot").id, velocity, 0)
            np.testing.assert_allclose(velocity[3:], 0.0, atol=1e-4)


def test_starts_are_spread_over_ground_heading_and_stride():
    environment = environment_of([0.2] * 40)
    yaw = attitude(environment._sim.qpos[:, 3:7])[2]
    assert np.ptp(yaw) > 5.0 and np.ptp(environment._sim.qpos[:, 0]) > 1.0
    assert len(set(environment._phase)) > 10


def test_the_trot_leaves_room_for_its_correction_and_walks():
    assert np.abs(trot(np.array([0.0, 0.2, 0.6]))).max() + CORRECTION <= 1.0
    assert pytest.approx(0.25) == CORRECTION * RANGE
    environment = environment_of([0.6] * 4, shrunk=10.0)
    speeds, fallen = [], False
    for _ in range(150):
        fallen |= environment.step(environment.nominal).violation.any()
        speeds.append(environment.velocity[:, 0])
    assert not fallen
    assert 0.15 < np.mean(speeds[50:]) < 0.4  # a good deal slower than it should: that is left to learn


def test_velocities_are_along_the_heading():
    environment = environment_of([0.2] * 5)
    heading = Rotation.from_rotvec(np.outer(attitude(environment._sim.qpos[:, 3:7])[2], [0.0, 0.0, 1.0]))
    environment._sim.qvel[:, :3] = heading.apply([0.5, -0.2, 0.1])
    np.testing.assert_allclose(environment.velocity[:, :2], np.tile([0.5, -0.2], (5, 1)), atol=1e-12)


def test_the_reward_falls_with_the_velocity_off_the_goal_sideways_too_and_with_the_action():
    environment = environment_of([0.2, 0.4, 0.6])
    actions = np.random.default_rng(0).uniform(-0.3, 0.3, (3, 12))
    reward = environment.step(actions).reward
    forward, sideways = environment.velocity[:, 0] - [0.2, 0.4, 0.6], environment.velocity[:, 1]
    assert (np.abs(sideways) > 0.005).any()
    np.testing.assert_allclose(reward, np.exp(-(forward**2 + sideways**2) / 0.2**2) - 0.01 * (actions**2).sum(axis=1), atol=1e-12)


def test_the_reward_is_largest_at_the_speed_that_was_asked_for():
    environment = environment_of([0.0, 0.2, 0.4], FLAT, shrunk=1e3)
    reward = environment.step(np.zeros((3, 12))).reward  # it stands
    np.testing.assert_allclose(reward, np.exp(-([0.0, 1.0, 4.0] + np.zeros(3))), atol=0.02)


@pytest.mark.parametrize(
    ("state", "fallen"),
    [
        ([TILT + 0.01, 0, 0.3], True),
        ([-TILT - 0.01, 0, 0.3], True),
        ([0, TILT + 0.01, 0.3], True),
        ([0, 0, LOWEST - 0.01], True),
        ([TILT - 0.01, -TILT + 0.01, LOWEST + 0.01], False),
        ([0, 0, 0.5], False),  # however high
    ],
)
def test_a_robot_that_lies_or_tilts_has_fallen(state, fallen):
    environment = environment_of([0.2])
    assert environment._violation(np.array([[*state, 0, 0, 0]]) - PRIOR.state_equilibrium).tolist() == [fallen]


def test_a_fall_is_a_violation_that_ends_the_episode():
    environment = environment_of([0.2, 0.4], FLAT, shrunk=10.0)
    kicks, fallen = np.sign(np.random.default_rng(0).standard_normal((50, 2, 12))), np.zeros(2, bool)
    for step in range(200):
        outcome = environment.step(kicks[step // 4])
        low = environment.safety_state[:, 2] + PRIOR.state_equilibrium[2] < LOWEST
        tilted = (np.abs(environment.safety_state[:, :2] + PRIOR.state_equilibrium[:2]) > TILT).any(axis=1)
        np.testing.assert_array_equal(outcome.violation, low | tilted)
        np.testing.assert_array_equal(outcome.terminated, outcome.violation)
        assert not (outcome.truncated & outcome.terminated).any()
        fallen |= outcome.terminated
    assert fallen.all()


def test_a_state_that_is_no_number_is_refused():
    environment = environment_of()
    environment._sim.qpos[1, 2] = np.nan
    with pytest.raises(UserError, match="observation of copy 1 is not finite"):
        look(environment, PRIOR)


def test_the_last_of_an_observation_is_the_trot():
    environment = environment_of()
    np.testing.assert_array_equal(environment.observation[:, -12:], environment.nominal)
    before = environment.nominal
    environment.step(before)
    assert not np.array_equal(environment.nominal, before)
    for _ in range(quadruped._STRIDE_STEPS - 1):
        environment.step(environment.nominal)
    np.testing.assert_array_equal(environment.nominal, before)
