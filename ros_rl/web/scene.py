"""The robot and its world in 3D: the shapes that MuJoCo reads from URDF and scene, placed by what is measured."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import trimesh
from mujoco import mjtGeom

from ros_rl.sim.build import SimModel
from ros_rl.sim.camera import pose
from ros_rl.sim.from_urdf import WORLD
from ros_rl.web.view import View

if TYPE_CHECKING:
    import viser

TRUTH = "simulation truth"
FOLLOW = "follow the robot"
ROOT = "/scene"  # names of nodes in the scene's tree
TRUTH_NODE = f"{ROOT}/{TRUTH}"
_DRAWN_GROUPS = 3  # geoms of the groups from 0 on that MuJoCo's own viewer draws; collision shapes are in the next one
_STILL = 1e-5  # m, and as much of a quaternion: smaller moves are not sent
_SEGMENTS = 32  # of a round shape
_FACETED = (mjtGeom.mjGEOM_BOX, mjtGeom.mjGEOM_CYLINDER)
_FROM = np.array([0.72, -0.55, 0.42])  # where the page looks from: the robot's front right, from above
_FOV = 0.8  # rad, height of the view
_FILL = 0.9  # how much of the view's height what is framed takes


@dataclass(frozen=True, eq=False)
class Shape:
    """Everything of one body that has one colour, in the body's frame; `rgba` from 0 to 1."""

    mesh: trimesh.Trimesh
    rgba: tuple[float, float, float, float]
    faceted: bool


def shapes_of(model: mujoco.MjModel, body: int) -> list[Shape]:
    """Returns what is to be seen of a body; planes, which have no end, are left out."""
    found: dict[tuple[tuple[float, ...], bool], list[trimesh.Trimesh]] = {}
    for geom in np.flatnonzero(model.geom_bodyid == body):
        kind = mjtGeom(model.geom_type[geom])
        material = model.geom_matid[geom]
        rgba = tuple(float(part) for part in (model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]))
        if kind == mjtGeom.mjGEOM_PLANE or model.geom_group[geom] >= _DRAWN_GROUPS or not rgba[3]:
            continue
        mesh = _mesh(model, int(geom), kind)
        if mesh is not None:
            mesh.apply_transform(_transform(model.geom_pos[geom], model.geom_quat[geom]))
            found.setdefault((rgba, kind in _FACETED), []).append(mesh)
    return [Shape(trimesh.util.concatenate(meshes), (*rgba,), faceted) for (rgba, faceted), meshes in found.items()]  # type: ignore[arg-type]


def _mesh(model: mujoco.MjModel, geom: int, kind: mjtGeom) -> trimesh.Trimesh | None:
    """Returns the shape of a geom in its own frame; None for kinds that URDFs and the scenes do not have."""
    size = model.geom_size[geom]
    if kind == mjtGeom.mjGEOM_BOX:
        return trimesh.creation.box(extents=2 * size)
    if kind == mjtGeom.mjGEOM_CYLINDER:
        return trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=_SEGMENTS)
    if kind == mjtGeom.mjGEOM_CAPSULE:
        capsule = trimesh.creation.capsule(radius=size[0], height=2 * size[1], count=(_SEGMENTS // 2, _SEGMENTS // 2))
        capsule.apply_translation(-capsule.bounds.mean(axis=0))
        return capsule
    if kind in (mjtGeom.mjGEOM_SPHERE, mjtGeom.mjGEOM_ELLIPSOID):
        sphere = trimesh.creation.icosphere(subdivisions=3)
        sphere.apply_scale(size if kind == mjtGeom.mjGEOM_ELLIPSOID else size[0])
        return sphere
    if kind == mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        vertices, faces = (
            array[start : start + count]
            for array, start, count in (
                (model.mesh_vert, model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]),
                (model.mesh_face, model.mesh_faceadr[mesh], model.mesh_facenum[mesh]),
            )
        )
        return trimesh.Trimesh(vertices.copy(), faces.copy(), process=False)
    return None


def _transform(position: np.ndarray, quat: np.ndarray) -> np.ndarray:
    transform = np.eye(4)
    transform[:3, :3], transform[:3, 3] = _rotation(quat), position
    return transform


def _rotation(quat: np.ndarray) -> np.ndarray:
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, np.asarray(quat, dtype=float))
    return rotation.reshape(3, 3)


class ScenePlacer:
    """Says where the bodies of a robot and its world are, given what is known of them."""

    def __init__(self, model: SimModel):
        """Starts with the robot at home and the objects where the scene has them."""
        self.model = model
        self.data = mujoco.MjData(model.mj)
        self._last_base = self.data.qpos[model.free_qpos(model.base_joint)].copy() if model.base_joint is not None else None
        self._imu = model.mj.body(model.spec.imu_frame).id if model.spec.imu_frame else model.base
        self.place(View(joint_position=model.spec.home))

    def place(self, view: View) -> None:
        """Places everything. What is not known stays where it is, and everything does if a number is not finite; a base that is not
        measured is where the simulator has it.
        """
        if view.joint_position is None:
            return
        known = [values for values in (view.joint_position, view.base_position, view.base_quat, *view.truth.values()) if values is not None]
        if not all(np.isfinite(values).all() for values in known):
            return
        state = dict(view.truth)
        if self.model.base_joint is not None:
            state["base_pose"] = self._base(view)
        pose(self.model, self.data, view.joint_position, state)

    def _base(self, view: View) -> np.ndarray:
        model = self.model
        base = np.array(view.truth.get("base_pose", self._last_base))
        if view.base_position is not None:
            base[:3] = view.base_position
        if view.base_quat is not None and model.spec.imu_frame:
            base[3:] = self._root_attitude(view, view.base_quat)
        self._last_base = base
        return base

    def _root_attitude(self, view: View, measured: np.ndarray) -> np.ndarray:
        """Returns the attitude of the root link, given that of the link that the IMU is on."""
        if self._imu == self.model.base:
            return measured
        assert view.joint_position is not None
        pose(self.model, self.data, view.joint_position, {"base_pose": np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])})
        back, attitude = np.empty(4), np.empty(4)
        mujoco.mju_negQuat(back, self.data.xquat[self._imu])
        mujoco.mju_mulQuat(attitude, measured, back)
        return attitude


class ScenePanel:
    """Draws the robot and the scene; what only a simulator knows is under a name of its own, and can be hidden.

    A robot that moves about stays in view, and the world moves under it, unless that is switched off.
    """

    period = 0.1  # s

    def __init__(self, server: "viser.ViserServer", model: SimModel, simulated: bool):
        """Draws everything once; updates then only move it.

        Args:
            server: the page.
            model: robot and scene.
            simulated: whether the scene's objects are there at all.
        """
        self._placer = ScenePlacer(model)
        self._server = server
        mj, scene = model.mj, server.scene
        objects = set(_with_children(mj, model.objects.values()) if model.objects else ())
        links = set(model.spec.read_urdf().links) - {WORLD}
        self._frames: dict[int, Any] = {}
        self._root = scene.add_frame(ROOT, show_axes=False)
        self._base, self._home = model.base, self._placer.data.xpos[model.base].copy()
        self._follow = server.gui.add_checkbox(FOLLOW, True) if model.base_joint is not None else None
        points = []
        for body in range(mj.nbody):
            shapes = shapes_of(mj, body)
            if not shapes or (body in objects and not simulated):
                continue
            name = f"{TRUTH_NODE if body in objects else ROOT + '/robot and world'}/{mj.body(body).name or body}"
            position, quat = self._placer.data.xpos[body], self._placer.data.xquat[body]
            frame = scene.add_frame(name, show_axes=False, position=position, wxyz=quat)
            if mj.body_weldid[body]:  # not welded to the world
                self._frames[body] = frame
            if body in objects or mj.body(body).name in links:
                points.append(np.vstack([shape.mesh.bounds for shape in shapes]) @ _rotation(quat).T + position)
            for index, shape in enumerate(shapes):
                _draw(scene, f"{name}/{index}", shape)
        for geom in np.flatnonzero(mj.geom_type == mjtGeom.mjGEOM_PLANE):
            _draw_ground(scene, f"{ROOT}/ground {geom}", mj, int(geom))
        self._sent = np.full((mj.nbody, 7), np.nan)
        _frame_view(server, np.vstack(points) if points else np.zeros((1, 3)))

    def update(self, view: View, now: float) -> None:
        """Moves what has moved."""
        self._placer.place(view)
        data = self._placer.data
        poses = np.hstack([data.xpos, data.xquat])
        away = data.xpos[self._base] - self._home
        following = self._follow is not None and self._follow.value
        moved = ~(np.abs(poses - self._sent).max(axis=1) < _STILL)
        with self._server.atomic():
            # The world is moved, not the camera: that stays where whoever looks has put it.
            self._root.position = (-away[0], -away[1], 0.0) if following else (0.0, 0.0, 0.0)
            for body, frame in self._frames.items():
                if moved[body]:
                    frame.position, frame.wxyz = poses[body, :3], poses[body, 3:]
                    self._sent[body] = poses[body]

    def start_over(self) -> None:
        """Has nothing to forget."""


def _with_children(model: mujoco.MjModel, roots: Any) -> Iterator[int]:
    """Yields bodies and everything fixed or jointed to them; a body's number is larger than its parent's."""
    found = set(roots)
    for body in range(1, model.nbody):
        if body in found or int(model.body_parentid[body]) in found:
            found.add(body)
            yield body


def _draw(scene: Any, name: str, shape: Shape) -> None:
    red, green, blue, alpha = shape.rgba
    scene.add_mesh_simple(
        name,
        shape.mesh.vertices.astype(np.float32),
        shape.mesh.faces.astype(np.uint32),
        color=tuple(round(255 * part) for part in (red, green, blue)),
        opacity=alpha if alpha < 1 else None,
        flat_shading=shape.faceted,
    )


def _draw_ground(scene: Any, name: str, model: mujoco.MjModel, geom: int) -> None:
    scene.add_grid(
        name,
        position=model.geom_pos[geom],
        wxyz=model.geom_quat[geom],
        infinite_grid=True,
        fade_distance=12.0,
        cell_size=0.25,
        section_size=1.0,
        plane_color=(228, 231, 235),
        plane_opacity=1.0,
    )


def _frame_view(server: "viser.ViserServer", points: np.ndarray) -> None:
    """Points the camera of a page that is opened at all of some points, shape (n, 3)."""
    low, high = points.min(axis=0), points.max(axis=0)
    radius = max(float(np.linalg.norm(high - low)) / 2, 0.05)
    centre, away = (low + high) / 2, _FROM / np.linalg.norm(_FROM)
    server.initial_camera.fov = _FOV
    server.initial_camera.look_at = centre
    server.initial_camera.position = centre + away * radius / (_FILL * np.sin(_FOV / 2))
    server.initial_camera.near = radius / 50
