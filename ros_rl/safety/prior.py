"""Safe priors: what knows a safe action for every state, and how far a state is from the boundary of its safe set."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ros_rl.errors import UserError
from ros_rl.paths import find, write_atomically
from ros_rl.policies.bundle import Bundle, load_bundle
from ros_rl.robots.spec import ROBOT_FILES

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", np.ndarray, "torch.Tensor")

PRIOR_FILE = "safe_prior.safetensors"  # beside a robot's robot.yaml
BUNDLE_PREFIX = "prior."  # of the tensors in a policy bundle
_SYMMETRY = 1e-9  # relative, that P may be off by
_OVERSHOOT = 1e-6  # that a safe action or a margin may be outside its range by rounding


class InfeasibleSafePrior(UserError):
    """No ellipsoid with its gain fulfils the constraints; the message says which of them conflict."""


class CertificateError(UserError):
    """Something that a certificate claims does not hold; the message gives the inequality and the measured number."""


@runtime_checkable
class SafePrior(Protocol):
    """What keeps a robot safe on its own.

    States are deviations from the safe equilibrium, shape (..., state_size), in the units of the model. Arguments are
    numpy arrays or torch tensors; the result is of the same kind, data type and device.
    """

    @property
    def state_size(self) -> int:
        """Number of states."""

    @property
    def action_size(self) -> int:
        """Number of actions."""

    def margin(self, state: Array) -> Array:
        """Returns how far inside the safe set a state is, shape (...): 1 at its centre, 0 on the boundary and outside."""

    def safe_action(self, state: Array) -> Array:
        """Returns the safe action, each entry in [-1, 1], shape (..., action_size)."""


@dataclass(frozen=True)
class CallablePrior:
    """Any two functions as a safe prior, such as a stance controller and the margin in which it is known to work.

    Attributes:
        margin_of: states (..., n) to margins (...).
        action_of: states (..., n) to actions (..., m).
    """

    state_size: int
    action_size: int
    margin_of: Callable[[Any], Any]
    action_of: Callable[[Any], Any]

    def margin(self, state: Array) -> Array:
        """Returns what `margin_of` does.

        Raises:
            ValueError: it is no number from 0 to 1.
        """
        return _checked("margin", self.margin_of(state), 0.0)

    def safe_action(self, state: Array) -> Array:
        """Returns what `action_of` does.

        Raises:
            ValueError: an entry is no number from -1 to 1.
        """
        return _checked("safe action", self.action_of(state), -1.0)


def _checked(name: str, value: Any, lowest: float) -> Any:
    good = (value >= lowest - _OVERSHOOT) & (value <= 1.0 + _OVERSHOOT)
    if not good.all():
        raise ValueError(f"safe prior: {name} must be within {lowest:g} and 1, got {float(value[~good].reshape(-1)[0]):g}")
    return value.clip(lowest, 1.0)


@dataclass(frozen=True, eq=False)
class LmiPrior:
    """An ellipsoid that a linear feedback never leaves, both from a semidefinite programme (`ros_rl.safety.lmi`).

    With the state s, a deviation from the equilibrium, V(s) = s'Ps. The safe set is V <= 1; the feedback F s stays within the
    actions there, and brings V down to `contraction`·V in one control period of the linear model.

    Attributes:
        A: of the linear model s+ = A s + B u per control period, shape (n, n).
        B: shape (n, m); u is the physical deviation from `action_equilibrium`.
        P: Lyapunov matrix, shape (n, n).
        F: feedback gain, shape (m, n), physical.
        action_range: u that the action 1 stands for, shape (m,).
        box: rows h of the safe box |h s| <= 1, shape (k, n).
        contraction: V after a control period over V before, in (0, 1).
        period: control period, s.
        state_equilibrium: where s = 0 is, shape (n,).
        action_equilibrium: command where u = 0 is, shape (m,).
        sharpness_bound: largest sharpness with which mixing keeps the ellipsoid invariant, see `ros_rl.safety.sharpness`.
        empirical: whether that bound comes from simulation only and is not proven.
        state_names: n names, see `ros_rl.sim.coordinates`.
        action_names: m joints.

    Raises:
        UserError: shapes do not fit, or a number is out of its range.
    """

    A: np.ndarray
    B: np.ndarray
    P: np.ndarray
    F: np.ndarray
    action_range: np.ndarray
    box: np.ndarray
    contraction: float
    period: float
    state_equilibrium: np.ndarray
    action_equilibrium: np.ndarray
    sharpness_bound: float
    empirical: bool
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Makes the arrays float64 and checks them."""
        n, m = len(self.state_names), len(self.action_names)
        shapes = {"A": (n, n), "B": (n, m), "P": (n, n), "F": (m, n), "action_range": (m,), "box": (len(self.box), n)}
        shapes |= {"state_equilibrium": (n,), "action_equilibrium": (m,)}
        for name, shape in shapes.items():
            value = np.array(getattr(self, name), dtype=float, order="C")  # safetensors writes memory as it lies
            if value.shape != shape:
                raise UserError(f"safe prior: {name} has shape {value.shape}, {n} states and {m} actions need {shape}")
            if not np.isfinite(value).all():
                raise UserError(f"safe prior: {name} is not finite")
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        if not (self.action_range > 0).all():
            raise UserError(f"safe prior: action_range must be more than 0, got {self.action_range.tolist()}")
        if not 0.0 < self.contraction < 1.0:
            raise UserError(f"safe prior: contraction must be between 0 and 1, got {self.contraction}")
        if not 0.0 < self.period < np.inf or not np.isfinite(self.sharpness_bound):
            raise UserError(f"safe prior: period {self.period} must be more than 0, sharpness_bound {self.sharpness_bound} finite")
        if np.abs(self.P - self.P.T).max() > _SYMMETRY * np.abs(self.P).max() or np.linalg.eigvalsh(self.P)[0] <= 0:
            raise UserError("safe prior: P is not symmetric and positive definite")

    @property
    def state_size(self) -> int:
        """Number of states n."""
        return len(self.state_names)

    @property
    def action_size(self) -> int:
        """Number of actions m."""
        return len(self.action_names)

    @cached_property
    def _root(self) -> np.ndarray:
        """L with P = L L'. V is |L's|², which is never negative by rounding."""
        return np.linalg.cholesky(self.P)

    @cached_property
    def _gain(self) -> np.ndarray:
        """F in actions instead of physical units."""
        return self.F / self.action_range[:, None]

    def radius(self, state: Array) -> Array:
        """Returns sqrt(s'Ps) of states (..., n), shape (...); 1 is the boundary of the ellipsoid."""
        if isinstance(state, np.ndarray):
            return np.linalg.norm(state @ self._root.astype(state.dtype, copy=False), axis=-1)
        return (state @ _like(self._root, state)).norm(dim=-1)

    def value(self, state: Array) -> Array:
        """Returns V = s'Ps of states (..., n), shape (...)."""
        return self.radius(state) ** 2

    def margin(self, state: Array) -> Array:
        """Returns 1 - radius, 0 outside; shape (...)."""
        return (1.0 - self.radius(state)).clip(0.0, 1.0)

    def safe_action(self, state: Array) -> Array:
        """Returns F s in actions, clipped to [-1, 1]; shape (..., m). It is not clipped inside the ellipsoid."""
        if isinstance(state, np.ndarray):
            return (state @ self._gain.T.astype(state.dtype, copy=False)).clip(-1.0, 1.0)
        return (state @ _like(self._gain.T, state)).clip(-1.0, 1.0)

    def inside_box(self, state: Array) -> Array:
        """Returns whether states (..., n) are inside the safe box, shape (...)."""
        if isinstance(state, np.ndarray):
            return (np.abs(state @ self.box.T) <= 1.0).all(axis=-1)
        return ((state @ _like(self.box.T, state)).abs() <= 1.0).all(dim=-1)

    def to_tensors(self) -> dict[str, np.ndarray]:
        """Returns every number as a float64 array, for a safetensors file; the names go into `description`."""
        return {field.name: np.asarray(getattr(self, field.name), dtype=float) for field in fields(self) if field.name not in _WORDS}

    def description(self) -> dict[str, Any]:
        """Returns what is no number, and the digest, as plain values for a YAML file."""
        return {"state_names": list(self.state_names), "action_names": list(self.action_names), "digest": self.digest()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray], description: Mapping[str, Any]) -> "LmiPrior":
        """Makes the prior again that `to_tensors` and `description` come from.

        Raises:
            UserError: something is missing, or the digest is not that of the numbers.
        """
        numbers = [field.name for field in fields(cls) if field.name not in _WORDS]
        if missing := [name for name in numbers if name not in tensors] + [name for name in (*_WORDS, "digest") if name not in description]:
            raise UserError(f"safe prior: {', '.join(missing)} is missing")
        values: dict[str, Any] = {name: tensors[name] for name in numbers}
        values |= {name: float(values[name]) for name in ("contraction", "period", "sharpness_bound")}
        values |= {"empirical": bool(values["empirical"]), **{name: tuple(description[name]) for name in _WORDS}}
        prior = cls(**values)
        if prior.digest() != description["digest"]:
            raise UserError(f"safe prior: its digest is {prior.digest()}, {description['digest']} was recorded; it was changed or damaged")
        return prior

    def digest(self) -> str:
        """Returns a hash of names and numbers that only a prior equal bit for bit has."""
        digest = hashlib.sha256(repr((self.state_names, self.action_names)).encode())
        for name, value in sorted(self.to_tensors().items()):
            digest.update(f"{name}{value.shape}".encode())
            digest.update(value.astype("<f8").tobytes())
        return digest.hexdigest()[:16]


_WORDS: Sequence[str] = ("state_names", "action_names")


def _like(matrix: np.ndarray, tensor: "torch.Tensor") -> "torch.Tensor":
    """Returns a matrix with the data type and on the device of a tensor."""
    import torch

    return torch.tensor(matrix, dtype=tensor.dtype, device=tensor.device)


def save_prior(path: Path, prior: LmiPrior) -> None:
    """Writes a prior into a safetensors file, whole or not at all."""
    words = {key: json.dumps(value) for key, value in prior.description().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(prior.to_tensors(), words))


def prior_in(bundle: Bundle) -> LmiPrior:
    """Returns the prior that a policy bundle holds, in the tensors ``prior.*`` and the parameter ``prior``.

    Raises:
        UserError: it holds none, or it was changed.
    """
    numbers = {key.removeprefix(BUNDLE_PREFIX): value for key, value in bundle.tensors.items() if key.startswith(BUNDLE_PREFIX)}
    try:
        return LmiPrior.from_tensors(numbers, bundle.parameters.get("prior", {}))
    except (UserError, TypeError) as error:
        raise UserError(f"bundle '{bundle.name}': {error}") from None


def load_prior(name: str | Path) -> LmiPrior:
    """Reads a prior. Nothing is unpickled.

    Args:
        name: a path to a file of `save_prior`; or the folder of a policy bundle that holds one (tensors ``prior.*``, parameter
            ``prior``); or a robot, by name or by the path to its robot.yaml, that has one beside it.

    Raises:
        UserError: there is none, or the file is damaged or was changed.
    """
    path = Path(name)
    if (path / "policy.yaml").is_file():
        return prior_in(load_bundle(path))
    if path.suffix != ".safetensors":
        path = find("robot", ROBOT_FILES, name).parent / PRIOR_FILE
    if not path.is_file():
        raise UserError(f"{path}: there is no safe prior; 'ros-rl safety certify' makes one")
    try:
        with safe_open(path, "numpy") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
            words = {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
        return LmiPrior.from_tensors(tensors, words)
    except (SafetensorError, ValueError, TypeError) as error:
        raise UserError(f"{path}: {error}") from None
