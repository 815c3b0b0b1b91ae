"""How an episode starts: joints near home, objects put down without touching, everything drawn from one seed."""

from fnmatch import fnmatchcase

import mujoco
import numpy as np

from ros_rl.errors import UserError, unknown
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.build import SimModel
from ros_rl.sim.observe import measured_positions
from ros_rl.sim.task import BaseRange, Clear, Reset, Task

_ATTEMPTS = 1000


def reset(model: SimModel, data: mujoco.MjData, task: Task | None, seed: int) -> None:
    """Puts a simulation into an initial state at time 0; the same seed gives the same state and future, bit for bit.

    Args:
        model: robot and world.
        data: the simulation to change; its solver's warm start is cleared too.
        task: what the state is drawn from; None puts the robot at home and leaves the scene's objects where they are.
        seed: of the random draw.

    Raises:
        UserError: the task is another robot's, speaks of joints or objects that are not there, or its objects do not fit side
            by side.
    """
    if task is not None:
        task.check_robot(model.spec.name)
    draw = np.random.default_rng(seed)
    ranges = Reset() if task is None else task.reset
    mujoco.mj_resetData(model.mj, data)
    try:
        data.qpos[model.qpos] = _joint_positions(model.spec, ranges, draw)[model.positioned]
        if model.base_joint is not None:
            _place_base(data.qpos[model.free_qpos(model.base_joint)], ranges.base, draw)
        _place_objects(model, data, ranges, draw)
        _place_scene_joints(model, data, ranges, draw)
    except UserError as error:
        raise UserError(f"{task.path}: {error}" if task else str(error)) from None
    model.follow(data.qpos)
    if model.base_joint is not None:
        _lift_out_of_ground(model, data, data.qpos[model.free_qpos(model.base_joint)])
    hold(model, data)


def hold(model: SimModel, data: mujoco.MjData) -> None:
    """Makes the present joint positions the target, and brings all that depends on the state up to date."""
    data.ctrl[model.actuators] = model.spec.rest(measured_positions(model, data.qpos))
    mujoco.mj_forward(model.mj, data)


def touching(model: SimModel, data: mujoco.MjData) -> np.ndarray:
    """Returns which contacts are between the robot and the world, bool, shape (contacts,)."""
    of_robot = model.mj.body_rootid[model.mj.geom_bodyid[data.contact.geom]] == model.base
    between: np.ndarray = of_robot[:, 0] != of_robot[:, 1]
    return between


def _joint_positions(spec: RobotSpec, ranges: Reset, draw: np.random.Generator) -> np.ndarray:
    noise = np.zeros(len(spec.measured_names))
    gripper = spec.gripper.joint if spec.gripper else None
    for pattern, width in ranges.joint_noise.items():
        # A few hundredths are nothing to an arm's joint and half of what a gripper opens: it has to be named.
        matched = [name == pattern or (fnmatchcase(name, pattern) and name != gripper) for name in spec.measured_names]
        if not any(matched):
            raise unknown("joint", pattern, spec.measured_names)
        noise[matched] = width
    joints = spec.joints + spec.passive
    positions = spec.home + draw.uniform(-noise, noise)
    return np.clip(positions, [joint.lower for joint in joints], [joint.upper for joint in joints])


def _place_base(pose: np.ndarray, ranges: BaseRange, draw: np.random.Generator) -> None:
    """Moves a floating base; `pose` is a view into the simulation, shape (7,)."""
    pose[:3] += [_between(ranges.x, draw), _between(ranges.y, draw), _between(ranges.z, draw)]
    pose[3:] = _turned(pose[3:], _between(ranges.yaw, draw))


def _between(bounds: list[float], draw: np.random.Generator) -> float:
    lower, upper = bounds
    return draw.uniform(lower, upper)


def _turned(quat: np.ndarray, yaw: float) -> np.ndarray:
    """Returns the attitude (w, x, y, z) after a turn about the world's z axis."""
    turned = np.empty(4)
    mujoco.mju_mulQuat(turned, np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]), quat)
    return turned


def _place_objects(model: SimModel, data: mujoco.MjData, ranges: Reset, draw: np.random.Generator) -> None:
    for name in [*ranges.objects, *(place.object for place in ranges.clear)]:
        if name not in model.objects:
            raise unknown("object", name, model.objects)
    poses = {name: data.qpos[model.free_qpos(model.object_joint(name))] for name in model.objects}
    for _ in range(_ATTEMPTS):
        places = {name: pose[:2].copy() for name, pose in poses.items()}
        places |= {name: np.array([_between(where.x, draw), _between(where.y, draw)]) for name, where in ranges.objects.items()}
        if _apart(np.array(list(places.values())).reshape(-1, 2), ranges.min_distance) and _all_clear(places, ranges.clear):
            break
    else:
        raise UserError(f"found no places for {', '.join(ranges.objects)} that are {ranges.min_distance} m apart in {_ATTEMPTS} attempts")
    for name, where in ranges.objects.items():
        poses[name][:2] = places[name]
        poses[name][3:] = _turned(poses[name][3:], _between(where.yaw, draw))


def _apart(places: np.ndarray, distance: float) -> bool:
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)[np.triu_indices(len(places), 1)]
    return bool((gaps >= distance).all())


def _all_clear(places: dict[str, np.ndarray], clear: list[Clear]) -> bool:
    """Whether no object is in a place that is kept clear, beside the object that the place is counted from."""
    for place in clear:
        others = np.array([where for name, where in places.items() if name != place.object]).reshape(-1, 2)
        if (np.linalg.norm(others - (places[place.object] + place.offset), axis=-1) < place.radius).any():
            return False
    return True


def _place_scene_joints(model: SimModel, data: mujoco.MjData, ranges: Reset, draw: np.random.Generator) -> None:
    for name, bounds in ranges.scene_joints.items():
        if name not in model.scene_joints:
            raise unknown("joint of the scene", name, model.scene_joints)
        data.qpos[model.mj.jnt_qposadr[model.scene_joints[name]]] = _between(bounds, draw)


def _lift_out_of_ground(model: SimModel, data: mujoco.MjData, pose: np.ndarray) -> None:
    """Raises a floating base until nothing of the robot is inside the world; `pose` is a view into the simulation, shape (7,)."""
    for _ in range(10):
        mujoco.mj_fwdPosition(model.mj, data)
        deepest = data.contact.dist[touching(model, data)].min(initial=0.0)
        if deepest >= 0.0:
            return
        pose[2] -= deepest
