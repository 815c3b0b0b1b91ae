"""What is said in more than one place must be the same everywhere."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from ros_rl import __version__

ROOT = Path(__file__).parents[1]
NODES = sorted(path.stem for path in (ROOT / "ros_rl" / "nodes").glob("*_node.py"))


def test_the_version_is_that_of_the_ros_package():
    assert ElementTree.parse(ROOT / "package.xml").findtext("version") == __version__


def test_every_node_has_an_executable_for_ros2_run():
    assert sorted(path.name for path in (ROOT / "scripts" / "nodes").iterdir()) == NODES


def test_every_folder_of_code_is_a_package_that_gets_installed():
    folders = {path.parent for path in (ROOT / "ros_rl").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def test_an_executable_runs_the_node_it_is_called_after_with_the_interpreter_beside_it(tmp_path):
    executable = tmp_path / "lib" / "ros_rl" / "some_node"
    interpreter = tmp_path / "bin" / "python3"
    for path in (executable, interpreter):
        path.parent.mkdir(parents=True)
    executable.symlink_to(ROOT / "scripts" / "node")
    interpreter.write_text('#!/bin/sh\necho "$@"\n')
    interpreter.chmod(0o755)
    result = subprocess.run([executable, "--ros-args", "-r", "__ns:=/left arm"], capture_output=True, text=True, check=True)
    assert result.stdout == "-m ros_rl.nodes some_node --ros-args -r __ns:=/left arm\n"


def test_the_tests_that_the_page_of_faults_names_exist():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "faults.md").read_text())
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


def test_every_id_in_the_name_of_a_test_is_on_the_page_of_faults():
    explained = set(re.findall(r"^\| ([CDLS]\d) \|", (ROOT / "docs" / "faults.md").read_text(), re.MULTILINE))
    pattern = re.compile(r"(?<=def test_)[cdls]\d(?:_[cdls]\d)*_")
    used = {name for path in (ROOT / "tests").rglob("test_*.py") for name in pattern.findall(path.read_text())}
    assert {part.upper() for name in used for part in name.strip("_").split("_")} == explained


def test_layers_import_downward_only():
    command = [Path(sys.executable).with_name("lint-imports"), ROOT / "pyproject.toml", "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
