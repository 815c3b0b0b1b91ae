"""Every robot of the package example-robot-data, with its meshes: MuJoCo's kinematics and inertia against Pinocchio's own."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.draft import draft_robot
from ros_rl.robots.urdf import MOVING, read_urdf
from ros_rl.sim.agreement import compare, reading_at_home
from ros_rl.sim.from_urdf import read_into_mujoco

STATES = 100


def urdfs() -> dict[str, Path]:
    """Every URDF of the package, by its path in there."""
    try:
        listed = [entry for entry in files("example-robot-data") or () if entry.suffix == ".urdf"]
    except PackageNotFoundError:
        pytest.skip("example-robot-data is not installed: pip install -e '.[robots]'", allow_module_level=True)
    return {entry.as_posix().split("/robots/", 1)[1]: Path(str(entry.locate())) for entry in listed}


# Two of its 69 files are none that anyone could load.
FAULTS = {
    "ur_description/urdf/ur3.urdf": "there is no <link>",
    "romeo_description/urdf/romeo_laas_small.urdf": r"mesh 'file:///usr/Romeo/.*/Torso\.mesh' is not there, tried /usr/Romeo",
}
RIGID = ("hector_description/robots/quadrotor_base.urdf", "iris_description/robots/iris_simple.urdf")
ROBOTS = {name: path for name, path in urdfs().items() if name not in FAULTS}


def test_there_are_as_many_as_we_say():
    assert len(ROBOTS) == 67
    assert {*FAULTS, *RIGID} < set(urdfs())


@pytest.mark.parametrize("name", ROBOTS)
def test_mujoco_reads_it_as_pinocchio_does(name):
    """Pinocchio reads the file itself, so that a repair that moved a frame or changed an inertia unasked would be found."""
    urdf = read_urdf(ROBOTS[name])
    robot = read_into_mujoco(urdf).mj.compile()
    data = mujoco.MjData(robot)
    original = pin.buildModelFromUrdf(str(ROBOTS[name]))
    workspace = original.createData()
    joints = [joint for joint in urdf.joints.values() if joint.kind in MOVING]
    dofs = [robot.joint(joint.name).dofadr[0] for joint in joints]
    columns = [original.joints[original.getJointId(joint.name)].idx_v for joint in joints]
    assert robot.nq == robot.nv == original.nv == len(joints)
    inertia_kept = not any(repair.kind in ("inertia", "mass") for repair in urdf.repairs)
    random = np.random.default_rng(0)
    for _ in range(STATES):
        for_pinocchio = np.zeros(len(joints))
        data.qpos[dofs] = for_pinocchio[columns] = [random.uniform(*limits(joint)) for joint in joints]
        mujoco.mj_fwdPosition(robot, data)
        configuration = pin.integrate(original, pin.neutral(original), for_pinocchio)
        pin.framesForwardKinematics(original, workspace, configuration)
        for link in urdf.links:
            placement = workspace.oMf[original.getFrameId(link, pin.FrameType.BODY)]
            np.testing.assert_allclose(data.body(link).xpos, placement.translation, rtol=0, atol=1e-6, err_msg=link)
            np.testing.assert_allclose(data.body(link).xmat, placement.rotation.ravel(), rtol=0, atol=1e-6, err_msg=link)
        if inertia_kept and joints:
            expected = pin.crba(original, workspace, configuration)[np.ix_(columns, columns)]
            found = np.zeros((robot.nv, robot.nv))
            mujoco.mj_fullM(robot, data, found)
            assert np.abs(found[np.ix_(dofs, dofs)] - expected).max() < 1e-6 * np.abs(expected).max()


def limits(joint) -> tuple[float, float]:
    return max(joint.lower, -np.pi), min(joint.upper, np.pi)


@pytest.mark.parametrize("name", [name for name in ROBOTS if name not in RIGID])
def test_both_agree_after_the_repairs(name):
    agreement = compare(draft_robot(ROBOTS[name]))
    assert agreement.fk < 1e-6
    assert agreement.mass_matrix < 1e-6
    assert agreement.inverse_dynamics < 1e-6


@pytest.mark.parametrize("name", FAULTS)
def test_the_others_are_refused_with_the_reason(name):
    with pytest.raises(UserError, match=FAULTS[name]):
        reading_at_home(draft_robot(urdfs()[name]))


@pytest.mark.parametrize("name", RIGID)
def test_a_robot_without_joints_needs_a_robot_yaml(name):
    with pytest.raises(UserError, match="no joint moves, so there is nothing to command"):
        draft_robot(ROBOTS[name])
