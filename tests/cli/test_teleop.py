"""Tests of ros_rl.cli.teleop: words become the command line of a node, and what cannot work is refused in one line."""

import pytest

from ros_rl.cli.main import main
from ros_rl.cli.teleop import Teleop


def test_the_node_gets_the_robot_and_the_namespace_of_the_bring_up():
    words = Teleop.from_words(["joy", "arm", "robot:=panda", "namespace:=left", "on_release:=hand_back"]).command()
    given = {word.partition(":=")[0]: word.partition(":=")[2] for word in words if ":=" in word}
    assert words[1:5] == ["-m", "ros_rl.nodes", "teleop_node", "--ros-args"]
    assert (given["__ns"], given["__node"]) == ("/left", "teleop_joy")
    assert (given["device"], given["robot"], given["on_release"], given["use_sim_time"]) == ("'joy'", "'panda'", "'hand_back'", "true")
    assert given["workspace"] == "[-2.0, -2.0, 0.0, 2.0, 2.0, 2.0]"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["mouse", "arm"], "unknown device 'mouse' (known: browser, joy, keyboard, leader, scripted, twist)"),
        (["joy"], "name the bring-up that runs after the device: one of cartpole, arm, tabletop, quadruped, quadrotor"),
        (["joy", "robot:=arm"], "name the bring-up that runs after the device"),
        (["joy", "leg"], "unknown bring-up 'leg'"),
        (["joy", "arm", "teleop:=joy"], "teleop:= is for 'ros-rl up'"),
        (["joy", "arm", "on_release:=fall"], "unknown value of on_release 'fall'"),
        (["keyboard", "arm"], "the keyboard needs a terminal, and standard input is none"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_code_2(words, problem, capsys):
    assert main(["teleop", *words]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.splitlines()) == 1


def test_help_lists_devices_and_bring_ups(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["teleop", "--help"])
    assert stop.value.code == 0
    assert "keyboard, joy, twist, leader, browser, scripted" in capsys.readouterr().out
