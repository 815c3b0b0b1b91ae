"""Tests of ros_rl.safety.region."""

import math

import pytest

from ros_rl.errors import UserError
from ros_rl.safety.region import Region

REGION = Region(0.35, 1.0, 0.15)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"d": 0.0, "tilt_limit": 1.0}, "d must be between 0 and 1, got 0"),
        ({"d": 1.0, "tilt_limit": 1.0}, "d must be between 0 and 1, got 1"),
        ({"d": math.nan, "tilt_limit": 1.0}, "d must be between 0 and 1, got nan"),
        ({"d": 0.5, "tilt_limit": 3.2}, "tilt_limit must be more than 0 and at most π rad, got 3.2"),
        ({"d": 0.5, "tilt_limit": math.nan}, "tilt_limit .* got nan"),
        ({"d": 0.5, "tilt_limit": 1.0, "drop_limit": -0.1}, "drop_limit must be more than 0 m, got -0.1"),
        ({"d": 0.5, "tilt_limit": 1.0, "height": math.inf}, "height must be more than 0 m, got inf"),
    ],
)
def test_numbers_out_of_range_are_refused(numbers, message):
    with pytest.raises(UserError, match=message):
        Region(**numbers)


def test_a_region_can_be_narrowed_limit_by_limit():
    assert REGION.narrowed() == REGION
    assert REGION.narrowed(d=0.2) == Region(0.2, 1.0, 0.15)
    assert REGION.narrowed(d=0.35, tilt_limit=0.8, drop_limit=0.1) == Region(0.35, 0.8, 0.1)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"d": 0.36}, "d may be at most 0.35, that of the recovery policy's bundle, got 0.36"),
        ({"tilt_limit": 1.1}, "tilt_limit may be at most 1,"),
        ({"drop_limit": 0.2}, "drop_limit may be at most 0.15"),
        ({"d": math.nan}, "d may be at most 0.35"),
        ({"d": -0.1}, "d must be between 0 and 1, got -0.1"),
    ],
)
def test_a_region_cannot_be_widened(limits, message):
    with pytest.raises(UserError, match=message):
        REGION.narrowed(**limits)


def test_a_limit_that_the_region_lacks_cannot_be_set():
    with pytest.raises(UserError, match=r"drop_limit 0.1 has no effect"):
        Region(0.35, 1.0).narrowed(drop_limit=0.1)
