"""Tests of ros_rl.cli.up: what is typed is checked before anything starts."""

import pytest

from ros_rl.bringup import ARGUMENTS, BRINGUPS
from ros_rl.cli import main as cli


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cartpole", "mod:=robot"], "unknown argument 'mod', did you mean 'mode'?"),
        (["cartpole", "lockstpe:=true"], "unknown argument 'lockstpe', did you mean 'lockstep'?"),
        (["cartpol"], "unknown bring-up 'cartpol', did you mean 'cartpole'?"),
        (["robot:=arm"], "name the bring-up first: one of cartpole, arm, quadruped, quadrotor"),
        (["cartpole", "lockstep=true"], "'lockstep=true'"),
        (["cartpole", "lockstep:=yes"], "lockstep must be true or false, got 'yes'"),
        (["cartpole", "rate_factor:=0"], "rate_factor must be a number from 0.01 to 100, got 0"),
        (["cartpole", "seed:=1", "seed:=2"], "seed"),
        (["cartpole", "mode:=real"], "unknown value of mode 'real'"),
        (["cartpole", "policy:=arm_circle"], "bundle 'arm_circle' commands the joints joint1"),
        (["cartpole", "tasks:=push_button"], "task 'push_button' is for the robots arm, panda, so101, ur5, xarm7, not for 'cartpole'"),
        (["arm", "mode:=robot"], "reads simulator state, so it runs in mode:=sim only"),
        (["cartpole", "namespace:=my robot"], "namespace 'my robot'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, words, message):
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
