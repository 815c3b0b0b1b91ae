"""What a scripted policy takes from its bundle: checked parameters and gains."""

from typing import TypeVar

import numpy as np
import pydantic

from ros_rl.config import validate
from ros_rl.errors import UserError
from ros_rl.policies.bundle import Bundle

T = TypeVar("T")


def parameters(bundle: Bundle, schema: type[T]) -> T:
    """Reads the `parameters` of a bundle into a dataclass.

    Args:
        bundle: the bundle.
        schema: a pydantic dataclass with the configuration `ros_rl.config.STRICT`.

    Raises:
        UserError: a parameter is missing, unknown or of another type.
    """
    try:
        return validate(bundle.parameters, schema)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"bundle '{bundle.name}': parameter '{'.'.join(map(str, first['loc']))}': {first['msg'].lower()}") from None


def tensor(bundle: Bundle, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns one array of a bundle's weights.

    Raises:
        UserError: it is missing, has another shape or is not finite.
    """
    if name not in bundle.tensors:
        raise UserError(f"bundle '{bundle.name}' has no tensor '{name}' (it has: {', '.join(sorted(bundle.tensors)) or 'none'})")
    value = bundle.tensors[name]
    if value.shape != shape:
        raise UserError(f"bundle '{bundle.name}': tensor '{name}' has shape {value.shape}, needed is {shape}")
    if not np.isfinite(value).all():
        raise UserError(f"bundle '{bundle.name}': tensor '{name}' is not finite")
    return value
