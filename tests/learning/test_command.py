import pytest

from ros_rl.errors import RobotFault, UserError
from ros_rl.learning import bc, grpo


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UserError("no such task"), 2, "no such task"),
        (RobotFault("the simulation diverged"), 1, "the simulation diverged"),
        (KeyboardInterrupt(), 130, "the same command goes on"),
    ],
)
def test_what_ends_a_command_early_is_one_line_and_an_exit_code(monkeypatch, capsys, raised, code, said):
    def run(self):
        raise raised

    monkeypatch.setattr(bc.Evaluate, "run", run)
    monkeypatch.setattr(grpo.Run, "run", run)
    assert bc.main(["evaluate", "x", "--tasks", "push_button"]) == code
    assert grpo.main(["--policy", "x", "--out", "y"]) == code
    printed = capsys.readouterr().err
    assert printed.count(said) == printed.count("\n") == 2


def test_a_command_that_ran_ends_with_0(monkeypatch, capsys):
    monkeypatch.setattr(bc.Evaluate, "run", lambda self: None)
    assert bc.main(["evaluate", "x", "--tasks", "push_button"]) == 0
    assert capsys.readouterr().err == ""
