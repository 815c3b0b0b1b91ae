"""Tests of ros_rl.nodes.parameters: every declaration is complete, and a value that does not fit is refused in words."""

import math

import pytest

from ros_rl.errors import UserError
from ros_rl.nodes.parameters import NODES, SAFETY_NODE, Parameter, table
from ros_rl.paths import share_dir
from ros_rl.safety.filters import RULES

ALL = [pytest.param(parameter, id=f"{node}-{parameter.name}") for node, parameters in NODES.items() for parameter in parameters]
RATE = Parameter("rate", 1.0, "Rate.", "Hz", minimum=0.5, maximum=100.0)
COUNT = Parameter("count", 3, "Count.", minimum=0)
WORD = Parameter("word", "auto", "Word.", choices=("auto", "on", "off"))
TEXT = Parameter("text", "", "Text.")
SWITCH = Parameter("switch", False, "Switch.")
NAMES = Parameter("names", [""], "Names.")
VECTOR = Parameter("vector", [0.0, 0.0, 0.0], "Vector.")


@pytest.mark.parametrize("parameter", ALL)
def test_every_parameter_is_described_and_its_default_is_a_value_of_it(parameter):
    assert parameter.description.endswith(".") and len(parameter.description) > 10
    assert "|" not in parameter.description
    assert parameter.check(parameter.default) == parameter.default
    assert parameter.expected()
    if isinstance(parameter.default, float):
        assert math.isfinite(parameter.minimum) and math.isfinite(parameter.maximum)
        assert f"{parameter.minimum:g} to {parameter.maximum:g}" in parameter.expected()


@pytest.mark.parametrize("node", NODES)
def test_names_are_there_once(node):
    names = [parameter.name for parameter in NODES[node]]
    assert len(names) == len(set(names))


def test_a_name_means_the_same_kind_of_value_in_every_node():
    kinds: dict[str, set] = {}
    for parameters in NODES.values():
        for parameter in parameters:
            kinds.setdefault(parameter.name, set()).add((type(parameter.default), parameter.expected()))
    assert [name for name, found in kinds.items() if len(found) > 1] == []


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        (RATE, "2.5", 2.5),
        (RATE, "2", 2.0),
        (RATE, "100", 100.0),
        (COUNT, "7", 7),
        (WORD, "on", "on"),
        (TEXT, "a:=b, c", "a:=b, c"),
        (SWITCH, "true", True),
        (SWITCH, "False", False),
        (NAMES, "wrist,front", ["wrist", "front"]),
        (NAMES, "[wrist, front]", ["wrist", "front"]),
        (NAMES, "", []),
        (VECTOR, "0.5,0,-1", [0.5, 0.0, -1.0]),
    ],
)
def test_text_is_read_as_the_type_of_the_default(parameter, text, value):
    got = parameter.parse(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("parameter", "text", "message"),
    [
        (RATE, "fast", "rate must be a number in Hz from 0.5 to 100, got 'fast'"),
        (RATE, "0.4", "rate must be a number in Hz from 0.5 to 100, got 0.4"),
        (RATE, "nan", "rate must be a number in Hz from 0.5 to 100, got nan"),
        (RATE, "inf", "rate must be a number in Hz from 0.5 to 100, got inf"),
        (RATE, "", "rate must be a number in Hz from 0.5 to 100, got ''"),
        (COUNT, "2.5", "count must be a whole number, at least 0, got '2.5'"),
        (COUNT, "-1", "count must be a whole number, at least 0, got -1"),
        (WORD, "aut", "unknown value of word 'aut', did you mean 'auto'? (known: auto, off, on)"),
        (SWITCH, "yes", "switch must be true or false, got 'yes'"),
        (VECTOR, "1,2,x", "vector must be 3 numbers with commas between, got '1,2,x'"),
        (VECTOR, "1,2", "vector must be 3 numbers with commas between, got [1.0, 2.0]"),
        (VECTOR, "1,2,nan", "vector must be 3 numbers with commas between, got [1.0, 2.0, nan]"),
    ],
)
def test_text_that_does_not_fit_is_refused(parameter, text, message):
    with pytest.raises(UserError) as caught:
        parameter.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("parameter", "value"),
    [(RATE, "2.0"), (RATE, True), (COUNT, 3.0), (COUNT, True), (SWITCH, 1), (TEXT, 5), (NAMES, "wrist"), (VECTOR, 1.0), (WORD, 1)],
)
def test_values_of_another_type_are_refused(parameter, value):
    with pytest.raises(UserError, match=parameter.name):
        parameter.check(value)


def test_a_whole_number_is_a_number():
    assert type(RATE.check(2)) is float


def test_the_choices_of_filter_are_the_filters_that_exist():
    (parameter,) = [parameter for parameter in SAFETY_NODE if parameter.name == "filter"]
    assert parameter.choices == ("none", *RULES, "recovery")


@pytest.mark.parametrize(
    ("parameter", "text"), [(RATE, "1.0"), (COUNT, "3"), (TEXT, ""), (SWITCH, "false"), (NAMES, ""), (VECTOR, "0.0, 0.0, 0.0")]
)
def test_a_default_is_shown_as_one_would_type_it(parameter, text):
    assert parameter.default_text() == text


def test_the_page_in_docs_is_up_to_date():
    assert (share_dir() / "docs" / "parameters.md").read_text(encoding="utf-8") == table(), "make docs writes it anew"


def test_the_page_has_every_parameter_of_every_node():
    page = table()
    for node, parameters in NODES.items():
        section = page.partition(f"## {node}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert len(rows) == len(parameters)
        assert all(row.count("|") == 5 for row in rows)
