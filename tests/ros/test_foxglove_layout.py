"""Tests of docs/foxglove_layout.json: what it shows is there in a running graph, down to the field."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ros_rl.paths import share_dir

LAYOUT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "foxglove_layout.json").read_text())
PANELS: dict[str, dict[str, Any]] = LAYOUT["configById"]
NAMESPACE = "/arm/"
KINDS = {"3D", "CallService", "DiagnosticSummary", "Image", "Plot", "RawMessages", "StateTransitions"}


def leaves(layout: Any) -> Iterator[str]:
    """Yields the panels of a tree of splits."""
    if isinstance(layout, str):
        yield layout
        return
    assert set(layout) == {"direction", "first", "second", "splitPercentage"}
    assert layout["direction"] in ("row", "column") and 0 < layout["splitPercentage"] < 100
    yield from leaves(layout["first"])
    yield from leaves(layout["second"])


def strings(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            yield from (key, *strings(value))
    elif isinstance(part, list):
        for value in part:
            yield from strings(value)
    elif isinstance(part, str):
        yield part


PATHS = sorted({text for name, panel in PANELS.items() if not name.startswith("CallService") for text in strings(panel) if text[:1] == "/"})
SERVICES = sorted(panel["serviceName"] for name, panel in PANELS.items() if name.startswith("CallService"))


def kind_of(name: str) -> type:
    package, _, kind = name.partition("/")
    return getattr(importlib.import_module(f"{package}.msg"), kind.rpartition("/")[2])


def check_path(kind: type, path: str) -> None:
    """Follows a message path such as ``points[0].positions[1]`` through the fields of a message."""
    for part in re.findall(r"\.(\w+)((?:\[[^]]*\]|\{[^}]*\})*)", path):
        field, selection = part
        fields = kind.get_fields_and_field_types()  # type: ignore[attr-defined]
        assert field in fields, f"{kind.__name__} has no {field}"
        inner = re.sub(r"^sequence<(.*)>$", r"\1", fields[field])
        assert ("[" in selection) == (inner != fields[field]), f"{path}: {field} is {fields[field]}"
        if "/" in inner:
            kind = kind_of(inner)
            for key in re.findall(r"\{(\w+)==", selection):
                assert key in kind.get_fields_and_field_types()  # type: ignore[attr-defined]


def test_every_panel_is_placed_once_and_has_its_settings():
    placed = list(leaves(LAYOUT["layout"]))
    assert sorted(placed) == sorted(PANELS)
    assert {name.partition("!")[0] for name in placed} == KINDS
    assert set(LAYOUT) == {"configById", "globalVariables", "userNodes", "playbackConfig", "layout"}


def test_the_robot_is_one_that_ships():
    (robot,) = (layer for layer in PANELS["3D!robot"]["layers"].values() if layer["layerId"] == "foxglove.Urdf")
    urdf = share_dir() / robot["url"].removeprefix("package://ros_rl/")
    assert f'<link name="{PANELS["3D!robot"]["followTf"]}"' in urdf.read_text()


@pytest.mark.parametrize("word", [*PATHS, *SERVICES])
def test_every_topic_and_service_is_in_the_page_of_the_interface(word):
    page = (Path(__file__).parents[2] / "docs" / "ros_interface.md").read_text()
    named = {name for row in re.findall(r"^\| ((?:`[\w/<>]+`(?:, )?)+) \|", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    name = word.partition(".")[0].removeprefix(NAMESPACE)
    assert word.startswith(NAMESPACE)
    assert re.sub(r"^camera/\w+/", "camera/<name>/", name) in named


def test_all_of_it_is_there_in_a_running_graph(ros):
    ros.up("arm", without=(), cameras="overhead", namespace="arm")
    topics = {path.partition(".")[0] for path in PATHS} - {"/arm/odom"}  # of robots with odometry
    ros.until(lambda: all(ros.probe.count_publishers(topic) for topic in topics), f"for {topics}")
    ros.until(lambda: set(SERVICES) <= {name for name, _ in ros.probe.get_service_names_and_types()})
    kinds = dict(ros.probe.get_topic_names_and_types())
    for path in PATHS:
        topic, _, rest = path.partition(".")
        if topic in topics:
            (kind,) = kinds[topic]
            check_path(kind_of(kind), f".{rest}" if rest else "")
