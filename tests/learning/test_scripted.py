"""Tests of ros_rl.learning.scripted, the command that makes the scripted bundles."""

import pytest

from ros_rl.errors import UserError
from ros_rl.learning.scripted import main, make


def test_making_a_bundle_twice_gives_the_same_bytes(tmp_path):
    for attempt in ("first", "second"):
        made = make("quadrotor_pd", tmp_path / attempt / "quadrotor_pd", episodes=2)
        assert made.metrics["tasks"]["quadrotor_hover"]["episodes"] == 2
    files = sorted(path.name for path in (tmp_path / "first" / "quadrotor_pd").iterdir())
    assert files == ["metrics.json", "policy.yaml", "weights.safetensors"]
    for file in files:
        first, second = ((tmp_path / attempt / "quadrotor_pd" / file).read_bytes() for attempt in ("first", "second"))
        assert first == second, file


def test_an_unknown_name_is_refused(tmp_path, capsys):
    with pytest.raises(UserError, match="unknown scripted bundle 'cartpole'"):
        make("cartpole", tmp_path / "cartpole")
    assert main(["cartpole"]) == 2
    assert "cartpole_lqr" in capsys.readouterr().err
