"""Tests of ros_rl.sim.terrain: the ground that a ray meets in MuJoCo is the one that is told."""

import mujoco
import numpy as np
import pytest

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.terrain import Terrain, bumpy


def ray_height(model: mujoco.MjModel, x: float, y: float) -> float:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return 2.0 - mujoco.mj_ray(model, data, np.array([x, y, 2.0]), np.array([0.0, 0.0, -1.0]), None, 1, -1, np.zeros(1, np.int32))


@pytest.fixture(scope="module")
def slope() -> Terrain:
    """0.1 m per m along x, 0.02 m per m along y."""
    along = np.linspace(-2.0, 2.0, 41)
    heights = 0.1 * along[None] + 0.02 * along[:, None]
    return Terrain(heights - heights.min(), 2.0)


def test_a_slope_is_where_it_is_told_and_rises_along_x(slope):
    model = build(load_robot("quadruped"), "floor", slope).mj
    for x, y in ((1.3, -1.1), (-1.55, 0.72), (1.0, 1.0)):
        told = slope.height(np.array([x]), np.array([y]))[0]
        assert told == pytest.approx(0.1 * (x + 2) + 0.02 * (y + 2), abs=1e-12)
        assert ray_height(model, x, y) == pytest.approx(told, abs=1e-6)


def test_beyond_its_edge_the_ground_is_as_high_as_there(slope):
    np.testing.assert_allclose(slope.height(np.array([9.0, -9.0]), np.array([9.0, -9.0])), [0.48, 0.0], atol=1e-12)


def test_bumps_are_as_high_as_asked_and_the_same_for_the_same_seed():
    ground = bumpy(3)
    np.testing.assert_array_equal(ground.heights, bumpy(3).heights)
    assert not np.array_equal(ground.heights, bumpy(4).heights)
    assert ground.heights.min() == 0.0 and 0.04 < ground.heights.max() <= 0.05
    blocks = ground.heights[:120, :120].reshape(8, 15, 8, 15)  # of 1.5 m
    assert (np.ptp(blocks, axis=(1, 3)) > 0.015).all()
    assert np.degrees(np.arctan(np.hypot(*np.gradient(ground.heights, 0.1)).max())) < 20


def test_bumps_in_mujoco_are_those_told_within_a_few_millimetres():
    ground, draw = bumpy(0), np.random.default_rng(0)
    model = build(load_robot("quadruped"), "floor", ground).mj
    for x, y in draw.uniform(1.0, 5.0, (50, 2)):
        assert ray_height(model, x, y) == pytest.approx(ground.height(np.array([x]), np.array([y]))[0], abs=3e-3)


def test_the_floor_keeps_its_friction(slope):
    plain, laid = (build(load_robot("quadruped"), "floor", ground).mj for ground in (None, slope))
    np.testing.assert_array_equal(laid.geom("floor").friction, plain.geom("floor").friction)
