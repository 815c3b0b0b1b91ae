"""Tests of ros_rl.cli.robot."""

import json

import pytest

from ros_rl.cli.robot import RobotCheck
from ros_rl.robots.spec import load_robot, robot_names


@pytest.mark.parametrize("name", robot_names())
def test_robot_check(name, capsys):
    assert RobotCheck(name, json=True).run() == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["ok"] is True
    assert findings["repairs"] == []
    assert findings["warnings"] == []
    assert [joint["name"] for joint in findings["joints"]] == list(load_robot(name).measured_names)
    assert findings["fk_error"] < 1e-9
    assert findings["mass_matrix_error"] < 1e-6
    assert RobotCheck(name).run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"
