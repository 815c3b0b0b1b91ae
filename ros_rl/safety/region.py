"""The states in which a task policy may act before its recovery policy takes over."""

import math
from dataclasses import dataclass, replace

from ros_rl.errors import UserError


@dataclass(frozen=True)
class Region:
    """The states of a legged robot whose instability ρ is below d; see `ros_rl.safety.instability`.

    Attributes:
        d: ρ at which recovery begins, between 0 and 1; a fall is ρ = 1.
        tilt_limit: tilt of the base at which it has fallen, rad.
        drop_limit: how far below `height` its base is when it has fallen, m; None: ρ is of the tilt alone.
        height: of the base above the ground, from which the drop counts, m; None: that of the home stance.

    Raises:
        UserError: a number is out of its range.
    """

    d: float
    tilt_limit: float
    drop_limit: float | None = None
    height: float | None = None

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if not 0.0 < self.d < 1.0:
            raise UserError(f"region: d must be between 0 and 1, got {self.d:g}")
        if not 0.0 < self.tilt_limit <= math.pi:
            raise UserError(f"region: tilt_limit must be more than 0 and at most π rad, got {self.tilt_limit:g}")
        for name in ("drop_limit", "height"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise UserError(f"region: {name} must be more than 0 m, got {value:g}")

    def narrowed(self, d: float = 0.0, tilt_limit: float = 0.0, drop_limit: float = 0.0) -> "Region":
        """Returns this region with smaller limits; 0 leaves one as it is.

        Raises:
            UserError: a limit is larger than it was: nobody knows whether the recovery policy comes back from there.
        """
        asked = {"d": d, "tilt_limit": tilt_limit, "drop_limit": drop_limit}
        given = {name: value for name, value in asked.items() if value != 0.0}
        for name, value in given.items():
            largest = getattr(self, name)
            if largest is None:
                raise UserError(f"region: {name} {value:g} has no effect, the recovery policy's region has none")
            if not value <= largest:
                raise UserError(f"region: {name} may be at most {largest:g}, that of the recovery policy's bundle, got {value:g}")
        return replace(self, **given)
