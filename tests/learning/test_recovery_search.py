"""Tests of ros_rl.learning.recovery_search."""

import numpy as np
import pytest

from ros_rl.learning import recovery_search
from ros_rl.learning.recovery import collect_snapshots, rescued
from ros_rl.learning.recovery_search import main, search
from ros_rl.sim.fall_env import make_fall_env


def cheetahs(copies: int):
    return make_fall_env("halfcheetah", copies)


def test_it_finds_what_doing_nothing_does_not_and_says_no_where_nothing_can_be_done():
    states, _ = collect_snapshots(cheetahs(16), 30, 0.35, 1)
    at_rest, distress = rescued(cheetahs, lambda seen: np.zeros((len(seen), 6)), states, 0.35)
    assert distress[~at_rest].min() > 0.28 and (distress < 60.0 + 1e-9).all()
    found = search(cheetahs, states, 0.35, rounds=2, sequences=12, seed=0)
    assert found.sum() > at_rest.sum() + 3
    falling = states[:4].copy()
    environment = cheetahs(4)
    environment.reset(seed=0)
    environment.copies.restore(falling)
    environment.copies.qpos[:, 2], environment.copies.qvel[:, 2] = 0.94 * np.pi / 2, 40.0  # over in one step
    assert not search(cheetahs, environment.copies.snapshot(), 0.35, rounds=1, sequences=12, seed=0).any()


@pytest.mark.parametrize(
    ("words", "message"), [(["--env", "dog"], "unknown environment 'dog'"), (["--rounds", "0"], "must be at least 1, got 0")]
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recovery_search, "recovery_of", lambda *args: pytest.fail("trains"))
    assert main([*words, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
