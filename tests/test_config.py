"""Tests of ros_rl.config: YAML is read strictly, and every mistake has its file and line."""

from dataclasses import field

import pydantic
import pytest

from ros_rl.config import STRICT, fault, read_yaml
from ros_rl.errors import UserError


@pydantic.dataclasses.dataclass(config=STRICT)
class Wheel:
    radius: float
    spokes: int = 8


@pydantic.dataclasses.dataclass(config=STRICT)
class Cart:
    name: str
    wheels: dict[str, Wheel]
    loads: list[float] = field(default_factory=list)
    brake: bool = False


SOUND = """\
name: cart
wheels:
  left: {radius: 1}
  right:
    radius: 0.5
    spokes: 12
loads:
  - 1.0
  - 2.0
"""


def read(folder, text: str | bytes) -> Cart:
    path = folder / "cart.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path, Cart)


def test_reads_into_the_dataclass(tmp_path):
    assert read(tmp_path, SOUND) == Cart("cart", {"left": Wheel(1.0), "right": Wheel(0.5, 12)}, [1.0, 2.0])


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (SOUND, "", ":1: expected 'key: value' lines, found NoneType"),
        (SOUND, "just text", ":1: expected 'key: value' lines, found str"),
        ("radius: 0.5", "radius: 0.5: 1", ":5: not valid YAML: "),
        ("right:", "left:", ":4: not valid YAML: the key 'left' is there twice"),
        ("name: cart", "name: !!python/name:os.system", ":1: not valid YAML: "),
        ("wheels", "weels", ":2: unknown key 'weels', did you mean 'wheels'?"),
        ("spokes", "spoke", ":6: unknown key 'wheels.right.spoke'"),
        ("    radius: 0.5\n", "", ":4: key 'wheels.right.radius' is missing"),
        ("name: cart\n", "", ":1: key 'name' is missing"),
        ("12", "12.5", ":6: 'wheels.right.spokes' should be a valid integer"),
        ("0.5", "'0.5'", ":5: 'wheels.right.radius' should be a valid number, got '0.5'"),
        ("2.0", "two", ":9: 'loads.1' should be a valid number, got 'two'"),
        ("name: cart", "name: 3", ":1: 'name' should be a valid string, got 3"),
        ("loads:", "brake: 1\nloads:", ":7: 'brake' should be a valid boolean, got 1"),
    ],
)
def test_a_mistake_is_named_with_its_line(right, wrong, message, tmp_path):
    assert right in SOUND
    with pytest.raises(UserError) as caught:
        read(tmp_path, SOUND.replace(right, wrong, 1))
    assert str(caught.value).startswith(f"{tmp_path / 'cart.yaml'}{message}")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cart\.yaml: cannot be read \(No such file or directory\)"):
        read_yaml(tmp_path / "cart.yaml", Cart)
    with pytest.raises(UserError, match=r"cart\.yaml: is not a text file"):
        read(tmp_path, b"\xff\xfe\x00")


@pytest.mark.parametrize(
    ("location", "line"),
    [((), 1), (("name",), 1), (("wheels", "right"), 4), (("wheels", "right", "spokes"), 6), (("wheels", "front"), 2), (("loads", 1), 9)],
)
def test_fault_finds_the_line_of_the_deepest_part_that_the_file_has(location, line, tmp_path):
    read(tmp_path, SOUND)
    assert str(fault(tmp_path / "cart.yaml", location, "wrong")) == f"{tmp_path / 'cart.yaml'}:{line}: wrong"
