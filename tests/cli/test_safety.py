"""Tests of `ros-rl safety certify`."""

import json
import re

import cv2
import numpy as np
import pytest

from ros_rl.cli.main import main
from ros_rl.cli.safety import picture
from ros_rl.safety.prior import load_prior


@pytest.fixture(autouse=True)
def few_rollouts(monkeypatch):
    monkeypatch.setattr("ros_rl.cli.safety._ROLLOUTS", 100)


def test_the_page_says_what_is_safe_and_how_it_was_checked(capsys):
    assert main(["safety", "certify", "cartpole", "--rate", "50"]) == 0
    page = capsys.readouterr().out
    for line in (
        "at 50 Hz: V(s) = s'Ps <= 1 under u = F s",
        "joint_position.slider  0.6042       1        10.4",
        "contraction per period      0.960000 (0.96 asked for)",
        "margin to the safe box      0.00, 0.00 %",
        "rollouts that leave         0.00% of 100 in the linear model (100 periods), 0.00% in the simulator (20)",
        "sharpness bound             2.26 (proven)",
    ):
        assert line in page


def test_the_files_hold_what_the_json_says(capsys, tmp_path):
    assert main(["safety", "certify", "cartpole", "--json", "--out", str(tmp_path / "new")]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "new" / "certificate.json").read_text()) == findings
    prior = load_prior(tmp_path / "new" / "safe_prior.safetensors")
    assert prior.digest() == findings["digest"]
    for name in ("A", "B", "P", "F"):
        np.testing.assert_array_equal(getattr(prior, name), findings[name])
    assert findings["mujoco_pinocchio_difference"] < 1e-8
    assert findings["nonlinear_largest_value"] < 1.0
    assert findings["leaving_linear"] == findings["leaving_simulated"] == 0.0
    image = cv2.imread(str(tmp_path / "new" / "ellipsoid.png"))
    assert image.shape[1] > image.shape[0] > 300


def test_the_picture_draws_the_ellipsoid_inside_its_box():
    image = cv2.imdecode(np.frombuffer(picture(load_prior("cartpole")), np.uint8), cv2.IMREAD_COLOR).astype(int)
    blue, green, red = image[..., 0], image[..., 1], image[..., 2]
    edge = (red > 150) & (green < 110) & (blue < 110)
    shade = (blue > red + 15) & (blue > 180)
    panel = slice(0, image.shape[1] // 3)
    left, right = np.flatnonzero(edge[:, panel].sum(axis=0) > 100)[[0, -1]]
    inside = np.flatnonzero(shade[:, panel].any(axis=0))
    assert left - 3 <= inside[0] and inside[-1] <= right + 3
    assert shade[:, panel].sum() > 10_000


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["arm"], r"robot 'arm' has no .*safety.yaml"),
        (["cartpol"], "unknown robot 'cartpol', did you mean 'cartpole'"),
        (["cartpole", "--rate", "5"], r"in simulation V reaches 1\.3\d+ one step after the boundary, it must stay below 1"),
        (["cartpole", "--rate", "-1"], "the control rate is -1 Hz"),
        (["cartpole", "--rat", "5"], "unknown safety certify argument '--rat', did you mean '--rate'"),
    ],
)
def test_bad_input_is_one_line(capsys, words, line):
    assert main(["safety", "certify", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(line, error), error
