"""What shall be kept safe, and by which actions: as numbers, and as the file safety.yaml beside a robot's robot.yaml."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic

from ros_rl import paths
from ros_rl.config import STRICT, Finite, Positive, fault, read_yaml
from ros_rl.errors import UserError
from ros_rl.robots.spec import ROBOT_FILES, RobotSpec

SAFETY_FILE = "safety.yaml"


@dataclass(frozen=True, eq=False)
class SafeSet:
    """What shall be certified.

    Attributes:
        state_names: n names.
        action_names: m names.
        state_equilibrium: shape (n,).
        action_equilibrium: shape (m,).
        action_range: largest deviation of each action from its equilibrium, shape (m,).
        bounds: name of a state to its lowest and highest safe value (not as deviation).
        scale: typical size of each state, shape (n,).
        contraction: V after a control period over V before, in (0, 1).
        period: control period, s.
    """

    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_equilibrium: np.ndarray
    action_equilibrium: np.ndarray
    action_range: np.ndarray
    bounds: dict[str, tuple[float, float]]
    scale: np.ndarray
    contraction: float
    period: float


@pydantic.dataclasses.dataclass(config=STRICT)
class _StateFile:
    """A state: where it is at rest, its typical size, and the values between which it is safe (all values, if left out)."""

    scale: Positive
    equilibrium: Finite = 0.0
    lower: Finite = -np.inf
    upper: Finite = np.inf


@pydantic.dataclasses.dataclass(config=STRICT)
class _SafetyFile:
    """The contents of safety.yaml. `contraction` is per period of `control_rate`; `actions` says how far each may go from `hold`."""

    control_rate: Positive
    contraction: Positive
    states: dict[str, _StateFile]
    actions: dict[str, Positive]
    sharpness: Literal["proven", "simulated"] = "proven"


def load_safe_set(robot: RobotSpec, name: str | Path) -> tuple[SafeSet, bool]:
    """Reads what is safe for a robot at its control rate, and whether its sharpness bound comes from simulation.

    At another rate than the file's, the contraction is changed so that it is the same per second.

    Args:
        robot: the robot.
        name: of the robot, or the path to its robot.yaml, as it was loaded with.

    Raises:
        UserError: there is no such file, or it does not fit the robot; the message starts with ``file:line``.
    """
    path = paths.find("robot", ROBOT_FILES, name).parent / SAFETY_FILE
    if not path.is_file():
        raise UserError(f"robot '{robot.name}' has no {path}, which says which states are safe")
    file = read_yaml(path, _SafetyFile)
    if set(file.actions) != set(robot.joint_names):
        raise fault(
            path, ("actions",), f"'actions' names {', '.join(file.actions)}; robot '{robot.name}' has {', '.join(robot.joint_names)}"
        )
    if file.contraction >= 1:
        raise fault(path, ("contraction",), f"contraction must be below 1, got {file.contraction:g}")
    rest, (lower, upper) = np.array([joint.hold or 0.0 for joint in robot.joints]), robot.command_limits
    reach = np.array([file.actions[joint] for joint in robot.joint_names])
    for joint, low, high in zip(robot.joint_names, rest - reach < lower - 1e-9, rest + reach > upper + 1e-9, strict=True):
        if low or high:
            raise fault(path, ("actions", joint), f"the range {file.actions[joint]:g} of '{joint}' goes beyond its command limits")
    states = file.states.values()
    return (
        SafeSet(
            state_names=tuple(file.states),
            action_names=robot.joint_names,
            state_equilibrium=np.array([state.equilibrium for state in states]),
            action_equilibrium=rest,
            action_range=reach,
            bounds={key: (state.lower, state.upper) for key, state in file.states.items() if np.isfinite([state.lower, state.upper]).any()},
            scale=np.array([state.scale for state in states]),
            contraction=file.contraction ** (file.control_rate / robot.control_rate),
            period=robot.period,
        ),
        file.sharpness == "simulated",
    )
