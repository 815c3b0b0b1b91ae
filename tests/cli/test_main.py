"""Tests of ros_rl.cli.main: the right command runs, and whatever goes wrong is one line and the right exit code."""

import re
import signal
import subprocess
import sys
import types
from dataclasses import dataclass
from typing import Literal

import pytest

from ros_rl import __version__
from ros_rl.cli import main as cli
from ros_rl.errors import RobotFault, UserError


@dataclass
class Fly:
    """Flies a robot."""

    robot: str
    """Name of the robot."""

    step_count: int = 3
    """Control periods."""

    mode: Literal["sim", "robot"] = "sim"
    """Where."""

    def run(self) -> int:
        """Fails in the way the robot's name asks for."""
        errors = {
            "bad": UserError("unknown robot 'bad'\n  (known: arm)"),
            "fault": RobotFault("lost connection"),
            "full": OSError("disk full"),
            "stopped": KeyboardInterrupt(),
            "lonely": ModuleNotFoundError("No module named 'rclpy'", name="rclpy"),
        }
        if self.robot in errors:
            raise errors[self.robot]
        return self.step_count


@dataclass
class Raw:
    """Takes its words as they are."""

    words: list[str]

    @classmethod
    def from_words(cls, words: list[str]) -> "Raw":
        """Keeps them."""
        return cls(words)

    def run(self) -> int:
        """Counts them."""
        return len(self.words)


@pytest.fixture(autouse=True)
def commands(monkeypatch):
    module = types.ModuleType("flying")
    module.Fly, module.Raw = Fly, Raw
    monkeypatch.setitem(sys.modules, "flying", module)
    table = {"fly": ("flying", "Fly", "fly"), "raw": ("flying", "Raw", "raw"), "bench loop": ("flying", "Fly", "measure")}
    monkeypatch.setattr(cli, "COMMANDS", table)


def error_line(capsys) -> str:
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("ros-rl: ")
    assert output.err.count("\n") == 1
    return output.err.removeprefix("ros-rl: ").rstrip()


def test_arguments_reach_the_command_and_its_result_is_the_exit_code():
    assert cli.main(["fly", "--robot", "arm"]) == 3
    assert cli.main(["bench", "loop", "--robot", "arm", "--step-count", "0"]) == 0


def test_a_command_can_take_its_words_raw():
    assert cli.main(["raw", "arm", "mode:=sim"]) == 2


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_overview_lists_every_command(words, capsys):
    assert cli.main(words) == 0
    output = capsys.readouterr().out
    assert "bench loop  measure" in output
    assert re.search(r"^  fly +fly$", output, re.MULTILINE)


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ros-rl {__version__}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["flu"], "unknown command 'flu', did you mean 'fly'? (known: fly, raw, bench loop)"),
        (["bench", "lop", "--robot", "arm"], "unknown command 'bench lop', did you mean 'bench loop'? (known: bench loop)"),
        (["bench"], "unknown command 'bench', did you mean 'bench loop'? (known: bench loop)"),
        (["fly"], "fly: Missing from ros-rl fly: --robot STR Name of the robot. (required)"),
        (["fly", "--robt", "arm"], "unknown fly argument '--robt', did you mean '--robot'? (known: --mode, --robot, --step-count)"),
        (["fly", "--robot", "arm", "--mode", "simm"], "unknown fly --mode 'simm', did you mean 'sim'? (known: robot, sim)"),
        (
            ["fly", "--robot", "arm", "--step-count", "x"],
            "fly: Error parsing --step-count: invalid literal for int() with base 10: 'x', "
            "expected --step-count INT Control periods. (default: 3)",
        ),
        (["fly", "--robot", "bad"], "unknown robot 'bad' (known: arm)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, line, capsys):
    assert cli.main(words) == 2
    assert error_line(capsys) == line


def test_tyros_boxes_are_read_in_a_terminal_too():
    box = """\x1b[31m╭─ Value error ──────╮\x1b[0m
│ Error parsing --x  │
│ ────────────────── │
│ Argument helptext: │
│     --x INT        │
╰────────────────────╯"""
    assert str(cli._explain("fly", box, [])) == "fly: Error parsing --x, expected --x INT"


@pytest.mark.parametrize(
    ("robot", "line"),
    [
        ("fault", "lost connection"),
        ("full", "disk full"),
        ("lonely", "rclpy is not installed here; 'ros-rl doctor' says how to mend that"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(robot, line, capsys):
    assert cli.main(["fly", "--robot", robot]) == 1
    assert error_line(capsys) == line


def test_interrupt_is_exit_code_130(capsys):
    assert cli.main(["fly", "--robot", "stopped"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_ends_as_after_ctrl_c_unless_it_shall_not_hear(monkeypatch, number):
    monkeypatch.setattr(Fly, "run", lambda self: signal.raise_signal(number))
    before = signal.getsignal(number)
    try:
        assert cli.main(["fly", "--robot", "arm"]) == 130
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # nohup
            monkeypatch.setattr(Fly, "run", lambda self: signal.raise_signal(number) or 0)
            assert cli.main(["fly", "--robot", "arm"]) == 0
    finally:
        signal.signal(number, before)


def test_output_that_nobody_reads_to_its_end_is_no_failure():
    listing = subprocess.Popen(
        [sys.executable, "-m", "ros_rl.cli.main", "robot", "check", "arm"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    listing.stdout.close()  # as `head -0` does
    assert listing.stderr.read() == b"" and listing.wait() == 0


def test_help_of_a_command_is_complete(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["fly", "--help"])
    assert stop.value.code == 0
    assert "Control periods." in capsys.readouterr().out


def test_a_fault_of_our_own_is_not_hidden(monkeypatch):
    monkeypatch.setattr(cli, "COMMANDS", {"fly": ("ros_rl.cli.not_there", "Fly", "fly")})
    with pytest.raises(ModuleNotFoundError):
        cli.main(["fly"])


def test_the_list_of_commands_waits_for_no_heavy_import():
    script = (
        "import sys; from ros_rl.cli.main import main; main([]); sys.exit(bool({'numpy', 'torch', 'tyro', 'mujoco'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL).returncode == 0
