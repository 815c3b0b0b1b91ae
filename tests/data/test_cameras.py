"""Tests of ros_rl.data.cameras."""

import pytest

from ros_rl.data.cameras import recorded_cameras
from ros_rl.errors import UserError
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build


def test_the_cameras_of_robot_and_scene_are_those_that_the_simulation_renders():
    spec = load_robot("arm")
    cameras = recorded_cameras(spec, "tabletop")
    assert [camera.name for camera in cameras] == ["wrist", "front", "overhead"]
    rendered = build(spec, "tabletop").cameras
    assert {camera.name: camera for camera in cameras} == {name: camera for name, camera in rendered.items() if not camera.optional}
    assert [camera.name for camera in recorded_cameras(spec, None)] == ["wrist"]
    assert recorded_cameras(spec, None, ["hand"]) == [rendered["hand"]]  # optional: where it is named
    assert [camera.name for camera in recorded_cameras(spec, "tabletop", ["overhead"])] == ["overhead"]
    assert recorded_cameras(spec, "tabletop", []) == []


def test_the_camera_that_follows_a_floating_base_is_recorded_where_it_is_named():
    spec = load_robot("quadruped")
    (follow,) = recorded_cameras(spec, "floor", ["follow"])
    rendered = build(spec, "floor").cameras["follow"]
    assert (follow.width, follow.height, follow.fovy, follow.rate) == (rendered.width, rendered.height, rendered.fovy, rendered.rate)
    assert "follow" not in [camera.name for camera in recorded_cameras(spec, "floor")]


def test_a_camera_of_another_size_keeps_it(tmp_path):
    scene = tmp_path / "small.xml"
    scene.write_text('<mujoco><worldbody><frame name="robot"/><camera name="top" resolution="64 48"/></worldbody></mujoco>')
    (camera,) = recorded_cameras(load_robot("cartpole"), scene)
    assert (camera.name, camera.width, camera.height) == ("top", 64, 48)


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("tabletop", r"unknown camera of arm in tabletop 'nose' \(known: front, hand"),
        (None, r"unknown camera of arm 'nose' \(known: hand, wrist\)"),
    ],
)
def test_an_unknown_camera_is_refused(scene, message):
    with pytest.raises(UserError, match=message):
        recorded_cameras(load_robot("arm"), scene, ["nose"])
