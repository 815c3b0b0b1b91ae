"""Tests of ros_rl.cli.serve: a bundle is served until the command is told to end."""

import os
import subprocess
import sys

import numpy as np

from ros_rl.cli.main import main
from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.robots.spec import load_robot


def test_a_bundle_is_served_as_it_acts_here():
    command = [sys.executable, "-m", "ros_rl.cli.main", "serve", "cartpole_lqr", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as server:
        try:
            line = server.stdout.readline()
            assert "serving 'cartpole_lqr' for robot 'cartpole' at ws://127.0.0.1:" in line
            robot = load_robot("cartpole")
            here, there = load_policy("cartpole_lqr", robot), load_policy(line.split()[-1], robot)
            there._settings.timeout = 60.0
            state = np.array([0.1, -0.2])
            observation = Observation(0.5, state, state, np.zeros(2))
            chunks = []
            for policy in (here, there):
                policy.reset(0, "balance")
                chunks.append(policy.act(observation).values)
            assert np.array_equal(*chunks)
            there.close()
        finally:
            server.terminate()  # an interrupt would be ignored where the tests run in the background
        assert server.wait(30) == 130


def test_what_cannot_be_served_is_refused(capsys):
    assert main(["serve", "cartpole_lqr", "--port", "70000"]) == 2
    assert main(["serve", "no_such_policy"]) == 2
    assert "unknown policy bundle 'no_such_policy'" in capsys.readouterr().err
