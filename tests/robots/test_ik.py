"""Differential inverse kinematics of the arm: targets are reached, limits hold, the gripper stays."""

import numpy as np
import pytest

from ros_rl.errors import RobotFault, UserError
from ros_rl.robots.ik import DifferentialIK, Unreachable
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.robots.spec import load_robot

PERIOD = 0.005


@pytest.fixture(scope="module")
def model():
    return RobotModel(load_robot("arm"))


@pytest.fixture(scope="module")
def ik(model):
    return DifferentialIK(model, "tool")


def random_positions(model, count, seed):
    random = np.random.default_rng(seed)
    return random.uniform(model.spec.lower, model.spec.upper, (count, len(model.spec.lower)))


def test_solves_for_poses_of_random_positions(model, ik):
    """Of 100 poses that some position within the limits has, at least 98 are found."""
    spec, found = model.spec, 0
    for position in random_positions(model, 100, seed=0):
        target = model.frame_pose("tool", position)
        try:
            q = ik.solve(spec.home, target)
        except Unreachable:
            continue
        found += 1
        pose = model.frame_pose("tool", q)
        assert np.linalg.norm(pose.position - target.position) <= 1e-4
        cosine = (np.trace(pose.rotation.T @ target.rotation) - 1) / 2
        assert np.arccos(np.clip(cosine, -1, 1)) <= 1e-3
        assert (spec.lower <= q).all()
        assert (q <= spec.upper).all()
        assert q[-1] == spec.home[-1]
    assert found >= 98


def test_step_keeps_position_and_velocity_limits(model, ik):
    spec = model.spec
    starts = random_positions(model, 20, seed=1)
    for q, other in zip(starts, random_positions(model, 20, seed=2), strict=True):
        target = model.frame_pose("tool", other)
        for _ in range(50):
            moved = ik.step(q, target, PERIOD)
            assert (spec.lower <= moved).all()
            assert (moved <= spec.upper).all()
            assert (np.abs(moved - q) <= spec.velocity * PERIOD + 1e-12).all()
            q = moved


def test_steps_arrive_and_stay(model, ik):
    home = model.frame_pose("tool", model.spec.home)
    target = Pose(home.position + np.array([0.1, 0.2, -0.2]), home.rotation)
    q = model.spec.home
    for _ in range(400):
        q = ik.step(q, target, PERIOD)
    distance, angle = ik.error(q, target)
    assert distance < 1e-5
    assert angle < 1e-5


def test_target_that_is_met_moves_nothing(model, ik):
    q = ik.step(model.spec.home, model.frame_pose("tool", model.spec.home), PERIOD)
    np.testing.assert_allclose(q, model.spec.home, atol=1e-9)


@pytest.mark.parametrize("position", [(2.0, 0.0, 0.5), (0.0, 1.5, 0.3), (0.0, 0.0, 2.0)])
def test_comes_to_rest_for_a_target_out_of_reach(model, ik, position):
    target = Pose(np.array(position), model.frame_pose("tool", model.spec.home).rotation)
    q = model.spec.home
    for _ in range(1000):
        last, q = q, ik.step(q, target, PERIOD)
    assert np.abs(q - last).max() / PERIOD < 0.05


def test_posture_decides_what_the_target_leaves_open(model):
    """With the tool held at home, the elbow of a 7-joint arm drifts to the side where the posture has it."""
    spec = model.spec
    target = model.frame_pose("tool", spec.home)
    for side in (-1.0, 1.0):
        posture = spec.home.copy()
        posture[0] += side
        ik = DifferentialIK(model, "tool", posture)
        q = spec.home
        for _ in range(1000):
            q = ik.step(q, target, PERIOD)
        assert side * q[0] > 0.1
        assert ik.error(q, target)[0] < 1e-4


def test_starts_outside_the_limits_count_as_at_the_limit(model, ik):
    q = model.spec.upper + 0.01
    q[-1] = model.spec.home[-1]
    moved = ik.step(q, model.frame_pose("tool", model.spec.home), PERIOD)
    assert (moved <= model.spec.upper).all()


def test_floating_base_is_taken_as_fixed():
    model = RobotModel(load_robot("quadruped"))
    ik = DifferentialIK(model, "FL_foot")
    moved = model.spec.home.copy()
    moved[:3] = [0.1, 0.7, -1.5]
    target = model.frame_pose("FL_foot", moved)
    np.testing.assert_allclose(ik.solve(model.spec.home, target), moved, atol=2e-3)


def test_turns_a_joint_without_limits(tmp_path):
    shipped = load_robot("cartpole")
    (tmp_path / "robot.yaml").write_text(
        f"name: crane\nurdf: {shipped.urdf}\ncontrol_rate: 100\ncommand_mode: velocity\n"
        "joints:\n  slider: {lower: -0.5}\n  pole: {velocity: 20}\n"
    )
    model = RobotModel(load_robot(tmp_path / "robot.yaml"))
    ik = DifferentialIK(model, "pole")
    np.testing.assert_allclose(ik.solve(np.array([0.0, 2.0]), model.frame_pose("pole", np.array([0.4, 4.0]))), [0.4, 4.0], atol=2e-3)
    with pytest.raises(Unreachable):
        ik.solve(np.zeros(2), model.frame_pose("pole", np.array([-0.6, 0.0])))


def test_unreachable_target_says_how_near_it_came(model, ik):
    with pytest.raises(Unreachable, match=r"'tool' cannot be brought to \(2\.000, 0\.000, 0\.000\) m .* is 1\.\d+ m and"):
        ik.solve(model.spec.home, Pose(np.array([2.0, 0, 0]), np.eye(3)))


def test_refuses_values_that_are_not_finite(model, ik):
    target = model.frame_pose("tool", model.spec.home)
    with pytest.raises(RobotFault, match="'tool': not finite"):
        ik.step(np.full(8, np.nan), target, PERIOD)
    with pytest.raises(RobotFault, match="'tool': not finite"):
        ik.step(model.spec.home, Pose(np.array([0, np.inf, 0]), target.rotation), PERIOD)


@pytest.mark.parametrize(
    ("robot", "frame", "message"),
    [
        ("arm", "tol", "unknown link of robot 'arm' 'tol', did you mean 'tool'"),
        ("arm", "base", "no joint moves 'base'"),
        ("arm", "finger2", "'finger2' cannot be moved, its joint 'finger_joint2' takes no command"),
        ("cartpole", "pole", "'pole' cannot be moved, its joint 'pole' takes no command"),
    ],
)
def test_refuses_frames_that_cannot_be_moved(robot, frame, message):
    with pytest.raises(UserError, match=message):
        DifferentialIK(RobotModel(load_robot(robot)), frame)


@pytest.mark.parametrize("robot", ["so101"])
def test_with_a_small_cost_of_rotation_an_arm_of_five_joints_keeps_to_the_place(robot):
    """The SO-101's wrist cannot point the tool down this high: one of place and rotation has to give."""
    model = RobotModel(load_robot(robot))
    down = model.frame_pose("grasp", np.array([0.0, -0.5, 0.5, np.pi / 2, 0.0, 0.9])).rotation
    target = Pose(np.array([0.2, -0.0017, 0.13]), down)
    errors = {}
    for cost in (0.5, 0.02):
        ik, q = DifferentialIK(model, "grasp", rotation_cost=cost), model.spec.home
        for _ in range(300):
            q = ik.step(q, target, 0.01)
        errors[cost] = ik.error(q, target)
    assert errors[0.02][0] < 2e-3 < 0.02 < errors[0.5][0]
    assert errors[0.5][1] < errors[0.02][1] < 0.5
