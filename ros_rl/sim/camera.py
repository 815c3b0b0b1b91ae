"""Offscreen images of a running simulation, and of configurations that were recorded earlier."""

import atexit
import threading
import weakref
from collections.abc import Mapping
from functools import cache
from typing import Generic, Protocol, TypeVar

import mujoco
import numpy as np

from ros_rl.errors import unknown
from ros_rl.robots.spec import Camera
from ros_rl.sim.build import SimModel
from ros_rl.sim.gl import choose_gl


class _PerThread(threading.local):
    """An OpenGL context belongs to the thread that made it. Keys are (height, width)."""

    def __init__(self) -> None:
        self.renderers: dict[tuple[int, int], mujoco.Renderer] = {}


class Scenery(Protocol):
    """A model with the cameras that look at it; a `SimModel` is one."""

    @property
    def mj(self) -> mujoco.MjModel:
        """The compiled model."""

    @property
    def cameras(self) -> Mapping[str, Camera]:
        """Every camera by name."""


_Model = TypeVar("_Model", bound=Scenery)


class CameraRenderer(Generic[_Model]):
    """Renders the cameras of one model. Each thread that renders gets an OpenGL context of its own."""

    def __init__(self, model: _Model):
        """Prepares for one model; an OpenGL context is only made for the first image."""
        self.model = model
        self._local = _PerThread()

    def render(self, data: mujoco.MjData, camera: str, enlarged: int = 1) -> np.ndarray:
        """Returns what a camera sees, shape (height, width, 3), uint8 RGB; `data` has its kinematics up to date.

        Args:
            data: the simulation.
            camera: name of the camera.
            enlarged: how many times as high and wide as its images are.

        Raises:
            UserError: there is no such camera, or no way to render on this machine.
        """
        if camera not in self.model.cameras:
            raise unknown("camera", camera, self.model.cameras)
        size = enlarged * self.model.cameras[camera].height, enlarged * self.model.cameras[camera].width
        renderers = self._local.renderers
        if size not in renderers:
            renderers[size] = _new_renderer(self.model.mj, *size)
        view = mujoco.MjvCamera()
        view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, self.model.mj.camera(camera).id
        # Infinite planes are centred under the camera that the scene had before; without this, an image would depend on
        # the one rendered before it.
        mujoco.mjv_updateCamera(self.model.mj, data, view, renderers[size].scene)
        renderers[size].update_scene(data, view)
        return renderers[size].render()

    def close(self) -> None:
        """Frees the calling thread's contexts."""
        for renderer in self._local.renderers.values():
            renderer.close()
        self._local.renderers.clear()


def pose_and_render(
    renderer: CameraRenderer[SimModel], camera: str, joint_position: np.ndarray, state: Mapping[str, np.ndarray], enlarged: int = 1
) -> np.ndarray:
    """Returns an image of a given configuration, such as one from a recorded topic.

    Args:
        renderer: of the model to pose.
        camera: which camera.
        joint_position: of all measured joints, in `RobotSpec.measured_names` order, shape (n + passive,).
        state: poses of objects and the floating base, positions of scene joints, as in `Observation.privileged`; what
            is not in it stays where the scene has it.
        enlarged: how many times as high and wide as the camera's images are.

    Raises:
        UserError: there is no such camera or object, or no way to render on this machine.
    """
    model = renderer.model
    data = mujoco.MjData(model.mj)
    pose(model, data, joint_position, state)
    mujoco.mj_comPos(model.mj, data)
    mujoco.mj_camlight(model.mj, data)
    return renderer.render(data, camera, enlarged)


def pose(model: SimModel, data: mujoco.MjData, joint_position: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
    """Puts a simulation into a given configuration and computes where its bodies are; arguments as of `pose_and_render`.

    Raises:
        UserError: there is no such object.
    """
    data.qpos[model.qpos] = np.asarray(joint_position)[model.positioned]
    model.follow(data.qpos)
    free = {name: model.object_joint(name) for name in model.objects}
    if model.base_joint is not None:
        free["base_pose"] = model.base_joint
    for name, values in state.items():
        if name in free:
            data.qpos[model.free_qpos(free[name])] = values
        elif name in model.scene_joints:
            data.qpos[model.mj.jnt_qposadr[model.scene_joints[name]]] = values[0]
        elif name != "base_velocity":
            raise unknown("object", name, [*free, *model.scene_joints])
    mujoco.mj_kinematics(model.mj, data)


_alive: weakref.WeakSet[mujoco.Renderer] = weakref.WeakSet()


def _new_renderer(model: mujoco.MjModel, height: int, width: int) -> mujoco.Renderer:
    choose_gl()
    renderer = mujoco.Renderer(model, height, width)
    _alive.add(renderer)
    _close_all_at_exit()
    return renderer


@cache
def _close_all_at_exit() -> None:
    """Closes what is still open before OpenGL is shut down; registered after MuJoCo's own hook, so that it runs before it."""
    atexit.register(lambda: [renderer.close() for renderer in list(_alive)])
