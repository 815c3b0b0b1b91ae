"""Works out the scripted bundles: gains from the robots' dynamics, waypoints from their geometry, settings by choice."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are

from ros_rl import __version__
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.scripted import arm_circle, arm_pick_place, quadrotor_pd, quadruped_gait
from ros_rl.policies.scripted.motion import tool_frame
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.linearise import rigid_body, zero_order_hold


def cartpole_lqr() -> Bundle:
    """Feedback that weighs 0.3 m, 0.2 rad, 1 m/s, 1 rad/s and 10 N as equally bad (Bryson's rule)."""
    robot = load_robot("cartpole")
    state_cost, input_cost = np.diag(np.array([0.3, 0.2, 1.0, 1.0]) ** -2), np.diag(np.array([10.0]) ** -2)
    gain, _ = lqr(*linearised(robot), state_cost, input_cost)
    return _bundle("cartpole_lqr", "cartpole_lqr", robot, robot.control_rate, ["joint_position", "joint_velocity"], {}, {"gain": gain})


def linearised(robot: RobotSpec) -> tuple[np.ndarray, np.ndarray]:
    """Returns the matrices (2m, 2m) and (2m, n) of a fixed-base robot's motion about rest at home, per control period.

    The state is the offset of the m measured joints, then their velocities; the input the effort of the n commanded
    joints, held constant in between.
    """
    names = [f"{kind}.{name}" for kind in ("joint_position", "joint_velocity") for name in robot.measured_names]
    rest = np.concatenate([robot.home, np.zeros(len(robot.measured_names))])
    drift, effect = rigid_body(robot, Coordinates(robot, names, rest), np.zeros(len(robot.joints)))
    return zero_order_hold(drift, effect, robot.period)


def lqr(a: np.ndarray, b: np.ndarray, state_cost: np.ndarray, input_cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the gain K of u = -K x that minimises the sum of x'Qx + u'Ru over all steps, and its cost matrix P."""
    cost = solve_discrete_are(a, b, state_cost, input_cost)
    return np.linalg.solve(input_cost + b.T @ cost @ b, b.T @ cost @ a), cost


def quadruped_stand() -> Bundle:
    """The gait with its velocity limited to zero."""
    return _gait("quadruped_stand", np.zeros(3))


def quadruped_trot() -> Bundle:
    """Diagonal legs in step: a foot of each pair is on the ground all the time, all four for a fifth of it."""
    return _gait("quadruped_trot", np.array([0.6, 0.3, 1.0]))


def _gait(name: str, velocity_limit: np.ndarray) -> Bundle:
    robot = load_robot("quadruped")
    stance = [leg.hip + [0.0, leg.offset, -0.28] for leg in quadruped_gait.legs_of(robot).values()]
    return _bundle(
        name,
        "quadruped_gait",
        robot,
        robot.control_rate,
        ["joint_position", "command"],
        asdict(quadruped_gait.Parameters(frequency=2.0, duty=0.6, lift=0.06, full_lift_speed=0.1, settle=0.5)),
        {
            "stance": np.array(stance),
            "phase": np.array([0.0, 0.5, 0.5, 0.0]),
            "velocity_limit": velocity_limit,
            "acceleration_limit": np.array([0.5, 0.5, 1.0]),
        },
    )


def quadrotor(name: str, robot_name: str) -> Bundle:
    """Critically damped loops: 2.5 rad/s for the position, 12 rad/s for the tilt that serves it, 4 rad/s for the heading."""
    robot = load_robot(robot_name)
    position, attitude = np.full(3, 2.5), np.array([12.0, 12.0, 4.0])
    return _bundle(
        name,
        "quadrotor_pd",
        robot,
        robot.control_rate,
        ["base_position", "base_velocity", "base_quat", "base_gyro"],
        asdict(quadrotor_pd.Parameters(target=[0.0, 0.0, 1.0], yaw=0.0, reach=1.0)),
        {"position": position**2, "velocity": 2 * position, "attitude": attitude**2, "rate": 2 * attitude},
    )


def arm_circle_bundle() -> Bundle:
    """A circle in front of the arm with the tool as it is at home, at 0.1 m/s."""
    robot = load_robot("arm")
    return _bundle(
        "arm_circle",
        "arm_circle",
        robot,
        100.0,
        ["joint_position"],
        asdict(arm_circle.Parameters(radius=0.08, period=5.0, ramp=2.0, approach=0.1, trim=4.0, trim_limit=0.05)),
        {"centre": np.array([0.45, 0.0, 0.4]), "rotation": RobotModel(robot).frame_pose(tool_frame(robot), robot.home).rotation},
    )


def arm_pick_place_bundle() -> Bundle:
    """The tabletop expert: heights are those of the objects in the tabletop scene, speeds are kept by the guard uncut."""
    robot = load_robot("arm")
    settings = arm_pick_place.Parameters(
        speed=0.3,
        slow=0.12,
        turn=2.0,
        clearance=0.12,
        fingertip=0.0095,
        grip=0.4,
        bowl=arm_pick_place.Place(release=0.05, rest=0.028, radius=0.05),
        block=arm_pick_place.Place(release=0.041, rest=0.04, radius=0.02),
        button=0.044,
        press=0.0105,
        trim=4.0,
        trim_limit=0.05,
    )
    scene = [f"privileged.{name}" for name in ("red_block", "blue_block", "bowl", "button", "button_press")]
    keys = ["instruction", "joint_position", *scene]
    return _bundle("arm_pick_place", "arm_pick_place", robot, 100.0, keys, asdict(settings), {})


DESIGNS: dict[str, Callable[[], Bundle]] = {
    "arm_circle": arm_circle_bundle,
    "arm_pick_place": arm_pick_place_bundle,
    "cartpole_lqr": cartpole_lqr,
    "quadrotor_pd": partial(quadrotor, "quadrotor_pd", "quadrotor"),
    "quadrotor_wrench_pd": partial(quadrotor, "quadrotor_wrench_pd", "quadrotor_wrench"),
    "quadruped_stand": quadruped_stand,
    "quadruped_trot": quadruped_trot,
}

_SHAPES: dict[str, tuple[int, ...]] = {
    "instruction": (),
    "command": (3,),
    "base_quat": (4,),
    "base_gyro": (3,),
    "base_position": (3,),
    "base_velocity": (3,),
    "privileged.button_press": (2,),
}
_POSE = (7,)


def _bundle(
    name: str, actor: str, robot: RobotSpec, rate: float, keys: list[str], settings: dict[str, Any], tensors: dict[str, np.ndarray]
) -> Bundle:
    joints = (len(robot.measured_names),)
    shapes = {key: joints if key.startswith("joint_") else _SHAPES.get(key, _POSE) for key in keys}
    spec = PolicySpec(
        robot.name,
        robot.joint_names,
        tuple(ObservationKey(key, shape) for key, shape in shapes.items()),
        rate,
        command_mode=robot.command_mode,
    )
    training = {"command": f"python -m ros_rl.learning.scripted {name}", "revision": f"ros_rl {__version__}", "data": "none"}
    return Bundle(name, actor, "scripted", spec, settings, tensors, training)
