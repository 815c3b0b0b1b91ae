"""From an observation to the arrays a policy reads: presence, size and finiteness checked, histories stacked."""

from collections import deque

import numpy as np

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.policies.interface import ObservationKey, PolicySpec

_FIELDS = tuple(name for name in Observation.__dataclass_fields__ if name not in ("stamp", "image_stamps", "instruction"))
_GROUPS = ("images", "privileged")


def field_value(observation: Observation, name: str) -> np.ndarray | None:
    """Returns the part of an observation that a key names, such as ``joint_position`` or ``images.wrist``, or None."""
    group, _, entry = name.partition(".")
    value = getattr(observation, group)
    return value.get(entry) if entry else value


class ObservationBuilder:
    """Builds the arrays that a policy reads; keeps the history between calls."""

    def __init__(self, spec: PolicySpec):
        """Prepares for the keys of one policy.

        Raises:
            UserError: a key names no field of `Observation`.
        """
        self._keys = tuple(key for key in spec.observation if key.name != "instruction")
        self._history: dict[str, deque[np.ndarray]] = {}
        for key in self._keys:
            group, _, entry = key.name.partition(".")
            if group not in _FIELDS or bool(entry) != (group in _GROUPS):
                known = sorted(f"{name}.<name>" if name in _GROUPS else name for name in _FIELDS)
                raise UserError(f"observation key '{key.name}' names no measured field (known: {', '.join(known)})")

    def reset(self) -> None:
        """Forgets the history: at the start of an episode and when time jumps back."""
        self._history.clear()

    def build(self, observation: Observation) -> dict[str, np.ndarray]:
        """Returns key name to array; with a history of H > 1 the newest H values, oldest first, shape (H, *shape).

        Before H values have been seen, the oldest one is repeated.

        Raises:
            UserError: a key is missing from the observation, has another shape, or is not finite.
        """
        built = {}
        for key in self._keys:
            value = self._checked(key, field_value(observation, key.name))
            if key.history > 1:
                past = self._history.setdefault(key.name, deque([value] * key.history, maxlen=key.history))
                past.append(value)
                value = np.stack(past)
            built[key.name] = value
        return built

    @staticmethod
    def _checked(key: ObservationKey, value: np.ndarray | None) -> np.ndarray:
        if value is None:
            raise UserError(f"the policy reads '{key.name}', which this robot does not measure")
        if value.shape != key.shape:
            raise UserError(f"the policy reads '{key.name}' with shape {key.shape}, the robot gives {value.shape}")
        if not np.isfinite(value).all():
            raise UserError(f"'{key.name}' is not finite")
        return value
