"""YAML files read into dataclasses: every mistake is reported with its file and line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml

from ros_rl.errors import UserError, closest

T = TypeVar("T")

# What schemas are made of: types are checked strictly, unknown keys are refused, and no number is NaN or infinite.
STRICT = pydantic.ConfigDict(strict=True, extra="forbid")
Count = Annotated[int, pydantic.Field(gt=0)]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Positive = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Vector3 = Annotated[list[Finite], pydantic.Field(min_length=3, max_length=3)]

_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")


class _Loader(yaml.SafeLoader):
    """The safe loader, but a key that is there twice is a mistake and not an override."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' is there twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, schema: type[T], prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values) -> T:
    """Reads a YAML file into a dataclass.

    Args:
        path: the file.
        schema: a pydantic dataclass with the configuration `STRICT`.
        prepare: changes the values before they are checked.

    Raises:
        UserError: the file is missing, is no YAML, or does not fit the schema; the message starts with ``file:line``.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file") from None
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise UserError(f"{path}:{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}:1: expected 'key: value' lines, found {type(values).__name__}")
    try:
        return validate(prepare(values), schema)
    except pydantic.ValidationError as error:
        # A misspelt key is both unknown and missing: the former says more.
        first = min(error.errors(), key=lambda entry: entry["type"] not in _UNKNOWN_KEY)
        raise UserError(f"{path}:{_line(tree, first['loc'])}: {_explain(schema, first)}") from None


def validate(values: Any, schema: type[T]) -> T:
    """Turns plain values, as from a YAML file, into a dataclass.

    Args:
        values: what the file holds.
        schema: a pydantic dataclass with the configuration `STRICT`.

    Raises:
        pydantic.ValidationError: the values do not fit the schema.
    """
    # As JSON, because strict validation of Python values takes no dict where a dataclass stands.
    return pydantic.TypeAdapter(schema).validate_json(json.dumps(values, default=str))


def fault(path: Path, location: tuple[int | str, ...], message: str) -> UserError:
    """Builds the error for a value that fits the schema but nothing else.

    Args:
        path: the YAML file.
        location: keys (and indices of lists) that lead to the value, the outermost first.
        message: what is wrong and what would be right.
    """
    tree = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    return UserError(f"{path}:{_line(tree, location)}: {message}")


def _line(tree: yaml.Node | None, location: tuple[int | str, ...]) -> int:
    """Returns the line (from 1) of the deepest part of `location` that the file has."""
    line = 1
    node = tree
    for step in location:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _explain(schema: type, error: Any) -> str:
    """Turns one pydantic error into a line of plain words."""
    where = ".".join(str(step) for step in error["loc"])
    if error["type"] in _UNKNOWN_KEY:
        fields = getattr(schema, "__pydantic_fields__", {}) if len(error["loc"]) == 1 else {}
        return f"unknown key '{where}'{closest(str(error['loc'][-1]), fields)}"
    if error["type"] in ("missing", "missing_argument"):
        return f"key '{where}' is missing"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"'{where}' {message}, got {error['input']!r}" if where else message
