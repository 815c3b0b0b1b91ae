"""Tests of ros_rl.cli.up: what is typed is checked before anything starts."""

import socket

import pytest

from ros_rl.bringup import ARGUMENTS, BRINGUPS
from ros_rl.cli import main as cli


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cartpole", "mod:=robot"], "unknown argument 'mod', did you mean 'mode'?"),
        (["cartpole", "lockstpe:=true"], "unknown argument 'lockstpe', did you mean 'lockstep'?"),
        (["cartpol"], "unknown bring-up 'cartpol', did you mean 'cartpole'?"),
        (["robot:=arm"], "name the bring-up first: one of cartpole, arm, tabletop, quadruped, quadrotor"),
        (["cartpole", "lockstep=true"], "'lockstep=true'"),
        (["cartpole", "lockstep:=yes"], "lockstep must be true or false, got 'yes'"),
        (["cartpole", "rate_factor:=0"], "rate_factor must be a number from 0.01 to 100, got 0"),
        (["cartpole", "seed:=1", "seed:=2"], "seed"),
        (["cartpole", "mode:=real"], "unknown value of mode 'real'"),
        (["cartpole", "policy:=arm_circle"], "bundle 'arm_circle' commands the joints joint1"),
        (["cartpole", "tasks:=push_button"], "task 'push_button' is for the robots arm, panda, so101, ur5, xarm7, not for 'cartpole'"),
        (["arm", "mode:=robot"], "reads simulator state, so it runs in mode:=sim only"),
        (["cartpole", "namespace:=my robot"], "namespace 'my robot'"),
        (["cartpole", "viewer:=true"], "viewer:=true needs a display"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, monkeypatch, words, message):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert cli.main(["up", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("ros-rl: ") and error.count("\n") == 1


@pytest.mark.parametrize(("words", "code"), [([], 2), (["--help"], 0)])
def test_the_help_lists_every_bring_up_and_argument(capsys, words, code):
    with pytest.raises(SystemExit) as stop:
        cli.main(["up", *words])
    assert stop.value.code == code
    text = capsys.readouterr().out
    assert all(name in text for name in BRINGUPS)
    assert all(f"  {name} " in text and parameter.description in text for name, parameter in ARGUMENTS.items())


def test_a_port_that_is_taken_is_refused_before_a_node_starts(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert cli.main(["up", "cartpole", "web:=true", f"web_port:={port}"]) == 2
    assert capsys.readouterr().err == f"ros-rl: web_port {port} is taken; choose another with web_port:=PORT\n"
