"""Tests of ros_rl.sim.film: videos and contact sheets read back."""

from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from ros_rl.robots.spec import load_robot
from ros_rl.sim.build import build
from ros_rl.sim.film import Film, Moment, Take

SCENE = """
<mujoco>
  <worldbody>
    <light directional="true" dir="0 1 -1" diffuse="1 1 1"/>
    <camera name="small" pos="0 -2 1" xyaxes="1 0 0 0 0 1" fovy="32" resolution="160 96"/>
    <geom type="box" size="4 0.1 4" pos="0 1 0" rgba="0.2 0.4 0.9 1"/>
    <frame name="robot"/>
  </worldbody>
</mujoco>
"""
WIDTH, HEIGHT = 640, 384  # four times the camera's own


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    scene = tmp_path_factory.mktemp("scene") / "scene.xml"
    scene.write_text(SCENE)
    film = Film(build(load_robot("cartpole"), scene), "small")
    yield film
    film.close()


@pytest.mark.parametrize(("width", "height"), [(200, 300), (300, 350), (700, 100), (128, 128)])
def test_a_camera_of_any_size_is_filmed(tmp_path, width, height):
    """Enlarged to at most what MuJoCo's framebuffer holds, 640 × 480."""
    (tmp_path / "scene.xml").write_text(SCENE.replace("160 96", f"{width} {height}"))
    film = Film(build(load_robot("cartpole"), tmp_path / "scene.xml"), "small")
    film.write_video(tmp_path / "video.mp4", [take("a", [0.0])], 10)
    film.close()
    times = 3 if width == 128 else 1
    assert [picture.shape for picture in frames(tmp_path / "video.mp4")] == [(times * height, times * width, 3)]


def take(caption: str, angles: list[float], success: bool | None = None) -> Take:
    return Take(caption, [Moment(0.1 * index, np.array([0.0, angle]), {}) for index, angle in enumerate(angles)], success)


def frames(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def band(image: np.ndarray) -> np.ndarray:
    """The right half of the caption: the time and the verdict."""
    return image[:34, WIDTH // 2 :].astype(int)


def test_a_video_shows_every_moment_of_all_takes(film, tmp_path):
    shown = []
    film.write_video(tmp_path / "video.mp4", [take("a", [0.0, 1.0, 2.0]), take("b", [0.0, 3.0])], 10, lambda: shown.append(1))
    pictures = frames(tmp_path / "video.mp4")
    assert len(pictures) == len(shown) == 5
    assert {picture.shape for picture in pictures} == {(HEIGHT, WIDTH, 3)}
    scene = [picture[34:].astype(int) for picture in pictures]
    assert np.abs(scene[-1] - scene[0]).mean() > 1.0
    assert np.abs(scene[3] - scene[0]).mean() < np.abs(scene[-1] - scene[0]).mean() / 4
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


def test_only_the_last_moment_tells_the_verdict(film, tmp_path):
    pictures = {}
    for success in (None, True, False):
        path = tmp_path / f"{success}.mp4"
        film.write_video(path, [take("a", [0.0, 0.0], success)], 10)
        pictures[success] = frames(path)
    for success in (True, False):
        assert np.abs(band(pictures[success][0]) - band(pictures[None][0])).max() < 40
        assert np.abs(band(pictures[success][1]) - band(pictures[None][1])).max() > 80
    assert np.abs(band(pictures[True][1]) - band(pictures[False][1])).max() > 80


def test_a_contact_sheet_has_a_row_of_five_for_every_take_that_has_moments(film, tmp_path):
    path = tmp_path / "sheet.png"
    film.write_contact_sheet(path, [take("a", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0], True), Take("nothing"), take("b", [0.0], False)])
    sheet = cv2.imread(str(path))
    assert sheet.shape == (2 * HEIGHT // 2, 5 * WIDTH // 2, 3)
    first, last = (sheet[20 : HEIGHT // 2, column : column + WIDTH // 2].astype(int) for column in (0, 4 * WIDTH // 2))
    assert np.abs(last - first).mean() > 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["sheet.png"]


def test_takes_without_moments_make_no_contact_sheet(film, tmp_path):
    film.write_contact_sheet(tmp_path / "sheet.png", [Take("nothing")])
    assert not list(tmp_path.iterdir())


def test_a_video_that_fails_half_way_leaves_the_old_one(film, tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(b"old")
    broken = Take("a", [Moment(0.0, np.zeros(2), {}), Moment(0.1, np.zeros(2), {"no such object": np.zeros(7)})])
    with pytest.raises(ValueError, match="no such object"):
        film.write_video(path, [broken], 10)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["video.mp4"]
