"""Starts a node graph without the ROS `launch` package: a process for each node, watched until the end."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from tqdm import tqdm

from ros_rl.bringup import (
    COMMIT_PATIENCE,
    ROBOT_PROCESSES,
    Graph,
    NodeDescription,
    check_machine,
    ends_the_graph,
    environment,
    obituary,
    processes,
)
from ros_rl.errors import UserError
from ros_rl.nodes.environment import BAD_INPUT, PAGE_IS_AT, ros_domain

SILENCE = 30.0  # s without a message after which a graph counts as stuck
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TELLING = (r"ros_rl: |\w+Error: ", r"(?!\[INFO\])", "")  # lines of a log, from those that say most of why a graph ended on
_PATIENCE = (4.0, 2.0)  # s after each of them
_RECORDER = "recorder_node"
_WEB = "web_node"


class GraphProcesses:
    """The running processes of a graph; used as a context, so that none is left behind."""

    def __init__(self, described: Graph, quiet: bool = False, terminal: bool = False):
        """Prepares the processes; `__enter__` starts them.

        Args:
            described: what to start.
            quiet: whether the nodes' logs are kept in a file instead of shown, all but the address of the page.
            terminal: whether a keyboard may have this process's terminal.
        """
        self._terminal = terminal
        self._described = described
        self._environment = dict(os.environ)
        self._quiet = quiet
        self._folder = tempfile.TemporaryDirectory(prefix="ros_rl-")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._reported: set[str] = set()
        self._told_address = False

    @property
    def log(self) -> Path:
        """Where the nodes' logs go when quiet."""
        return Path(self._folder.name) / "nodes.log"

    @property
    def last_words(self) -> str:
        """The last line of that log, or the last one with which a process ended or warned, if there is one."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip() and PAGE_IS_AT not in line]
        found = (line for kind in _TELLING for line in reversed(lines) if re.match(kind, line))
        return next(found, "no log")

    def __enter__(self) -> "GraphProcesses":
        ros_domain()  # said once here instead of by every node
        check_machine(self._described, self._terminal)
        descriptions = processes(self._described)
        if len(descriptions) > 1 and self._environment.get("ROS_AUTOMATIC_DISCOVERY_RANGE") == "OFF":
            mend = "leave out web:=true" if self._described.composed else "use composed:=true"
            raise UserError(f"ROS_AUTOMATIC_DISCOVERY_RANGE=OFF hides nodes of other processes; set it to LOCALHOST, or {mend}")
        try:
            for description in descriptions:
                self.start(description)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    def start(self, description: NodeDescription) -> None:
        """Starts one process; it gets its parameters from a file, so that their types stay what they are."""
        path = Path(self._folder.name) / f"{description.executable}.yaml"
        path.write_text(yaml.safe_dump({"/**": {"ros__parameters": _nested(description.parameters)}}), encoding="utf-8")
        command = [sys.executable, "-m", "ros_rl.nodes", description.executable, "--ros-args"]
        command += ["--params-file", str(path), "-r", f"__ns:={self._described.namespace}"]
        typed_at = description.parameters.get("device") == "keyboard"
        output = self.log.open("ab") if self._quiet and not typed_at else None
        with _signals_wait():
            # A session of its own: Ctrl-C reaches this process alone, which then ends the nodes in order.
            self.processes[description.executable] = subprocess.Popen(
                command,
                env=self._environment | environment(description),
                stdout=output,
                stderr=output and subprocess.STDOUT,
                start_new_session=not typed_at,
            )

    def ended(self) -> int | None:
        """Returns the exit code for the graph when it has ended, else None.

        A node that died while the rest goes on is reported once. So is the address of the page where nodes are quiet: nobody could
        open it otherwise.
        """
        self._tell_address()
        for name, process in self.processes.items():
            code = process.poll()
            if code is None or name in self._reported:
                continue
            if ends_the_graph(name, code):
                return code if code > 0 else int(code != 0)
            self._reported.add(name)
            print(f"ros-rl: {obituary(name, code)}", file=sys.stderr)
        return None

    def _tell_address(self) -> None:
        if not self._quiet or self._told_address or _WEB not in self.processes:
            return
        found = re.search(f"{PAGE_IS_AT}\\S+\\n", self.log.read_text(errors="replace"))
        if found is not None:
            self._told_address = True
            tqdm.write(found[0], file=sys.stderr, end="")

    def stop(self) -> None:
        """Ends every process: first asked, then told, then killed. The robot's process goes last.

        A recorder gets the time to write what it has recorded. What it has not done by then stays a log, which is said.
        """
        try:
            for number, patience in zip(STOP_SIGNALS, _PATIENCE, strict=True):
                self._ask(number, patience)
            self._wait_for_recorder()
        except KeyboardInterrupt:
            pass  # asked again: no more patience
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            self._name_logs()

    def _ask(self, number: int, patience: float) -> None:
        """Sends a signal to every process, the robot's last, and waits."""
        deadline = time.monotonic() + patience
        for name, process in sorted(self.processes.items(), key=lambda entry: entry[0] in ROBOT_PROCESSES):
            if process.poll() is None and (name != _RECORDER or number == STOP_SIGNALS[0]):
                process.send_signal(number)
        for name, process in self.processes.items():
            if name != _RECORDER:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0.01))

    def _wait_for_recorder(self) -> None:
        recorder = self.processes.get(_RECORDER)
        if recorder is None:
            return
        for patience in (_PATIENCE[1], COMMIT_PATIENCE):
            with suppress(subprocess.TimeoutExpired):
                recorder.wait(patience)
                return
            print(f"ros-rl: the recorder writes what it has recorded, for at most {COMMIT_PATIENCE:g} s; Ctrl-C ends it", file=sys.stderr)

    def _name_logs(self) -> None:
        """Says what a recorder that was ended before it was done has left behind."""
        recorder = self.processes.get(_RECORDER)
        if recorder is None or recorder.returncode in (0, BAD_INPUT):
            return
        from ros_rl.data.integrity import open_logs

        parameters = next(node.parameters for node in self._described.nodes if node.executable == _RECORDER)
        root = Path(str(parameters["dataset"])).expanduser()
        for path in open_logs(root):
            print(f"ros-rl: {path} is not committed; 'ros-rl data repair {root}' makes an episode of it", file=sys.stderr)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Lets signals that end things wait while a process is started.

    The process inherits the mask and lifts it once it can answer; a bare interpreter would answer with a traceback. Here the mask alone
    does not do: it is this thread's, and a signal that another thread takes would interrupt before the process is written down, which
    nobody would then end.
    """
    came: list[int] = []
    handled = {number: handler for number in (*STOP_SIGNALS, signal.SIGHUP) if callable(handler := signal.getsignal(number))}
    for number in handled:
        signal.signal(number, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handled.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def _nested(parameters: Mapping[str, object]) -> dict[str, object]:
    """Turns names with dots into the nesting that a ROS parameter file has."""
    nested: dict[str, object] = {}
    for name, value in parameters.items():
        head, _, tail = name.partition(".")
        if tail:
            group = nested.setdefault(head, {})
            assert isinstance(group, dict)
            group[tail] = value
        else:
            nested[name] = value
    return nested
