"""Tests of ros_rl.web.scene: shapes have the size that the model says, and links are where Pinocchio says."""

import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.web.pilot import Pilot
from ros_rl.web.scene import TRUTH_NODE, ScenePanel, ScenePlacer, shapes_of
from ros_rl.web.server import WebServer
from ros_rl.web.view import View

BODY = """<mujoco><asset><material name="red" rgba="1 0 0 1"/><mesh name="tetra" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>
<worldbody><body name="body" pos="1 2 3"><freejoint/>{}</body></worldbody></mujoco>"""


def shapes(geoms: str):
    model = mujoco.MjModel.from_xml_string(BODY.format(geoms))
    return shapes_of(model, model.body("body").id)


def seated(names: str):
    return build(load_robot(names), "tabletop" if names == "arm" else "floor")


@pytest.mark.parametrize(
    ("geom", "volume", "extents"),
    [
        ('type="box" size="0.1 0.2 0.3"', 8 * 0.1 * 0.2 * 0.3, (0.2, 0.4, 0.6)),
        ('type="cylinder" size="0.1 0.2"', math.pi * 0.01 * 0.4, (0.2, 0.2, 0.4)),
        ('type="capsule" size="0.1 0.2"', math.pi * 0.01 * (0.4 + 4 / 3 * 0.1), (0.2, 0.2, 0.6)),
        ('type="sphere" size="0.1"', 4 / 3 * math.pi * 1e-3, (0.2, 0.2, 0.2)),
        ('type="ellipsoid" size="0.1 0.2 0.3"', 4 / 3 * math.pi * 6e-3, (0.2, 0.4, 0.6)),
        ('type="mesh" mesh="tetra"', 1 / 6, None),
    ],
)
def test_a_shape_has_the_volume_and_the_extents_of_its_geom(geom, volume, extents):
    (shape,) = shapes(f"<geom {geom}/>")
    assert shape.mesh.is_watertight
    assert shape.mesh.volume == pytest.approx(volume, rel=0.03)  # round ones are made of flat faces
    if extents is not None:
        assert shape.mesh.extents == pytest.approx(extents, rel=0.02)
        assert shape.mesh.bounds.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


def test_a_geom_is_where_the_body_has_it():
    (shape,) = shapes('<geom type="box" size="0.1 0.2 0.3" pos="1 0 0" euler="0 0 90"/>')
    assert shape.mesh.extents == pytest.approx((0.4, 0.2, 0.6))
    assert shape.mesh.bounds.mean(axis=0) == pytest.approx((1, 0, 0))


def test_geoms_of_one_colour_are_one_shape():
    red, blue = shapes(
        '<geom size="0.1" material="red"/><geom size="0.1" pos="1 0 0" rgba="1 0 0 1"/><geom size="0.1" pos="2 0 0" rgba="0 0 1 0.5"/>'
    )
    assert (red.rgba, blue.rgba) == ((1, 0, 0, 1), (0, 0, 1, 0.5))
    assert red.mesh.extents[0] == pytest.approx(1.2, rel=0.01)
    assert blue.mesh.bounds.mean(axis=0) == pytest.approx((2, 0, 0), abs=1e-6)


@pytest.mark.parametrize("geom", ['size="0.1" group="3"', 'size="0.1" rgba="1 0 0 0"'])
def test_what_mujoco_does_not_draw_is_not_drawn(geom):
    assert not shapes(f'<geom type="sphere" {geom}/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>')


@pytest.mark.parametrize(
    ("name", "imu"), [("arm", None), ("cartpole", None), ("quadruped", "imu"), ("quadruped", "FL_calf"), ("quadrotor", "imu")]
)
def test_links_are_where_pinocchio_has_them(name, imu):
    model = seated(name)
    model = replace(model, spec=replace(model.spec, imu_frame=imu))  # one on a leg is turned against the root link
    spec, robot, placer = model.spec, RobotModel(model.spec), ScenePlacer(model)
    draw = np.random.default_rng(0)
    for _ in range(5):
        q = draw.uniform(-0.5, 0.5, len(spec.measured_names))
        attitude = Rotation.random(random_state=int(draw.integers(1000)))
        position = draw.uniform(-1, 1, 3)
        x, y, z, w = attitude.as_quat()
        base = np.array([*position, w, x, y, z]) if spec.floating_base else None
        view = View(joint_position=q)
        if base is not None:
            # What is measured is the attitude of the IMU's link.
            imu = Rotation.from_matrix(robot.frame_pose(spec.imu_frame, q, base).rotation).as_quat()
            view = View(joint_position=q, base_position=position, base_quat=np.array([imu[3], *imu[:3]]))
        placer.place(view)
        origin = np.zeros(3) if spec.floating_base else np.array(spec.base_position)
        for link in robot.frames:
            pose = robot.frame_pose(link, q, base)
            body = model.mj.body(link).id
            assert placer.data.xpos[body] == pytest.approx(pose.position + origin, abs=1e-9), link
            assert placer.data.xmat[body].reshape(3, 3) == pytest.approx(pose.rotation, abs=1e-9), link


def test_a_base_that_is_not_measured_is_where_the_simulator_has_it_else_at_home():
    model = seated("quadruped")
    placer = ScenePlacer(model)
    assert placer.data.xpos[model.base] == pytest.approx(model.spec.base_position)
    pose = np.array([1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0])
    placer.place(View(joint_position=model.spec.home, truth={"base_pose": pose, "base_velocity": np.zeros(6)}))
    assert placer.data.xpos[model.base] == pytest.approx(pose[:3])
    measured = np.array([0.5, 0.5, 0.5])
    placer.place(View(joint_position=model.spec.home, truth={"base_pose": pose}, base_position=measured))
    assert placer.data.xpos[model.base] == pytest.approx(measured)
    placer.place(View(joint_position=model.spec.home))  # neither is heard any more: it stays
    assert placer.data.xpos[model.base] == pytest.approx(measured)


def test_objects_are_where_the_simulator_has_them_and_stay_where_nothing_is_known():
    model = seated("arm")
    placer = ScenePlacer(model)
    blue = placer.data.xpos[model.objects["blue_block"]].copy()
    there = np.array([0.3, 0.1, 0.2, 0.0, 0.0, 0.0, 1.0])
    placer.place(View(joint_position=model.spec.home, truth={"red_block": there}))
    assert placer.data.xpos[model.objects["red_block"]] == pytest.approx(there[:3])
    assert placer.data.xquat[model.objects["red_block"]] == pytest.approx(there[3:])
    assert placer.data.xpos[model.objects["blue_block"]] == pytest.approx(blue)
    before = placer.data.xpos.copy()
    placer.place(View())
    assert np.array_equal(placer.data.xpos, before)


@pytest.mark.parametrize("view", [{"joint_position": np.nan}, {"base_position": np.inf}, {"base_quat": np.nan}, {"truth": np.nan}])
def test_a_number_that_is_not_finite_moves_nothing(view):
    model = seated("quadrotor")
    placer = ScenePlacer(model)
    before = placer.data.xpos.copy()
    fine = {"joint_position": model.spec.home, "base_position": np.ones(3), "base_quat": np.array([1.0, 0, 0, 0])}
    (name, value), *_ = view.items()
    broken = {"base_pose": np.full(7, value)} if name == "truth" else np.full(np.shape(fine[name]), value)
    if name == "truth":
        del fine["base_position"]
    placer.place(View(**(fine | {name: broken})))
    assert np.array_equal(placer.data.xpos, before)


class Recorded:
    """Counts what a panel sends to a page."""

    def __init__(self, server):
        self.names: list[str] = []
        push = server.viser._websock_server.queue_message

        def spy(message):
            if type(message).__name__ in ("SetPositionMessage", "SetOrientationMessage"):
                self.names.append(message.name)
            push(message)

        server.viser._websock_server.queue_message = spy


@pytest.fixture
def served():
    server = WebServer(0, "token", Pilot(1.0))
    yield server
    server.stop()


def test_only_what_moves_is_sent(served):
    model = seated("arm")
    panel = ScenePanel(served.viser, model, simulated=True)
    home = View(joint_position=model.spec.home)
    panel.update(home, 0.0)
    sent = Recorded(served)
    panel.update(home, 1.0)
    assert sent.names == []
    wrist = model.spec.home.copy()
    wrist[5] += 0.3
    panel.update(View(joint_position=wrist), 2.0)
    moved = {name.rpartition("/")[2] for name in sent.names}
    chain = [model.mj.body(body).name for body in range(model.mj.nbody)]
    assert moved
    assert not moved & set(chain[: model.mj.body(model.mj.jnt_bodyid[model.mj.joint("joint6").id]).id])


@pytest.mark.parametrize(("follow", "seen"), [(True, (0.0, 0.0)), (False, (2.0, -1.0))])
def test_a_robot_that_walks_stays_in_view_if_it_is_followed(served, follow, seen):
    model = seated("quadruped")
    panel = ScenePanel(served.viser, model, simulated=True)
    panel._follow.value = follow
    base = np.array([*model.spec.base_position, 1.0, 0.0, 0.0, 0.0]) + [2.0, -1.0, 0.3, 0, 0, 0, 0]
    panel.update(View(joint_position=model.spec.home, truth={"base_pose": base}), 0.0)
    there = panel._root.position + panel._frames[model.base].position
    assert there == pytest.approx((*(np.array(model.spec.base_position[:2]) + seen), base[2]))  # up and down are not followed


def test_a_robot_that_stands_is_not_followed(served):
    assert ScenePanel(served.viser, seated("arm"), simulated=True)._follow is None


def test_what_only_a_simulator_knows_is_under_its_name_and_absent_on_a_robot(served):
    model = seated("arm")

    def drawn(simulated: bool) -> set[str]:
        served.viser.scene.reset()
        ScenePanel(served.viser, model, simulated)
        return {name.split("/")[3] for name in served.viser.scene._handle_from_node_name if name.startswith(f"{TRUTH_NODE}/")}

    assert drawn(True) == {"red_block", "blue_block", "bowl", "button", "button_cap"}
    assert drawn(False) == set()


@pytest.mark.parametrize("name", ["arm", "cartpole", "quadruped", "quadrotor"])
def test_the_view_that_a_page_opens_with_has_the_whole_robot_in_it(served, name):
    model = seated(name)
    ScenePanel(served.viser, model, simulated=True)
    camera = served.viser.initial_camera
    placer = ScenePlacer(model)
    forward = (camera.look_at - camera.position) / np.linalg.norm(camera.look_at - camera.position)
    right = np.cross(forward, [0, 0, 1]) / np.linalg.norm(np.cross(forward, [0, 0, 1]))
    up = np.cross(right, forward)
    for link in RobotModel(model.spec).frames:
        away = placer.data.xpos[model.mj.body(link).id] - camera.position
        assert away @ forward > 0
        for axis in (right, up):
            assert abs(away @ axis) / (away @ forward) < math.tan(camera.fov / 2)
