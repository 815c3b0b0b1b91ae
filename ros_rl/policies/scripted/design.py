"""Works out the scripted bundles: gains from the robots' dynamics, waypoints from their geometry, settings by choice."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are

from ros_rl import __version__
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.scripted import arm_circle, arm_pick_place, arm_program, quadrotor_pd, quadruped_gait, tabletop_expert
from ros_rl.policies.scripted.motion import tool_frame
from ros_rl.robots.ik import ROTATION_COST
from ros_rl.robots.legs import legs_of
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.safety.region import Region
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.linearise import rigid_body, zero_order_hold

_REGION = Region(d=0.2, tilt_limit=1.047, drop_limit=0.15)  # a trot stays below 0.13
_TURNS_FREELY = 0.02  # m/rad: an arm of five joints keeps to the place and turns its tool as it must


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


def stand(name: str, robot_name: str) -> Bundle:
    """The gait with its velocity limited to zero; also what brings the robot back when another policy brings it near a fall."""
    return replace(_gait(name, robot_name, np.zeros(3)), region=_REGION)


def trot(name: str, robot_name: str) -> Bundle:
    """Diagonal legs in step: a foot of each pair is on the ground all the time, all four for a fifth of it."""
    return _gait(name, robot_name, np.array([0.6, 0.3, 1.0]))


def _gait(name: str, robot_name: str, velocity_limit: np.ndarray) -> Bundle:
    robot = load_robot(robot_name)
    stance = [leg.hip + [0.0, leg.offset, -0.28] for leg in legs_of(robot).values()]
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


def circle(name: str, robot_name: str) -> Bundle:
    """A circle in front of the arm with the tool as it is at home, at 0.1 m/s."""
    robot = load_robot(robot_name)
    settings = arm_circle.Parameters(
        radius=0.08, period=5.0, ramp=2.0, approach=0.1, trim=4.0, trim_limit=0.05, rotation_cost=ROTATION_COST
    )
    rotation = RobotModel(robot).frame_pose(tool_frame(robot), robot.home).rotation
    return _circle(name, robot, settings, np.array([0.45, 0.0, 0.4]), rotation)


def so101_circle() -> Bundle:
    """A smaller circle nearer to the arm, the tool pointing ahead and down."""
    robot = load_robot("so101")
    settings = arm_circle.Parameters(
        radius=0.05, period=5.0, ramp=2.0, approach=0.1, trim=4.0, trim_limit=0.05, rotation_cost=_TURNS_FREELY
    )
    ahead = np.array([0.0, 0.0, 0.0, math.pi / 4, 0.0, 0.0])
    tool = RobotModel(robot).frame_pose(tool_frame(robot), ahead)
    # The tool is not quite in the middle plane, which such an arm cannot make up for without turning it.
    return _circle("so101_circle", robot, settings, np.array([0.25, tool.position[1], 0.16]), tool.rotation)


def _circle(name: str, robot: RobotSpec, settings: arm_circle.Parameters, centre: np.ndarray, rotation: np.ndarray) -> Bundle:
    rate = _rate(robot)
    return _bundle(name, "arm_circle", robot, rate, ["joint_position"], asdict(settings), {"centre": centre, "rotation": rotation})


# Heights are those of the objects in the tabletop scene, speeds are kept by the guard uncut. The fingertips are those of
# the hand that the arm and the Panda have.
_TABLETOP = arm_pick_place.Parameters(
    speed=0.3,
    slow=0.12,
    turn=2.0,
    clearance=0.12,
    fingertip=[0.0, 0.0, 0.0095],
    grip=0.4,
    bowl=arm_pick_place.Place(release=0.05, rest=0.028, radius=0.05),
    block=arm_pick_place.Place(release=0.041, rest=0.04, radius=0.02),
    button=0.044,
    press=0.0105,
    trim=4.0,
    trim_limit=0.05,
    rotation_cost=ROTATION_COST,
)
# Without a gripper the flange pushes, which is where the tool frame is.
_FLANGE = replace(_TABLETOP, fingertip=[0.0, 0.0, 0.0])
# The tip of the fixed jaw is beside the grasp centre. With the tool down the wrist is at its limit 0.09 m above the table:
# higher up, the tool leans.
_SO101 = replace(
    _TABLETOP, speed=0.2, slow=0.06, turn=1.5, clearance=0.06, fingertip=[0.034, 0.0, 0.006], grip=0.8, rotation_cost=_TURNS_FREELY
)


def pick_place(name: str, robot_name: str, settings: arm_pick_place.Parameters) -> Bundle:
    """The tabletop expert."""
    robot = load_robot(robot_name)
    scene = [f"privileged.{name}" for name in ("red_block", "blue_block", "bowl", "button", "button_press")]
    keys = ["instruction", "joint_position", *scene]
    return _bundle(name, "arm_pick_place", robot, _rate(robot), keys, asdict(settings), {})


# Numbers are those of the scenes of the suite: where items rest, and what handles are grasped by.
_PLACES = {
    "tabletop_blocks": {
        "bowl": tabletop_expert.Place(offset=[0.0, 0.0, 0.028], drop=0.03, radius=0.04, of="bowl"),
        "tray": tabletop_expert.Place(offset=[0.0, 0.0, 0.026], drop=0.004, radius=0.05, of="tray"),
        "purple_square": tabletop_expert.Place(offset=[0.66, 0.13, 0.02], drop=0.003, radius=0.035),
        "orange_square": tabletop_expert.Place(offset=[0.66, -0.13, 0.02], drop=0.003, radius=0.035),
    },
    "tabletop_fixtures": {
        "drawer": tabletop_expert.Place(offset=[-0.012, 0.0, 0.041], drop=0.015, radius=0.05, of="cabinet", handle="drawer"),
        "cabinet": tabletop_expert.Place(offset=[0.0, 0.0, 0.105], drop=0.003, radius=0.05, of="cabinet"),
    },
}
_SLIDES, _SINKS = [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]
_HANDLES = {
    "tabletop_blocks": {},
    "tabletop_fixtures": {
        "drawer": tabletop_expert.Handle(of="cabinet", grasp=[-0.107, 0.0, 0.045], axis=[-1.0, 0.0, 0.0], tolerance=0.008),
        "lever": tabletop_expert.Handle(of="slider_box", grasp=[0.0, 0.0, 0.05], axis=_SLIDES, tolerance=0.008),
        "knob": tabletop_expert.Handle(of="knob_box", grasp=[0.0, 0.0, 0.05], axis=[0.0, 0.0, 1.0], tolerance=0.12, turns=True),
        "green_button": tabletop_expert.Handle(of="button_box", grasp=[0.0, 0.055, 0.044], axis=_SINKS, tolerance=0.001),
        "yellow_button": tabletop_expert.Handle(of="button_box", grasp=[0.0, 0.0, 0.044], axis=_SINKS, tolerance=0.001),
        "red_button": tabletop_expert.Handle(of="button_box", grasp=[0.0, -0.055, 0.044], axis=_SINKS, tolerance=0.001),
    },
}
_OBJECTS = {
    "tabletop_blocks": ("red_block", "green_block", "blue_block", "yellow_block", "bowl", "tray"),
    "tabletop_fixtures": ("red_block", "blue_block", "sponge", "cabinet", "button_box", "slider_box", "knob_box"),
}


def suite(name: str, robot_name: str) -> Bundle:
    """The expert of one scene of the tabletop suite."""
    robot = load_robot(robot_name)
    motion = {field: getattr(_TABLETOP, field) for field in arm_program.Motion.__dataclass_fields__} | {"turn": 1.4}
    settings = tabletop_expert.Parameters(**motion, places=_PLACES[name], handles=_HANDLES[name], half=0.02, press=0.0085)
    scene = [f"privileged.{name}" for name in (*_OBJECTS[name], *_HANDLES[name])]
    return _bundle(name, "tabletop", robot, _rate(robot), ["instruction", "joint_position", *scene], asdict(settings), {})


def _rate(robot: RobotSpec) -> float:
    """Returns how often an arm's policy acts, Hz: 100, or at each control step where that does not divide the control rate."""
    return 100.0 if robot.control_rate % 100.0 == 0.0 else robot.control_rate


DESIGNS: dict[str, Callable[[], Bundle]] = {
    "arm_circle": partial(circle, "arm_circle", "arm"),
    "arm_pick_place": partial(pick_place, "arm_pick_place", "arm", _TABLETOP),
    "cartpole_lqr": cartpole_lqr,
    "go1_stand": partial(stand, "go1_stand", "go1"),
    "go1_trot": partial(trot, "go1_trot", "go1"),
    "go2_stand": partial(stand, "go2_stand", "go2"),
    "go2_trot": partial(trot, "go2_trot", "go2"),
    "panda_circle": partial(circle, "panda_circle", "panda"),
    "panda_pick_place": partial(pick_place, "panda_pick_place", "panda", _TABLETOP),
    "quadrotor_pd": partial(quadrotor, "quadrotor_pd", "quadrotor"),
    "quadrotor_wrench_pd": partial(quadrotor, "quadrotor_wrench_pd", "quadrotor_wrench"),
    "quadruped_stand": partial(stand, "quadruped_stand", "quadruped"),
    "quadruped_trot": partial(trot, "quadruped_trot", "quadruped"),
    "so101_circle": so101_circle,
    "so101_pick_place": partial(pick_place, "so101_pick_place", "so101", _SO101),
    "tabletop_blocks": partial(suite, "tabletop_blocks", "arm"),
    "tabletop_fixtures": partial(suite, "tabletop_fixtures", "arm"),
    "ur5_circle": partial(circle, "ur5_circle", "ur5"),
    "ur5_push": partial(pick_place, "ur5_push", "ur5", _FLANGE),
    "xarm7_circle": partial(circle, "xarm7_circle", "xarm7"),
    "xarm7_push": partial(pick_place, "xarm7_push", "xarm7", _FLANGE),
}

_SHAPES: dict[str, tuple[int, ...]] = {
    "instruction": (),
    "command": (3,),
    "base_quat": (4,),
    "base_gyro": (3,),
    "base_position": (3,),
    "base_velocity": (3,),
    "privileged.button_press": (2,),
    **{f"privileged.{joint}": (2,) for handles in _HANDLES.values() for joint in handles},
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
