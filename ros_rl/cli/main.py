"""`ros-rl <command>`: finds the command, parses its arguments, and turns every expected failure into one line and an exit code."""

import dataclasses
import importlib
import io
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any

from ros_rl import __version__
from ros_rl.errors import RobotFault, UserError, closest, unknown
from ros_rl.nodes.environment import BAD_INPUT, FAILURE
from ros_rl.sim.gl import check_variable

# The words of a command, then the module and class that carry it out, and what it does. A class is a dataclass that tyro
# fills from the arguments, or has a classmethod `from_words` that takes them as they are; `run` returns the exit code. One with
# a method `take` is given the arguments of the form key:=value beside.
# Modules are imported only when asked for: the list of commands must not wait for torch.
COMMANDS = {
    "demo": ("ros_rl.cli.demo", "Demo", "watch a robot do its task in simulation, through the whole stack"),
    "up": ("ros_rl.cli.up", "Up", "start the node graph of a bring-up, with key:=value arguments"),
    "teleop": ("ros_rl.cli.teleop", "Teleop", "take over the robot of a running graph with a keyboard or another device"),
    "collect": ("ros_rl.cli.collect", "Collect", "record demonstrations of a person, or of a script, into a dataset"),
    "replay": ("ros_rl.cli.replay", "Replay", "play a recorded episode again, in simulation or on the robot"),
    "doctor": ("ros_rl.cli.doctor", "Doctor", "say what is missing on this machine and the command that mends it"),
    "serve": ("ros_rl.cli.serve", "Serve", "serve a policy to robots on other machines"),
    "parity": ("ros_rl.cli.parity", "Parity", "prove that the node graph computes what the in-process loop computes"),
    "bench loop": ("ros_rl.cli.bench", "BenchLoop", "measure the control loop and the node graph"),
    "bench sim": ("ros_rl.cli.bench", "BenchSim", "measure how fast environments step"),
    "bench safety": ("ros_rl.cli.bench", "BenchSafety", "measure what each way to be safe costs in an act"),
    "bench ppo": ("ros_rl.cli.bench", "BenchPpo", "measure how fast PPO collects and learns"),
    "bench autosafe": ("ros_rl.cli.bench", "BenchAutosafe", "train AutoSafe and what it is compared with, and draw the results"),
    "bench safeexplorer": (
        "ros_rl.cli.bench",
        "BenchSafeexplorer",
        "train SafeExplorer and what it is compared with, and draw the results",
    ),
    "bench tabletop": ("ros_rl.cli.bench", "BenchTabletop", "play the tabletop suite and count successes"),
    "bench vla": ("ros_rl.cli.bench", "BenchVla", "measure how fast a VLA decodes action tokens and plays episodes"),
    "bench crash": ("ros_rl.cli.bench", "BenchCrash", "kill a recorder at random times and count what is lost"),
    "bench walk": ("ros_rl.cli.bench", "BenchWalk", "push a walking robot in real time and count falls and missed deadlines"),
    "bench record": ("ros_rl.cli.bench", "BenchRecord", "record cameras and joints in real time and count what is lost"),
    "data info": ("ros_rl.cli.data", "DataInfo", "say what a dataset holds"),
    "data check": ("ros_rl.cli.data", "DataCheck", "find every gap of a dataset"),
    "data repair": ("ros_rl.cli.data", "DataRepair", "mend a dataset without deleting anything"),
    "data export": ("ros_rl.cli.data", "DataExport", "write episodes as CSV or NumPy files and videos"),
    "data merge": ("ros_rl.cli.data", "DataMerge", "put datasets of one robot together"),
    "data view": ("ros_rl.cli.data", "DataView", "draw an episode: frames and plots"),
    "safety certify": ("ros_rl.cli.safety", "SafetyCertify", "compute a safe controller and its safe set, and check both"),
    "robot check": ("ros_rl.cli.robot", "RobotCheck", "check a URDF or robot.yaml and say how to mend it"),
    "robot new": ("ros_rl.cli.robot", "RobotNew", "write a first robot.yaml for a URDF"),
}

INTERRUPTED = 130
_OUTPUT = 1  # standard output, to the kernel


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after ``ros-rl``; those of this process if None.

    Returns:
        the exit code: 0, 1 for a failure, 2 for bad input, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    if words == ["--version"]:
        print(f"ros-rl {__version__}")
        return 0
    if threading.current_thread() is threading.main_thread():
        # Told to end, or with its terminal closed, a command tidies up as after Ctrl-C: no robot is left running.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
                signal.signal(number, signal.default_int_handler)
    try:
        name = find(words)
        if name != "doctor":  # which reports it among the rest
            check_variable()
        code = int(parse(name, words[len(name.split()) :]).run())
        sys.stdout.flush()
        return code
    except BrokenPipeError as error:
        return 0 if _nobody_reads() else _report(error, FAILURE)
    except UserError as error:
        return _report(error, BAD_INPUT)
    except (RobotFault, OSError) as error:
        return _report(error, FAILURE)
    except ModuleNotFoundError as error:
        if (error.name or "ros_rl").startswith("ros_rl"):
            raise
        return _report(f"{error.name} is not installed here; 'ros-rl doctor' says how to mend that", FAILURE)
    except KeyboardInterrupt:
        return INTERRUPTED


def overview() -> str:
    """Lists the commands, one a line, each with what it does."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {text}" for name, (_, _, text) in COMMANDS.items())
    return "usage: ros-rl COMMAND [ARGUMENTS]\n\n" + "\n".join(lines) + "\n\nros-rl COMMAND --help lists the arguments of a command."


def find(words: list[str]) -> str:
    """Returns the command that `words` begin with.

    Raises:
        UserError: they begin with none.
    """
    for length in (2, 1):
        if (name := " ".join(words[:length])) in COMMANDS:
            return name
    group = [name for name in COMMANDS if name.split()[0] == words[0]]
    asked = " ".join(words[:2]) if group and len(words) > 1 and not words[1].startswith("-") else words[0]
    raise UserError(f"unknown command '{asked}'{closest(asked, COMMANDS)} (known: {', '.join(group or COMMANDS)})")


def parse(name: str, words: list[str]) -> Any:
    """Returns the command `name`, filled from its arguments.

    Raises:
        UserError: the arguments do not fit; the message names the one at fault and what would be right.
    """
    module, attribute, _ = COMMANDS[name]
    command = getattr(importlib.import_module(module), attribute)
    if hasattr(command, "from_words"):
        return command.from_words(words)
    given: dict[str, str] | None = None
    if hasattr(command, "take"):  # key:=value words, which may stand anywhere
        from ros_rl.bringup import read_words

        given = read_words([word for word in words if ":=" in word])
        words = [word for word in words if ":=" not in word]

    import tyro

    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            parsed = tyro.cli(command, args=words, prog=f"ros-rl {name}", config=(tyro.conf.FlagCreatePairsOff,))
        if given is not None:
            parsed.take(given)
        return parsed
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
    options = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(command)]
    raise _explain(name, complaint.getvalue(), options)


def _explain(name: str, complaint: str, options: list[str]) -> UserError:
    """Turns the box that tyro draws around a parse error into one line.

    It has a title and sections divided by rules: what is wrong, then what was expected or meant, then where the help is.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m|[╭╮╰╯│]", "", complaint)
    sections = [" ".join(section.split()) for section in re.split(r"[─-]{4,}", plain)]
    sections = [section.removeprefix("─ ") for section in sections if section]
    for section in sections:
        if found := re.match(r"Unrecognized options: ([^\s,]+)", section):
            return unknown(f"{name} argument", found[1], options)
    problem = sections[1] if len(sections) > 1 else "the arguments do not fit"
    if found := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*?),?\)", problem):
        return unknown(f"{name} {found[2]}", found[1], [choice.strip(" '") for choice in found[3].split(",")])
    expected = [section.removeprefix("Argument helptext: ") for section in sections if section.startswith("Argument helptext: ")]
    return UserError(f"{name}: {problem}" + (f", expected {expected[0]}" if expected else ""))


def _nobody_reads() -> bool:
    """Whether it is the output that was closed, as `head` does when it has enough; then the rest goes nowhere."""
    output = select.poll()
    output.register(_OUTPUT, 0)
    if not any(state & select.POLLERR for _, state in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), _OUTPUT)
    return True


def _report(error: object, code: int) -> int:
    print("ros-rl:", " ".join(str(error).split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
