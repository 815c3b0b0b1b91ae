"""Videos of cameras: H.264 in MP4, one frame per row, frame i at i / fps."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

_GROUP = 8  # frames: readers jump to any row, so key frames are near
_QUALITY = 20  # constant rate factor of x264; 0 is lossless, 23 its default
_CODEC = "h264"


def video_info(fps: int, height: int, width: int) -> dict[str, Any]:
    """Returns what `meta/info.json` states of a video column."""
    return {
        "video.height": height,
        "video.width": width,
        "video.codec": _CODEC,
        "video.pix_fmt": "yuv420p",
        "video.is_depth_map": False,
        "video.fps": fps,
        "video.channels": 3,
        "has_audio": False,
    }


def write_video(path: Path, frames: Iterable[np.ndarray], fps: int) -> None:
    """Encodes frames, each (height, width, 3) uint8 RGB with even height and width."""
    options = {"crf": str(_QUALITY), "preset": "veryfast", "bf": "0"}
    with av.open(str(path), "w", format="mp4") as container:
        stream: Any = None
        for number, image in enumerate(frames):
            if stream is None:
                stream = container.add_stream("libx264", rate=fps, options=options)
                stream.height, stream.width = image.shape[:2]
                stream.pix_fmt, stream.gop_size = "yuv420p", _GROUP
                stream.time_base = Fraction(1, fps)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, fps)
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode())


def read_video(path: Path, start: float = 0.0) -> Iterator[tuple[float, np.ndarray]]:
    """Yields time in s and image (height, width, 3) uint8 of every frame from `start` on.

    Raises:
        OSError: it is no video, or damaged.
    """
    # av's errors for files are OSError for missing files and ValueError for broken ones.
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            if start > 0:
                assert stream.time_base is not None
                container.seek(int(start / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                if frame.time >= start - 1e-4:
                    yield frame.time, frame.to_ndarray(format="rgb24")
    except (av.FFmpegError, IndexError) as error:
        raise OSError(f"{path}: cannot be decoded ({error})") from None


def frame_size(path: Path) -> tuple[int, int]:
    """Returns height and width.

    Raises:
        OSError: it is no video, or damaged.
    """
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            return stream.height, stream.width
    except (av.FFmpegError, IndexError) as error:
        raise OSError(f"{path}: cannot be read ({error})") from None


def frame_times(path: Path) -> list[float]:
    """Returns the times in s of all frames, without decoding them.

    Raises:
        OSError: it is no video, or damaged.
    """
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            return sorted(float(packet.pts * packet.time_base) for packet in container.demux(stream) if packet.pts is not None)
    except (av.FFmpegError, IndexError) as error:
        raise OSError(f"{path}: cannot be read ({error})") from None
