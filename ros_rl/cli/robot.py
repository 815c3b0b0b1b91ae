"""`ros-rl robot`: is a robot's description sound, do both libraries that compute with it read it alike, and a first robot.yaml."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import tyro

from ros_rl.errors import UserError
from ros_rl.robots.draft import draft_robot, robot_yaml
from ros_rl.robots.spec import Joint, RobotSpec, load_robot, robot_names
from ros_rl.sim.agreement import STATES, Agreement, MujocoReading, compare, reading_at_home
from ros_rl.sim.portrait import portrait

FK_TOLERANCE = 1e-9
DYNAMICS_TOLERANCE = 1e-6
_LARGE = 10.0  # m: a link beyond this is taken for one in millimetres
_NUMBERS = ("lower", "upper", "velocity", "effort", "home")
_URDF = (".urdf", ".xacro", ".xml")


@dataclass
class RobotCheck:
    """Reads a robot, compares how MuJoCo and Pinocchio compute it, and says what was repaired and what looks wrong."""

    robot: tyro.conf.Positional[str]
    """name of a robot that ships, or path of a robot.yaml, a URDF or a xacro file"""
    json: bool = False
    """print one JSON object instead of a table"""
    picture: str | None = None
    """PNG file to draw the robot into, at its home pose"""

    def run(self) -> int:
        """Prints the findings; the exit code is 1 if MuJoCo and Pinocchio disagree."""
        spec = _robot(self.robot)
        agreement = compare(spec)
        reading = reading_at_home(spec)
        findings = {
            "ok": _agree(agreement),
            "joints": [_joint_row(joint, spec) for joint in spec.joints + spec.passive],
            "repairs": [asdict(repair) for repair in reading.repairs],
            "fk_error": agreement.fk,
            "mass_matrix_error": agreement.mass_matrix,
            "inverse_dynamics_error": agreement.inverse_dynamics,
            "warnings": _warnings(spec, reading),
        }
        if self.picture is not None:
            _write_picture(Path(self.picture), reading)
        print(json.dumps(findings) if self.json else _page(spec, findings, [str(repair) for repair in reading.repairs]))
        return 0 if findings["ok"] else 1


@dataclass
class RobotNew:
    """Writes a first robot.yaml for a URDF, to be edited: joints, home, gains, tool frame, cameras."""

    urdf: tyro.conf.Positional[str]
    """path of the URDF or xacro file"""
    name: str
    """name of the robot"""
    out: str | None = None
    """folder to write robot.yaml to; a folder of the robot's name if not given"""
    floating_base: bool = False
    """the root link moves freely, as that of a legged robot does"""

    def run(self) -> int:
        """Writes the file and prints its path and what was repaired in the URDF."""
        if not self.name.strip() or "/" in self.name:
            raise UserError(f"'{self.name}' is no name for a robot; a word such as 'my_arm' is")
        path = Path(self.out or self.name) / "robot.yaml"
        if path.exists():
            raise UserError(f"{path}: is there already; choose another folder with --out, or delete it first")
        spec = draft_robot(self.urdf, self.name, self.floating_base)
        text = robot_yaml(spec, path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        load_robot(path.absolute())
        print(f"wrote {path} with {len(spec.joints)} joints; 'ros-rl robot check {path}' says what it is like")
        for repair in spec.read_urdf().repairs:
            print(f"repaired: {repair}")
        return 0


def _robot(text: str) -> RobotSpec:
    """Reads a robot by name or from a robot.yaml; a bare URDF gives what can be told from it."""
    path = Path(text)
    bare = (
        text.endswith(_URDF) or "://" in text or (("/" in text or text not in robot_names()) and path.exists() and path.suffix != ".yaml")
    )
    return draft_robot(text) if bare else load_robot(text)


def _write_picture(path: Path, reading: MujocoReading) -> None:
    if path.suffix.lower() != ".png":
        raise UserError(f"{path}: the picture is a PNG; its name must end in .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), portrait(reading)[..., ::-1])


def _agree(agreement: Agreement) -> bool:
    return agreement.fk < FK_TOLERANCE and max(agreement.mass_matrix, agreement.inverse_dynamics) < DYNAMICS_TOLERANCE


def _joint_row(joint: Joint, spec: RobotSpec) -> dict[str, Any]:
    row = {"name": joint.name, "kind": joint.kind, "commanded": joint in spec.joints}
    numbers = {key: getattr(joint, key) for key in _NUMBERS}
    return row | {key: value if math.isfinite(value) else None for key, value in numbers.items()}


def _warnings(spec: RobotSpec, reading: MujocoReading) -> list[str]:
    warnings = [f"links '{first}' and '{second}' overlap at the home pose" for first, second in reading.overlaps()]
    for link, size in reading.large_links(_LARGE):
        hint = 'if its mesh is in millimetres, it needs scale="0.001 0.001 0.001"'
        warnings.append(f"link '{link}' is {size:.0f} m large; {hint}")
    if not reading.mj.ngeom:
        warnings.append("there are no shapes: nothing is to be seen, and nothing collides")
    for joint in spec.joints:
        if joint.kind == "thruster":
            continue
        for limit in ("velocity", "effort"):
            if not math.isfinite(getattr(joint, limit)):
                warnings.append(f"joint '{joint.name}' has no {limit} limit")
        if spec.command_mode == "position" and joint.stiffness == 0:
            warnings.append(f"joint '{joint.name}' has no stiffness, position commands will not move it")
    return warnings


def _page(spec: RobotSpec, findings: dict[str, Any], repairs: list[str]) -> str:
    rows = [("joint", "kind", *_NUMBERS)]
    for joint in findings["joints"]:
        kind = joint["kind"] if joint["commanded"] else f"{joint['kind']}, passive"
        rows.append((joint["name"], kind, *("-" if joint[key] is None else f"{joint[key]:.4g}" for key in _NUMBERS)))
    base = "floating base" if spec.floating_base else "fixed base"
    return "\n".join(
        [
            f"{spec.name}: {spec.description} ({spec.command_mode} commands at {spec.control_rate:g} Hz, {base})",
            "",
            *_table(rows),
            "",
            f"largest difference between MuJoCo and Pinocchio over {STATES} random states:",
            f"  link poses        {findings['fk_error']:.1e} m",
            f"  mass matrix       {findings['mass_matrix_error']:.1e} relative",
            f"  inverse dynamics  {findings['inverse_dynamics_error']:.1e} relative",
            *(f"repaired: {repair}" for repair in repairs),
            *(f"warning: {warning}" for warning in findings["warnings"]),
            "ok" if findings["ok"] else "the two disagree: look for an inertia or an axis that one of them mends silently",
        ]
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns the rows as lines with aligned columns: two of words, then numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
