"""A learned correction of a trot, as a policy: a small perceptron in NumPy, deterministic."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import pydantic

from ros_rl.config import STRICT, NotNegative, Positive
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.robots.spec import RobotSpec
from ros_rl.robots.trot import Gait
from ros_rl.robots.walking import OBSERVATIONS, Mirror, Walk, Walker

_CUT = 10.0  # standard deviations that a normalised observation is cut to
MEASURED = ("base_quat", "base_gyro", "joint_position", "joint_velocity")
_GAIT = ("stance", "phase")
_LIMITS = ("velocity_limit", "acceleration_limit")
_GAP = 0.5  # s without an observation, after which the stride is lost; after 0.4 s, to walk on falls no more often than to begin anew


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `QuadrupedWalk`, see `Correction` for `symmetric`, `ros_rl.robots.walking.Walk` and `ros_rl.robots.trot.Gait`."""

    frequency: Positive
    duty: Annotated[float, pydantic.Field(ge=0.5, lt=1.0)]
    lift: NotNegative
    full_lift_speed: Positive
    rate: Positive
    correction: Positive
    settle: NotNegative
    symmetric: bool = False


class Correction:
    """From what the walker sees to the action: a perceptron with tanh between its layers, on normalised observations.

    With a mirror, the action is the mean of that and of what it does in the mirror, seen in the mirror: left and right are then alike.
    """

    def __init__(
        self,
        weights: Sequence[np.ndarray],
        biases: Sequence[np.ndarray],
        mean: np.ndarray,
        variance: np.ndarray,
        mirror: Mirror | None = None,
    ):
        """
        Args:
            weights: of each layer, float32 (inputs, outputs).
            biases: of each layer, float32 (outputs,).
            mean: of the observations, (o,).
            variance: of the observations, (o,).
            mirror: None: the perceptron's action is taken as it is.
        """
        self._layers = list(zip(weights, biases, strict=True))
        self._mean, self._spread, self._mirror = mean, np.sqrt(variance + 1e-8), mirror

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns actions within ±1, (k, m), of observations (k, o)."""
        if self._mirror is None:
            return self._act(observation)
        return 0.5 * (self._act(observation) + self._mirror.action(self._act(self._mirror.observation(observation))))

    def _act(self, observation: np.ndarray) -> np.ndarray:
        values = np.clip((observation - self._mean) / self._spread, -_CUT, _CUT).astype(np.float32)
        for layer, (weight, bias) in enumerate(self._layers):
            values = values @ weight + bias
            if layer < len(self._layers) - 1:
                values = np.tanh(values)
        return np.clip(values.astype(float), -1.0, 1.0)


class QuadrupedWalk:
    """Follows a velocity command on four legs.

    It acts at a fraction of the control rate; the rows of its chunk are the control periods in between.
    """

    walker_class: type[Walker] = Walker

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the walk and the network (tensors ``weight0``, ``bias0`` and so on, ``mean`` and ``variance`` of what it sees).

        Raises:
            UserError: the bundle is incomplete, or was made for another rate or other joints.
        """
        self.spec, self._name = bundle.spec, bundle.name
        self.walker = self.walker_class(walk_in(bundle), robot, 1)
        if bundle.spec.rate != robot.control_rate or bundle.spec.chunk != self.walker.periods:
            wanted = f"{robot.control_rate:g} Hz in chunks of {self.walker.periods}"
            raise UserError(f"bundle '{bundle.name}' acts at {bundle.spec.rate:g} Hz in chunks of {bundle.spec.chunk}, needed is {wanted}")
        self.correction = correction_in(bundle, self.walker.actions)
        self._observations = ObservationBuilder(self.spec)
        self.reset(0, "")

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode from whatever posture is measured next; there is no randomness."""
        self._observations.reset()
        self._begun, self._acted = False, 0.0

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the joint targets of the control periods until the next action, rad."""
        seen = self._observations.build(observation)
        if observation.stamp - self._acted > _GAP:
            self._begun = False
        self._acted = observation.stamp
        if not self._begun:
            self._begin(seen)
            self._begun = True
        return ActionChunk(self.spec.joint_names, self._rows(seen), 1.0 / self.spec.rate, observation.stamp, self._name)

    def _begin(self, seen: Mapping[str, np.ndarray]) -> None:
        self.walker.begin([0], seen["joint_position"][None])

    def _rows(self, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the joint targets of the next control periods, rad, (periods, joints)."""
        walker = self.walker
        if walker.clock[0] < walker.settling:
            return walker.stand_up()[0]
        walker.listen(seen["command"][None])
        return self._walk_on(seen)

    def _walk_on(self, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        measured = (seen[name][None] for name in MEASURED)
        return self.walker.walk_on(self.correction(self.walker.observation(*measured)))[0]


def contents_of(walk: Walk) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the parameters and tensors that hold a walk in a bundle."""
    gait = {name: value for name, value in asdict(walk.gait).items() if name not in _GAIT}
    rest = {name: value for name, value in asdict(walk).items() if name not in ("gait", *_LIMITS)}
    return {**gait, **rest}, {
        **{name: getattr(walk.gait, name) for name in _GAIT},
        **{name: getattr(walk, name) for name in _LIMITS},
    }


def walk_in(bundle: Bundle) -> Walk:
    """Returns the walk that a bundle holds.

    Raises:
        UserError: it is incomplete, its limits are none, or its rate does not divide that of the joint targets.
    """
    own = parameters(bundle, Parameters)
    gait = Gait(own.frequency, own.duty, own.lift, own.full_lift_speed, tensor(bundle, "stance", (4, 3)), tensor(bundle, "phase", (4,)))
    if abs(bundle.spec.rate / own.rate - round(bundle.spec.rate / own.rate)) > 1e-9:
        raise UserError(
            f"bundle '{bundle.name}': its rate of {own.rate:g} Hz does not divide that of its joint targets, {bundle.spec.rate:g} Hz"
        )
    velocity, acceleration = (tensor(bundle, name, shape) for name, shape in zip(_LIMITS, ((2, 3), (3,)), strict=True))
    if (velocity * [[-1.0], [1.0]] < 0.0).any() or (acceleration <= 0.0).any():
        raise UserError(f"bundle '{bundle.name}': velocity_limit must go from below to above zero, acceleration_limit be above it")
    return Walk(gait, own.rate, own.correction, own.settle, velocity, acceleration)


def correction_in(bundle: Bundle, actions: int = Walker.actions) -> Correction:
    """Returns the network that a bundle holds, whose actions have as many numbers as the walker takes.

    Raises:
        UserError: it is incomplete, or its layers do not fit together.
    """
    widths = [OBSERVATIONS]
    weights: list[np.ndarray] = []
    biases: list[np.ndarray] = []
    while f"weight{len(weights)}" in bundle.tensors or not weights:
        layer = len(weights)
        found = bundle.tensors.get(f"weight{layer}")
        shape = (widths[-1], found.shape[-1] if found is not None and found.ndim else 0)
        weights.append(tensor(bundle, f"weight{layer}", shape))
        biases.append(tensor(bundle, f"bias{layer}", shape[1:]))
        widths.append(shape[1])
    if widths[-1] != actions:
        raise UserError(f"bundle '{bundle.name}': its network has {widths[-1]} outputs, needed are {actions}")
    mean, variance = (tensor(bundle, name, (OBSERVATIONS,)) for name in ("mean", "variance"))
    return Correction(weights, biases, mean, variance, Mirror(bundle.spec.joint_names) if _symmetric(bundle) else None)


def _symmetric(bundle: Bundle) -> bool:
    """Returns whether left and right are to be made alike.

    Raises:
        UserError: they are, and the trot is not its own mirror image half a stride later.
    """
    if not parameters(bundle, Parameters).symmetric:
        return False
    gait, other = walk_in(bundle).gait, [1, 0, 3, 2]  # in the order of LEGS
    late = np.abs((gait.phase[other] - gait.phase) % 1.0 - 0.5).max()
    if late > 1e-9 or np.abs(gait.stance[other] * [1.0, -1.0, 1.0] - gait.stance).max() > 1e-9:
        raise UserError(f"bundle '{bundle.name}': symmetric needs a stance that is, and legs that step half a stride after those opposite")
    return True
