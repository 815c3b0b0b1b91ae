"""Initial states with the tool already somewhere above the objects, so that demonstrations show the way from there too.

From home an expert flies to an object along nearly the same line each time. A policy that strays off that line comes into states of which
no demonstration tells the way on, and can stay there for good.
"""

import mujoco
import numpy as np

from ros_rl.policies.scripted.motion import tool_frame
from ros_rl.robots.ik import DifferentialIK, Unreachable
from ros_rl.robots.model import Pose, RobotModel
from ros_rl.sim.build import SimModel
from ros_rl.sim.observe import measured_positions
from ros_rl.sim.reset import hold, touching

_BESIDE = 0.06  # m, at most, in x and in y
_ABOVE = (0.08, 0.32)  # m, above the object's origin
_TURNED = np.pi / 4  # rad, at most, from the heading at home
_ATTEMPTS = 20


class Scatter:
    """Moves an arm to a random pose above a random object: the tool turned as at home but for its heading, and touching nothing."""

    def __init__(self, model: SimModel):
        """Prepares it.

        Args:
            model: an arm in a scene with objects that move freely.

        Raises:
            UserError: the robot has no tool frame.
        """
        self._model = model
        frame = tool_frame(model.spec)
        robot = RobotModel(model.spec)
        self._ik = DifferentialIK(robot, frame)
        self._home = robot.frame_pose(frame, model.spec.home).rotation
        self._origin = np.array(model.spec.base_position)

    def apply(self, data: mujoco.MjData, seed: int) -> bool:
        """Moves the arm of a simulation that was just reset; says whether a pose was found, else the arm stays where it was.

        Args:
            data: of the simulation.
            seed: of the pose.
        """
        draw = np.random.default_rng([seed, 11])
        before = data.qpos.copy()
        for _ in range(_ATTEMPTS if self._model.objects else 0):
            above = data.xpos[self._model.objects[str(draw.choice(sorted(self._model.objects)))]] - self._origin
            offset = np.array([*draw.uniform(-_BESIDE, _BESIDE, 2), draw.uniform(*_ABOVE)])
            yaw = draw.uniform(-_TURNED, _TURNED)
            turn = np.array([[np.cos(yaw), -np.sin(yaw), 0.0], [np.sin(yaw), np.cos(yaw), 0.0], [0.0, 0.0, 1.0]])
            try:
                joints = self._ik.solve(measured_positions(self._model, before), Pose(above + offset, turn @ self._home), 1e-3, 1e-2)
            except Unreachable:
                continue
            self._put(data, joints[self._model.positioned])
            if not touching(self._model, data).any():
                return True
            data.qpos[:] = before
        self._put(data, before[self._model.qpos])
        return False

    def _put(self, data: mujoco.MjData, joints: np.ndarray) -> None:
        data.qpos[self._model.qpos] = joints
        self._model.follow(data.qpos)
        hold(self._model, data)
