"""Tests of ros_rl.sim.camera."""

import threading

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.camera import CameraRenderer, pose_and_render
from ros_rl.sim.task import load_task


@pytest.fixture(scope="module")
def arm() -> MujocoRobot:
    return MujocoRobot(load_robot("arm"), load_task("push_button"), seed=3)


@pytest.fixture
def renderer(arm):
    renderer = CameraRenderer(arm.model)
    yield renderer
    renderer.close()


def test_images_show_something(arm, renderer):
    for name, camera in arm.model.cameras.items():
        image = renderer.render(arm.data, name)
        assert image.shape == (camera.height, camera.width, 3)
        assert image.dtype == np.uint8
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 100


def test_the_red_block_is_where_it_should_be_in_the_overhead_image(arm, renderer):
    """Pinhole projection by hand: the camera looks straight down with the image's up along +x and right along -y."""
    image = renderer.render(arm.data, "overhead").astype(int)
    red = (image[..., 0] > 2 * image[..., 1]) & (image[..., 0] > 2 * image[..., 2]) & (image[..., 0] > 80)
    row, column = np.argwhere(red).mean(axis=0)
    camera = arm.model.mj.camera("overhead")
    focal = image.shape[0] / 2 / np.tan(np.radians(camera.fovy[0]) / 2)
    position = arm.data.body("red_block").xpos
    depth = camera.pos[2] - position[2] - 0.02  # to the block's top
    assert column == pytest.approx(image.shape[1] / 2 - focal * (position[1] - camera.pos[1]) / depth, abs=3)
    assert row == pytest.approx(image.shape[0] / 2 - focal * (position[0] - camera.pos[0]) / depth, abs=3)


def test_a_recorded_configuration_looks_as_it_did(arm, renderer):
    observation = arm.read()
    again = pose_and_render(renderer, "front", observation.joint_position, observation.privileged)
    np.testing.assert_array_equal(again, renderer.render(arm.data, "front"))


def test_a_recorded_floating_base_looks_as_it_did():
    robot = MujocoRobot(load_robot("quadruped"), load_task("quadruped_trot"), seed=3)
    renderer = CameraRenderer(robot.model)
    observation = robot.read()
    again = pose_and_render(renderer, "follow", observation.joint_position, observation.privileged)
    np.testing.assert_array_equal(again, renderer.render(robot.data, "follow"))
    renderer.close()


def test_the_following_camera_moves_with_the_base():
    robot = MujocoRobot(load_robot("quadruped"), "floor")
    before = robot.data.camera("follow").xpos.copy()
    robot.data.qpos[robot.model.free_qpos(robot.model.base_joint)][:3] += [3.0, 1.0, 0.0]
    mujoco.mj_forward(robot.model.mj, robot.data)
    np.testing.assert_allclose(robot.data.camera("follow").xpos - before, [3.0, 1.0, 0.0], atol=1e-9)


def test_threads_render_side_by_side(arm, renderer):
    expected = renderer.render(arm.data, "front")
    images = []

    def work() -> None:
        images.append(renderer.render(arm.data, "front"))
        renderer.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(images) == 2
    for image in images:
        np.testing.assert_array_equal(image, expected)


def test_unknown_names(arm, renderer):
    with pytest.raises(UserError, match="unknown camera 'fornt', did you mean 'front'"):
        renderer.render(arm.data, "fornt")
    with pytest.raises(UserError, match="unknown object 'red_blok', did you mean 'red_block'"):
        pose_and_render(renderer, "front", arm.spec.home, {"red_blok": np.zeros(7)})


def test_no_opengl_is_reported_as_it_was_found_out(arm, monkeypatch):
    def nothing_renders() -> str:
        raise UserError("cannot render; install OpenGL")

    monkeypatch.setattr("ros_rl.sim.camera.choose_gl", nothing_renders)
    with pytest.raises(UserError, match="install OpenGL"):
        CameraRenderer(arm.model).render(arm.data, "front")


def test_large_cameras_fit_into_the_buffer(tmp_path):
    scene = tmp_path / "scene.xml"
    scene.write_text('<mujoco><worldbody><frame name="robot"/><camera name="big" resolution="1920 1080"/></worldbody></mujoco>')
    model = build(load_robot("cartpole"), str(scene))
    assert (model.mj.vis.global_.offwidth, model.mj.vis.global_.offheight) == (1920, 1080)
