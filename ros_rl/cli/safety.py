"""`ros-rl safety`: what keeps a robot safe, computed, checked and drawn."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from ros_rl.paths import write_atomically
from ros_rl.safety.certify import Certified, certify_robot, leaving, linear_step
from ros_rl.safety.prior import PRIOR_FILE, LmiPrior, save_prior
from ros_rl.sim.coordinates import POSITIONS

_ROLLOUTS = 10_000
_LINEAR_PERIODS, _SIMULATED_PERIODS = 100, 20
_VELOCITIES = {"joint_position": "joint_velocity", "base_position": "base_velocity", "base_rotation": "base_gyro"}


@dataclass
class SafetyCertify:
    """Computes a feedback and the ellipsoid that it never leaves from a robot's safety.yaml, and checks both."""

    robot: tyro.conf.Positional[str]
    """name of a robot that ships, or path of a robot.yaml with a safety.yaml beside it"""
    rate: float = 0.0
    """control rate, Hz; 0: the robot's own"""
    json: bool = False
    """print one JSON object instead of a page"""
    out: str | None = None
    """folder to write safe_prior.safetensors, certificate.json and ellipsoid.png to"""

    def run(self) -> int:
        """Prints the certificate; a failed one is an error."""
        certified = certify_robot(self.robot, self.rate)
        findings = _findings(certified)
        if self.out is not None:
            folder = Path(self.out)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "certificate.json", (json.dumps(findings, indent=2) + "\n").encode())
            write_atomically(folder / "ellipsoid.png", picture(certified.prior))
            save_prior(folder / PRIOR_FILE, certified.prior)
        print(json.dumps(findings) if self.json else _page(certified.prior, findings))
        return 0


def _findings(certified: Certified) -> dict[str, Any]:
    prior, certificate = certified.prior, certified.certificate
    return {
        "digest": prior.digest(),
        "states": list(prior.state_names),
        "actions": list(prior.action_names),
        "period": prior.period,
        "A": prior.A.tolist(),
        "B": prior.B.tolist(),
        "P": prior.P.tolist(),
        "F": prior.F.tolist(),
        "contraction_asked": prior.contraction,
        "contraction": certificate.contraction,
        "spectral_radius": certificate.spectral_radius,
        "box_margin": [1.0 - reach for reach in certificate.box_reach.tolist()],
        "action_margin": [1.0 - reach for reach in certificate.action_reach.tolist()],
        "reach": (1.0 / np.sqrt(np.diag(prior.P))).tolist(),
        "extent": np.sqrt(np.diag(np.linalg.inv(prior.P))).tolist(),
        "mujoco_pinocchio_difference": certified.disagreement,
        "nonlinear_states": certified.nonlinear.states,
        "nonlinear_largest_value": certified.nonlinear.largest,
        "nonlinear_outside": certified.nonlinear.outside,
        "rollouts": _ROLLOUTS,
        "rollout_periods": {"linear": _LINEAR_PERIODS, "simulated": _SIMULATED_PERIODS},
        "leaving_linear": leaving(prior, linear_step(prior), _ROLLOUTS, _LINEAR_PERIODS),
        "leaving_simulated": leaving(prior, certified.plant.step, _ROLLOUTS, _SIMULATED_PERIODS),
        "sharpness_bound": prior.sharpness_bound,
        "sharpness_is": "simulated" if prior.empirical else "proven",
    }


def _page(prior: LmiPrior, findings: dict[str, Any]) -> str:
    gain, lyapunov = _without_dust(prior.F), _without_dust(prior.P)
    rows = [("state", "alone up to", "at most", "gain of " + ", ".join(prior.action_names))]
    for index, name in enumerate(prior.state_names):
        gains = ", ".join(f"{value:.4g}" for value in gain[:, index])
        rows.append((name, f"{findings['reach'][index]:.4g}", f"{findings['extent'][index]:.4g}", gains))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    matrix = ["  ".join(f"{value:11.5g}" for value in row) for row in lyapunov]
    return "\n".join(
        [
            f"safe prior {findings['digest']} at {1 / prior.period:g} Hz: V(s) = s'Ps <= 1 under u = F s",
            "",
            *table,
            "",
            "P:",
            *matrix,
            "",
            f"contraction per period      {findings['contraction']:.6f} ({prior.contraction:.6g} asked for)",
            f"margin to the safe box      {_percent(findings['box_margin'])}",
            f"margin of the actions       {_percent(findings['action_margin'])}",
            f"MuJoCo against Pinocchio    {findings['mujoco_pinocchio_difference']:.1e}",
            f"simulator, one period       V up to {findings['nonlinear_largest_value']:.4f} from {findings['nonlinear_states']} states",
            f"rollouts that leave         {findings['leaving_linear']:.2%} of {_ROLLOUTS} in the linear model ({_LINEAR_PERIODS} periods), "
            f"{findings['leaving_simulated']:.2%} in the simulator ({_SIMULATED_PERIODS})",
            f"sharpness bound             {findings['sharpness_bound']:g} ({findings['sharpness_is']})",
        ]
    )


def _without_dust(matrix: np.ndarray) -> np.ndarray:
    """Returns a matrix to look at, with 0 where only rounding is left."""
    return np.where(np.abs(matrix) < 1e-9 * np.abs(matrix).max(), 0.0, matrix)


def _percent(margins: list[float]) -> str:
    return ", ".join(f"{max(0.0, 100 * margin):.2f}" for margin in margins) + " %"


def picture(prior: LmiPrior) -> bytes:
    """Returns a PNG of the ellipsoid: each position with its velocity, and the two positions that depend on each other most.

    A section is where all other states are zero; the shadow is as far as the ellipsoid reaches with any others.
    """
    from matplotlib.figure import Figure

    pairs = _pairs(prior)
    columns = min(3, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.6 * rows), layout="constrained")
    circle = np.stack([np.cos(angle := np.linspace(0, 2 * np.pi, 200)), np.sin(angle)])
    spread = np.linalg.inv(prior.P)
    for index, (i, j) in enumerate(pairs):
        axes = figure.add_subplot(rows, columns, index + 1)
        both = np.ix_([i, j], [i, j])
        shadow = np.linalg.cholesky(spread[both]) @ circle
        section = np.linalg.solve(np.linalg.cholesky(prior.P[both]).T, circle)
        axes.fill(*shadow, color="#0d8cad", alpha=0.15, label="shadow")
        axes.plot(*section, color="#0d8cad", label="section")
        _draw_box(axes, prior, i, j)
        axes.set_xlabel(prior.state_names[i])
        axes.set_ylabel(prior.state_names[j])
        axes.axhline(0, color="0.85", linewidth=0.8, zorder=0)
        axes.axvline(0, color="0.85", linewidth=0.8, zorder=0)
        if index == 0:
            axes.legend(loc="upper right", fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw_box(axes: Any, prior: LmiPrior, i: int, j: int) -> None:
    """Draws the edges of the safe box that speak of one of the two states alone."""
    label: str | None = "safe box"
    for row in prior.box:
        (states,) = np.nonzero(row)
        for state, line in ((i, axes.axvline), (j, axes.axhline)):
            if list(states) == [state]:
                for side in (-1, 1):
                    line(side / row[state], color="#c0392b", linestyle="--", linewidth=1, label=label)
                    label = None


def _pairs(prior: LmiPrior) -> list[tuple[int, int]]:
    names = list(prior.state_names)
    pairs = []
    for index, name in enumerate(names):
        kind, _, part = name.partition(".")
        if (velocity := f"{_VELOCITIES.get(kind)}.{part}") in names:
            pairs.append((index, names.index(velocity)))
    positions = [index for index, name in enumerate(names) if name.partition(".")[0] in POSITIONS]
    if len(positions) > 1:
        spread = np.linalg.inv(prior.P)
        related = np.abs(spread / np.sqrt(np.outer(np.diag(spread), np.diag(spread))))[np.ix_(positions, positions)]
        np.fill_diagonal(related, 0.0)
        first, second = np.unravel_index(int(related.argmax()), related.shape)
        pairs.append((positions[min(first, second)], positions[max(first, second)]))
    return pairs
