"""Tests of ros_rl.teleop.joy: axes and buttons become twists, by numbers computed by hand."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.teleop.joy import DIRECTIONS, MAPPINGS, Axis, Joy, JoyMapping, read_mapping

FRAMES = ("base", "tool")
NOTHING = Observation(0.0, np.zeros(0), np.zeros(0), np.zeros(0))


def pad(**pushed):
    """Returns the buttons of a gamepad, by index."""
    buttons = [0] * 11
    for name in pushed:
        buttons[int(name[1:])] = 1
    return buttons


def read(joy, axes, buttons, now=0.0):
    joy.receive(axes, buttons, now)
    return joy.read(NOTHING, now)


@pytest.mark.parametrize(
    ("deflection", "speed"),
    [
        (0.0, 0.0),
        (0.1, 0.0),  # the edge of the dead zone
        (0.55, 0.7 * 0.5 + 0.3 * 0.125),  # half of what is beyond it: 0.3875
        (-0.55, -0.3875),
        (1.0, 1.0),
        (-1.0, -1.0),
        (1.5, 1.0),  # a driver that is out of calibration
    ],
)
def test_dead_zone_and_expo(deflection, speed):
    mapping = JoyMapping(axes={"z": Axis(0)}, deadzone=0.1, expo=0.3)
    assert mapping.deflections([deflection])[DIRECTIONS.index("z")] == pytest.approx(speed)


def test_a_gamepad_moves_the_tool_as_its_sticks_point():
    joy = Joy(MAPPINGS["gamepad"], 0.2, 0.8)
    # Left stick up and left, right stick left and down, direction pad right and up: the drivers count left and up as positive.
    sample = read(joy, [1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0], pad(_5=1))
    assert sample.engaged
    np.testing.assert_allclose(sample.twist, [0.2, 0.2, -0.2, -0.8, 0.8, 0.8])
    assert not read(joy, [0.0] * 8, pad()).engaged


def test_a_spacemouse_passes_its_six_axes_and_lets_go_a_second_after_it_was_touched():
    joy = Joy(MAPPINGS["spacemouse"], 0.2, 0.8)
    assert not read(joy, [0.04] * 6, [0, 0]).engaged  # within the dead zone
    sample = read(joy, [1.0, -1.0, 1.0, -1.0, 1.0, -1.0], [0, 0], now=1.0)
    assert sample.engaged
    np.testing.assert_allclose(sample.twist, [0.2, -0.2, 0.2, -0.8, 0.8, -0.8])
    assert read(joy, [0.0] * 6, [0, 0], now=1.9).engaged
    assert not read(joy, [0.0] * 6, [0, 0], now=2.1).engaged
    assert read(joy, [0.0] * 6, [1, 0], now=3.0).engaged  # the gripper's button is a touch as well
    sample = read(joy, [0.0] * 6, [0, 1], now=3.1)
    assert (sample.engaged, sample.pressed) == (False, ("hand_back",))


def test_a_button_counts_when_it_goes_down_and_once():
    joy = Joy(MAPPINGS["gamepad"], 0.2, 0.8)
    axes = [0.0] * 8
    assert read(joy, axes, pad(_3=1)).pressed == ()  # held since before anybody looked
    assert read(joy, axes, pad()).pressed == ()
    joy.receive(axes, pad(_3=1, _7=1), 0.0)
    joy.receive(axes, pad(_3=1), 0.0)
    joy.receive(axes, pad(), 0.0)
    assert joy.read(NOTHING, 0.0).pressed == ("start", "success")
    assert joy.read(NOTHING, 0.0).pressed == ()


def test_gripper_buttons():
    joy = Joy(MAPPINGS["gamepad"], 0.2, 0.8)
    axes = [0.0] * 8
    assert read(joy, axes, pad(_5=1)).gripper is None
    assert read(joy, axes, pad(_5=1, _0=1)).gripper == 0.0
    assert read(joy, axes, pad(_5=1)).gripper == 0.0
    assert read(joy, axes, pad(_5=1, _1=1)).gripper == 1.0
    assert read(joy, axes, pad()).gripper is None  # let go: as it is from now on
    assert read(joy, axes, pad(_0=1)).gripper is None
    assert read(joy, axes, pad(_5=1)).gripper is None
    toggled = Joy(MAPPINGS["spacemouse"], 0.2, 0.8)
    found = [read(toggled, [0.0] * 6, [pushed, 0]).gripper for pushed in (0, 1, 1, 0, 1, 0, 1)]
    assert found == [None, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    assert read(toggled, [0.0] * 6, [0, 0], now=2.0).gripper is None
    assert read(toggled, [0.0] * 6, [1, 0], now=3.0).gripper == 1.0  # it was left closed


@pytest.mark.parametrize(
    ("axes", "buttons", "problem"),
    [
        (
            [0.0] * 4,
            [0] * 11,
            "a joy message has 4 axes and 11 buttons, the mapping needs 8 and 8; another device wants another joy_mapping",
        ),
        ([0.0] * 8, [0, 0], "a joy message has 8 axes and 2 buttons"),
        ([0.0] * 7 + [float("nan")], [0] * 11, "an axis that is not finite"),
    ],
)
def test_a_message_that_does_not_fit_lets_go(axes, buttons, problem):
    joy = Joy(MAPPINGS["gamepad"], 0.2, 0.8)
    read(joy, [1.0] * 8, pad(_5=1))
    with pytest.raises(UserError) as caught:
        joy.receive(axes, buttons, 0.0)
    assert problem in str(caught.value)
    assert joy.read(NOTHING, 0.0) is None


GOOD = "axes:\n  x: {index: 1, sign: -1}\ndead_man: 5\nbuttons:\n  success: 3\ndeadzone: 0.0\nexpo: 0.0\nframe: tool\n"


def test_a_mapping_from_a_file(tmp_path):
    path = tmp_path / "pad.yaml"
    path.write_text(GOOD)
    sample = read(Joy(read_mapping(str(path), FRAMES), 0.5, 1.0), [9.0, 0.5], [0] * 6)
    np.testing.assert_allclose(sample.twist, [-0.25, 0, 0, 0, 0, 0])
    assert sample.frame == "tool"


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("  x:", "  forward:", 2, "axes.forward"),
        ("index: 1", "index: -1", 2, "axes.x.index"),
        ("sign: -1", "sign: 2", 2, "axes.x.sign"),
        ("dead_man: 5", "deadman: 5", 3, "unknown key 'deadman', did you mean 'dead_man'?"),
        ("success: 3", "success: 5", 5, "button 5 is 'dead_man' already, it cannot be 'success' too"),
        ("deadzone: 0.0", "deadzone: 1.0", 6, "deadzone"),
        ("expo: 0.0", "expo: .nan", 7, "expo"),
        ("\n  x: {index: 1, sign: -1}", " {}", 1, "no axis moves the tool"),
        ("sign: -1}", "sign: -1}\n  y: {index: 1}", 3, "axis 1 is 'x' already, it cannot be 'y' too"),
        ("dead_man: 5", "dead_man: 5\ngripper: 0\nopen: 1", 4, "either one button 'gripper', or 'open' and 'close'"),
        ("frame: tool", "frame: tol", 8, "unknown frame 'tol', did you mean 'tool'? (known: base, tool)"),
    ],
)
def test_a_mistake_in_a_mapping_is_named_with_its_line(tmp_path, old, new, line, problem):
    path = tmp_path / "pad.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_mapping(str(path), FRAMES)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert problem in str(caught.value)


def test_an_unknown_mapping_lists_those_that_ship():
    with pytest.raises(UserError, match=r"unknown joy_mapping 'pad' \(known: gamepad, spacemouse, or a path to a YAML file\)"):
        read_mapping("pad", FRAMES)
