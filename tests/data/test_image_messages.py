"""Tests of ros_rl.data.messages: images are read without being copied or decoded."""

import numpy as np
import pytest

from ros_rl.data.messages import encode, header, read_image
from ros_rl.errors import UserError


def made(encoding="rgb8", frame="", width=5, step=17, rows=3, cut=0):
    values = {"height": 3, "width": width, "encoding": encoding, "is_bigendian": 0, "step": step}
    pixels = (np.arange(rows * step) % 251).astype(np.uint8)
    data = encode("sensor_msgs/Image", {"header": header(7, frame), **values, "data": pixels.tobytes()})
    return data[: len(data) - cut], pixels.reshape(rows, step)


@pytest.mark.parametrize("frame", ["", "a", "ab", "abc", "abcd"])  # what follows is aligned
@pytest.mark.parametrize("encoding", ["rgb8", "bgr8"])
def test_encoding_and_pixels_are_those_of_the_message_without_the_padding_of_its_rows(frame, encoding):
    data, rows = made(encoding, frame)
    found, pixels = read_image(data)
    assert found == encoding and np.array_equal(pixels, rows[:, :15].reshape(3, 5, 3))


@pytest.mark.parametrize("wrong", [{"step": 14}, {"rows": 2}, {"cut": 1}])
def test_an_image_that_is_shorter_than_it_says_is_refused(wrong):
    with pytest.raises(UserError, match=r"an image of 5×3 with a step of \d+ has \d+ bytes"):
        read_image(made(**wrong)[0])


def test_another_encoding_is_refused_and_named():
    with pytest.raises(UserError, match="an image of 5×3 is in 8UC3; rgb8 or bgr8 is right"):
        read_image(made("8UC3")[0])
