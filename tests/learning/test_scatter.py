"""Tests of ros_rl.learning.scatter: arms that begin above an object."""

import numpy as np
import pytest

from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.scatter import Scatter
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import load_task


@pytest.fixture(scope="module")
def robot():
    robot = MujocoRobot(load_robot("arm"), load_task("put_in_bowl:red"))
    yield robot
    robot.close()


def poses(robot, seed):
    """Returns where MuJoCo has the tool, and all objects, after a scattered start: its own kinematics, not those of the solver."""
    robot.reset(seed)
    home = robot.data.body("tool").xmat.reshape(3, 3).copy()
    moved = Scatter(robot.model).apply(robot.data, seed)
    tool = robot.data.body("tool")
    objects = {name: robot.data.xpos[body].copy() for name, body in robot.model.objects.items()}
    return moved, tool.xpos.copy(), tool.xmat.reshape(3, 3).copy(), home, objects


def test_the_tool_points_down_above_an_object_and_touches_nothing(robot):
    nearest, headings = set(), []
    for seed in range(12):
        moved, place, rotation, home, objects = poses(robot, seed)
        assert moved
        offsets = {name: place - where for name, where in objects.items()}
        above = [name for name, (x, y, z) in offsets.items() if max(abs(x), abs(y)) <= 0.062 and 0.078 <= z <= 0.322]
        assert above, offsets
        nearest.update(above)
        # Home is drawn within 0.02 rad for each of seven joints.
        assert rotation[:, 2] == pytest.approx([0.0, 0.0, -1.0], abs=0.02) and home[2, 2] < -0.99
        headings.append(np.arctan2(rotation[1, 0], rotation[0, 0]) - np.arctan2(home[1, 0], home[0, 0]))
        mj = robot.model.mj
        bodies = [mj.body(body).name for body in mj.geom_bodyid[robot.data.contact.geom].ravel()]
        assert not [body for body in bodies if body.startswith(("link", "hand", "finger"))], bodies
        robot.step()
        assert robot.read().joint_velocity == pytest.approx(0.0, abs=0.2), "it is held where it was put"
    assert len(nearest) > 3 and np.ptp(np.remainder(np.array(headings) + np.pi, 2 * np.pi) - np.pi) > 0.7


def test_the_same_seed_gives_the_same_start_and_objects_stay(robot):
    first, again, other = (poses(robot, seed) for seed in (3, 3, 4))
    assert np.array_equal(first[1], again[1]) and not np.array_equal(first[1], other[1])
    robot.reset(3)
    assert all(np.array_equal(robot.data.xpos[body], first[4][name]) for name, body in robot.model.objects.items())


def test_an_arm_that_finds_no_place_stays_at_home(robot, monkeypatch):
    robot.reset(5)
    before = robot.read()
    scatter = Scatter(robot.model)
    monkeypatch.setattr("ros_rl.learning.scatter.touching", lambda model, data: np.array([True]))
    assert not scatter.apply(robot.data, 5)
    assert np.array_equal(robot.read().joint_position, before.joint_position)
