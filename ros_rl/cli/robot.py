"""`ros-rl robot check`: is a robot's description sound, and do both libraries that compute with it read it alike?"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from ros_rl.robots.spec import Joint, RobotSpec, load_robot
from ros_rl.sim.agreement import STATES, Agreement, compare, home_overlaps

FK_TOLERANCE = 1e-9
DYNAMICS_TOLERANCE = 1e-6
_NUMBERS = ("lower", "upper", "velocity", "effort", "home")


@dataclass
class RobotCheck:
    """Reads a robot, compares how MuJoCo and Pinocchio compute it, and says what looks wrong."""

    robot: tyro.conf.Positional[str]
    """name of a robot that ships, or path of a robot.yaml"""
    json: bool = False
    """print one JSON object instead of a table"""

    def run(self) -> int:
        """Prints the findings; the exit code is 1 if MuJoCo and Pinocchio disagree."""
        spec = load_robot(self.robot)
        agreement = compare(spec)
        findings = {
            "ok": _agree(agreement),
            "joints": [_joint_row(joint, spec) for joint in spec.joints + spec.passive],
            "repairs": [],
            "fk_error": agreement.fk,
            "mass_matrix_error": agreement.mass_matrix,
            "inverse_dynamics_error": agreement.inverse_dynamics,
            "warnings": _warnings(spec),
        }
        print(json.dumps(findings) if self.json else _page(spec, findings))
        return 0 if findings["ok"] else 1


def _agree(agreement: Agreement) -> bool:
    return agreement.fk < FK_TOLERANCE and max(agreement.mass_matrix, agreement.inverse_dynamics) < DYNAMICS_TOLERANCE


def _joint_row(joint: Joint, spec: RobotSpec) -> dict[str, Any]:
    row = {"name": joint.name, "kind": joint.kind, "commanded": joint in spec.joints}
    numbers = {key: getattr(joint, key) for key in _NUMBERS}
    return row | {key: value if math.isfinite(value) else None for key, value in numbers.items()}


def _warnings(spec: RobotSpec) -> list[str]:
    warnings = [f"links '{first}' and '{second}' overlap at the home pose" for first, second in home_overlaps(spec)]
    for joint in spec.joints:
        if joint.kind == "thruster":
            continue
        for limit in ("velocity", "effort"):
            if not math.isfinite(getattr(joint, limit)):
                warnings.append(f"joint '{joint.name}' has no {limit} limit")
        if spec.command_mode == "position" and joint.stiffness == 0:
            warnings.append(f"joint '{joint.name}' has no stiffness, position commands will not move it")
    return warnings


def _page(spec: RobotSpec, findings: dict[str, Any]) -> str:
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
