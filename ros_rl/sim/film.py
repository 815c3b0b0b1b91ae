"""Videos and contact sheets of recorded episodes, rendered after the fact so that control never waits for a picture."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import av
import cv2
import numpy as np

from ros_rl.paths import write_atomically
from ros_rl.sim.build import SimModel
from ros_rl.sim.camera import CameraRenderer, pose_and_render

_GREEN, _RED, _WHITE, _DARK = (120, 220, 120), (235, 110, 100), (240, 240, 240), (30, 30, 34)
_BAND = 34  # px, height of a caption
_SHEET_COLUMNS = 5
_LEAST_HEIGHT = 360  # px, of a film by a camera whose images are smaller
_FRAME_HEIGHT, _FRAME_WIDTH = 480, 640  # px, of MuJoCo's framebuffer, where no camera asks for a larger one


@dataclass(frozen=True, eq=False)
class Moment:
    """One moment of an episode: seconds since its start, joint positions (n + passive,) and simulator state by name."""

    stamp: float
    joint_position: np.ndarray
    state: dict[str, np.ndarray]


@dataclass
class Take:
    """What was recorded of one episode; `success` is None while it runs."""

    caption: str
    moments: list[Moment] = field(default_factory=list)
    success: bool | None = None


class Film:
    """Renders takes with one camera."""

    def __init__(self, model: SimModel, camera: str):
        """Prepares the renderer.

        Args:
            model: the robot in its world.
            camera: name of the camera.
        """
        self._renderer = CameraRenderer(model)
        self._camera = camera
        size = model.cameras[camera]
        self._enlarged = max(1, min(-(-_LEAST_HEIGHT // size.height), _FRAME_HEIGHT // size.height, _FRAME_WIDTH // size.width))
        self._height, self._width = self._enlarged * size.height, self._enlarged * size.width

    def write_video(self, path: Path, takes: Sequence[Take], rate: int, progress: Callable[[], None] = lambda: None) -> None:
        """Writes takes one after the other as an H.264 video; the file appears when it is whole.

        Args:
            path: of the .mp4.
            takes: with moments 1/rate s apart.
            rate: frames per second.
            progress: called after every frame.
        """
        video = io.BytesIO()
        with av.open(video, "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=rate, options={"crf": "20", "preset": "veryfast"})
            stream.width, stream.height, stream.pix_fmt = self._width, self._height, "yuv420p"
            for take in takes:
                for moment in take.moments:
                    frame = av.VideoFrame.from_ndarray(self._picture(take, moment), format="rgb24")
                    container.mux(stream.encode(frame))
                    progress()
            container.mux(stream.encode())
        write_atomically(path, video.getvalue())

    def write_contact_sheet(self, path: Path, takes: Sequence[Take]) -> None:
        """Writes one PNG with a row of pictures for each take, from its first moment to its last."""
        rows = []
        for take in takes:
            if not take.moments:
                continue
            moments = [take.moments[index] for index in np.linspace(0, len(take.moments) - 1, _SHEET_COLUMNS).astype(int)]
            pictures = [self._picture(take, moment) for moment in moments]
            half = [cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA) for picture in pictures]
            rows.append(np.hstack(half))
        if not rows:
            return
        written, encoded = cv2.imencode(".png", cv2.cvtColor(np.vstack(rows), cv2.COLOR_RGB2BGR))
        assert written
        write_atomically(path, encoded.tobytes())

    def close(self) -> None:
        """Frees the renderer."""
        self._renderer.close()

    def _picture(self, take: Take, moment: Moment) -> np.ndarray:
        """Renders one moment with its caption: the instruction, the time, and at the end whether it succeeded."""
        image = pose_and_render(self._renderer, self._camera, moment.joint_position, moment.state, self._enlarged)
        image[:_BAND] = _DARK
        last = moment is take.moments[-1]
        verdict, colour = ("", _WHITE) if not last or take.success is None else ("success", _GREEN) if take.success else ("failed", _RED)
        seconds = f"{moment.stamp:.1f} s"
        _text(image, take.caption, 10, _WHITE)
        _text(image, f"{verdict}  {seconds}" if verdict else seconds, -10, colour)
        return image


def _text(image: np.ndarray, text: str, x: int, colour: tuple[int, int, int]) -> None:
    """Writes into the caption band; a negative x is measured from the right edge."""
    font, scale, line = cv2.FONT_HERSHEY_SIMPLEX, 0.58, cv2.LINE_AA
    width = cv2.getTextSize(text, font, scale, 1)[0][0]
    left = x if x >= 0 else image.shape[1] + x - width
    cv2.putText(image, text, (left, _BAND - 11), font, scale, colour, 1, line)
