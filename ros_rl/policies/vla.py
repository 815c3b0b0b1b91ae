"""The vision-language-action policy: images, instruction and joint positions to chunks of joint targets, as action tokens."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import cv2
import numpy as np
import pydantic
import torch

from ros_rl.config import STRICT, Count, NotNegative, Positive
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.action_tokens import Ranges, WaypointCode, rows_between
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.embedded_vla import EmbeddedConfig, EmbeddedVla
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.language import check_instruction
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters, tensor
from ros_rl.policies.token_network import Inputs, Scored, TokenNetwork
from ros_rl.policies.vla_backbone import BackboneConfig, BackboneVla
from ros_rl.robots.spec import RobotSpec

ACTOR = "vla"
_NETWORK = "network."


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of a `VlaPolicy`.

    Attributes:
        ticks: waypoints in a chunk.
        period: s from one waypoint to the next; the targets between lie on a straight line.
        relative: joints whose waypoints are offsets from the measured position.
        temperature: at which tokens are drawn; 0 draws none and takes what `choice` says.
        choice: of each token for itself, the middle of its distribution ("median"), which moves little with the distribution where that is
            broad, but may be an unlikely bin between two likely ones; or the likeliest bin ("mode"), which may jump.
        embedded: shape of the small network; or
        backbone: which image-text-to-text model reads the inputs.
    """

    ticks: Count
    period: Positive
    relative: Annotated[list[str], pydantic.Field(default_factory=list)] = field(default_factory=list)
    temperature: NotNegative = 0.0
    choice: Literal["median", "mode"] = "median"
    embedded: EmbeddedConfig | None = None
    backbone: BackboneConfig | None = None


@dataclass(frozen=True, eq=False)
class VlaModel:
    """A network with what its numbers mean; learning changes the network's weights in place.

    Attributes:
        spec: what the policy reads and commands.
        settings: of the bundle.
        network: from inputs to tokens.
        state: ranges of the measured joints.
        code: tokens of the waypoints.
    """

    spec: PolicySpec
    settings: Parameters
    network: TokenNetwork
    state: Ranges
    code: WaypointCode

    @classmethod
    def new(cls, spec: PolicySpec, settings: Parameters, state: Ranges, action: Ranges) -> "VlaModel":
        """Makes a model whose new weights are random, from torch's global generator.

        Args:
            spec: of the policy; see `spec_for`.
            settings: of the bundle.
            state: ranges of the measured joints.
            action: ranges of the waypoints, relative ones as offsets.

        Raises:
            UserError: the settings name no network or two, or joints that are not commanded.
        """
        if missing := set(settings.relative) - set(spec.joint_names):
            raise UserError(f"relative names {', '.join(sorted(missing))}, the policy commands {', '.join(spec.joint_names)}")
        relative = np.array([name in settings.relative for name in spec.joint_names])
        code = WaypointCode(action, relative, settings.ticks)
        if (settings.embedded is None) == (settings.backbone is None):
            raise UserError("a VLA has either 'embedded' or 'backbone' settings")
        network: TokenNetwork
        if settings.embedded is not None:
            network = EmbeddedVla(settings.embedded, len(spec.cameras), len(state.names), settings.ticks, len(relative))
        else:
            assert settings.backbone is not None
            network = BackboneVla(settings.backbone, len(state.names), settings.ticks, len(relative))
        return cls(spec, settings, network.eval(), state, code)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "VlaModel":
        """Reads the model of a bundle.

        Raises:
            UserError: the bundle is no VLA's, is incomplete, or its parts do not fit together.
        """
        if bundle.actor != ACTOR:
            raise UserError(f"bundle '{bundle.name}' is played by '{bundle.actor}', it is no vision-language-action policy ('{ACTOR}')")
        settings = parameters(bundle, Parameters)
        measured = next((key.shape[-1] for key in bundle.spec.observation if key.name == "joint_position"), None)
        if measured is None:
            raise UserError(f"bundle '{bundle.name}': a VLA reads joint_position")
        joints = len(bundle.spec.joint_names)
        names = bundle.spec.joint_names + tuple(f"passive joint {i}" for i in range(measured - joints))
        try:
            state = Ranges(names, *(tensor(bundle, f"state.{end}", (measured,)) for end in ("lower", "upper")))
            action = Ranges(bundle.spec.joint_names, *(tensor(bundle, f"action.{end}", (joints,)) for end in ("lower", "upper")))
            model = cls.new(bundle.spec, settings, state, action)
        except UserError as error:
            raise UserError(f"bundle '{bundle.name}': {str(error).removeprefix(f'bundle {bundle.name!r}: ')}") from None
        _load(bundle, model.network)
        return model

    def to_bundle(self, name: str, method: str, training: Mapping[str, str], metrics: Mapping[str, Any]) -> Bundle:
        """Returns the bundle that `from_bundle` makes this model of."""
        weights = {_NETWORK + key: value.detach().cpu().numpy().copy() for key, value in own_weights(self.network).items()}
        tensors = weights | self.state.tensors("state") | self.code.ranges.tensors("action")
        settings = pydantic.TypeAdapter(Parameters).dump_python(self.settings, exclude_none=True, mode="json")
        return Bundle(name, ACTOR, method, self.spec, settings, tensors, dict(training), dict(metrics))

    def meaning(self) -> dict[str, str]:
        """Returns short names for what weights belong to: what is read and commanded, the network with its vocabulary, and the ranges."""
        played = {"temperature", "choice"}  # no weight depends on them
        settings = pydantic.TypeAdapter(Parameters).dump_json(self.settings, exclude=played)
        ranges = b"".join(end.tobytes() for of in (self.state, self.code.ranges) for end in (of.lower, of.upper))
        parts = {"spec": repr(self.spec).encode(), "network": settings, "ranges": ranges}
        return {name: hashlib.blake2b(part, digest_size=8).hexdigest() for name, part in parts.items()}

    @property
    def rows(self) -> int:
        """Rows in a chunk for each waypoint."""
        return self.spec.chunk // self.settings.ticks

    def inputs(self, images: Mapping[str, np.ndarray], position: np.ndarray, instructions: Sequence[str]) -> Inputs:
        """Returns what the network reads of B observations.

        Args:
            images: camera name to (B, height, width, 3) uint8, of any size.
            position: of the measured joints, (B, s).
            instructions: B texts.
        """
        size = self.network.image
        stacked = np.stack([[scaled(image, size) for image in images[name]] for name in self.spec.cameras], axis=1)
        state = torch.from_numpy(self.state.normalised(position).astype(np.float32))
        return Inputs(torch.from_numpy(stacked), state, instructions).to(self.network.device)

    def decide(self, inputs: Inputs, temperature: float, draws: Sequence[np.random.Generator]) -> Scored:
        """Returns the chunks for B rows of inputs.

        Args:
            inputs: of B observations.
            temperature: at which tokens are drawn. At 0 none are: the settings' `choice` says which are taken, no random number is used,
                and log-probabilities and entropies are those at 1.
            draws: of random numbers, one generator for each row; not read at temperature 0.

        Raises:
            UserError: the temperature is negative or no number, or the network gives NaN.
        """
        if not temperature >= 0:
            raise UserError(f"temperature must be 0 or more, got {temperature:g}")
        shape = len(inputs), self.network.length
        if temperature > 0:
            return self.network.decode(inputs, temperature, torch.from_numpy(np.stack([draw.random(shape[1]) for draw in draws])))
        if self.settings.choice == "median":
            return self.network.decode(inputs, 1.0, torch.full(shape, 0.5))
        return self.network.decode(inputs)

    def targets(self, tokens: np.ndarray, position: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Returns the rows (B, chunk, n) of tokens (B, L) decided at measured positions (B, s), on lines that begin at `start` (B, n)."""
        waypoints = self.code.decode(tokens, position[..., : len(self.spec.joint_names)])
        return rows_between(start, waypoints, self.rows)


class VlaPolicy:
    """Plays a `VlaModel`. A chunk begins where the last one ended, the first at the measured position."""

    def __init__(self, bundle: Bundle, robot: RobotSpec, model: VlaModel | None = None):
        """Reads the bundle's weights.

        Args:
            bundle: what to read.
            robot: that it shall command.
            model: that the bundle holds, where it has been read already.

        Raises:
            UserError: the bundle is incomplete or its parts do not fit together.
        """
        self.model = VlaModel.from_bundle(bundle) if model is None else model
        self.spec = self.model.spec
        self._name = bundle.name
        self._lower, self._upper = robot.command_limits
        self._observations = ObservationBuilder(self.spec)
        self._warm_up()
        self.reset(0, "do nothing")

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode.

        Raises:
            UserError: the instruction is empty or too long.
        """
        self._instruction = check_instruction(instruction)
        self._draw = np.random.default_rng(seed)
        self._last: tuple[float, np.ndarray] | None = None
        self._confidence: dict[str, float] = {}
        self._observations.reset()

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the next chunk, within the robot's limits.

        Raises:
            UserError: the observation lacks what the policy reads or has it in another size, or the network gives NaN.
        """
        built = self._observations.build(observation)
        position = built["joint_position"]
        images = {name: built[f"images.{name}"][None] for name in self.spec.cameras}
        inputs = self.model.inputs(images, position[None], [self._instruction])
        chosen = self.model.decide(inputs, self.model.settings.temperature, [self._draw])
        self._confidence = {"log_prob": float(chosen.log_prob.sum()), "entropy": float(chosen.entropy.mean())}
        start = self._start(observation.stamp, position)
        values = self.model.targets(chosen.tokens.cpu().numpy(), position[None], start[None])[0]
        values = np.clip(values, self._lower, self._upper)
        dt = 1.0 / self.spec.rate
        self._last = observation.stamp + len(values) * dt, values[-1]
        return ActionChunk(self.spec.joint_names, values, dt, observation.stamp, self._name)

    def _warm_up(self) -> None:
        """Answers once, of black images: the first answer takes seconds, in which a robot would wait."""
        black = {name: np.zeros((1, *self.model.network.image, 3), np.uint8) for name in self.spec.cameras}
        self.model.decide(self.model.inputs(black, np.zeros((1, len(self.model.state.names))), ["do nothing"]), 0.0, [])

    def report(self) -> dict[str, float]:
        """Returns log-probability of the last chunk and mean entropy of its tokens, nats."""
        return self._confidence

    def _start(self, stamp: float, position: np.ndarray) -> np.ndarray:
        """Returns where the chunk's first line begins: at the last target, if it was due just now."""
        if self._last is not None and abs(self._last[0] - stamp) < self.model.settings.period / 2:
            return self._last[1]
        return position[: len(self.spec.joint_names)]


def scaled(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns an image (height, width, 3) at another size, by the mean over areas; the same for demonstrations and when acting."""
    return image if image.shape[:2] == size else np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA))


def spec_for(robot: RobotSpec, cameras: Mapping[str, tuple[int, int]], ticks: int, period: float) -> PolicySpec:
    """Returns the spec of a VLA for a robot: it gives a command for every control period.

    Args:
        robot: the robot.
        cameras: name to (height, width) of the images that it gets.
        ticks: waypoints in a chunk.
        period: s from one waypoint to the next, a multiple of the robot's control period.

    Raises:
        UserError: the period does not fit the control rate, no camera is named, or the robot takes no positions.
    """
    rows = period * robot.control_rate
    if rows < 1 - 1e-9 or abs(rows - round(rows)) > 1e-6:
        raise UserError(f"period is {period:g} s, it must be a multiple of the control period of '{robot.name}', {robot.period:g} s")
    if not cameras:
        raise UserError("a VLA reads at least one camera")
    if robot.command_mode != "position":
        raise UserError(f"a VLA gives position commands, robot '{robot.name}' takes {robot.command_mode} commands")
    keys = [ObservationKey("joint_position", (len(robot.measured_names),)), ObservationKey("instruction", ())]
    keys += [ObservationKey(f"images.{name}", (*size, 3)) for name, size in cameras.items()]
    return PolicySpec(robot.name, robot.joint_names, tuple(keys), robot.control_rate, ticks * round(rows), "position")


def relative_joints(robot: RobotSpec) -> list[str]:
    """Returns the joints whose waypoints are offsets: all but the gripper's."""
    return [name for name in robot.joint_names if robot.gripper is None or name != robot.gripper.joint]


def with_temperature(model: VlaModel, temperature: float) -> VlaModel:
    """Returns the model, to be played at another temperature; the network is the same one."""
    return replace(model, settings=replace(model.settings, temperature=temperature))


def shortened(bundle: Bundle, ticks: int) -> Bundle:
    """Returns a VLA's bundle that decides the first waypoints of each chunk only, as before, and so looks again sooner.

    What a network answers at a waypoint depends on none that follow, so the probabilities of those that remain are the same.

    Args:
        bundle: of a VLA.
        ticks: waypoints that remain.

    Raises:
        UserError: the bundle is no VLA's, or its chunks do not have that many waypoints.
    """
    model = VlaModel.from_bundle(bundle)
    if not 1 <= ticks <= model.settings.ticks:
        raise UserError(f"ticks must be from 1 to the {model.settings.ticks} of bundle '{bundle.name}', got {ticks}")
    tensors = dict(bundle.tensors)
    if model.network.decoding == "parallel":  # a query for each waypoint; otherwise there is one, of the first token
        tensors[_NETWORK + "start"] = tensors[_NETWORK + "start"][:ticks]
    spec = replace(bundle.spec, chunk=ticks * model.rows)
    return replace(bundle, spec=spec, parameters={**bundle.parameters, "ticks": ticks}, tensors=tensors)


def own_weights(network: TokenNetwork) -> dict[str, torch.Tensor]:
    """Returns the weights that a bundle keeps: all but those of a frozen backbone, which stay in its folder."""
    if isinstance(network, BackboneVla):
        return network.trained_weights()
    return dict(network.state_dict())


def digest(network: TokenNetwork) -> str:
    """Returns a short name for the present weights, the same for equal ones."""
    found = hashlib.blake2b(digest_size=8)
    for key, value in sorted(own_weights(network).items()):
        found.update(key.encode() + value.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def _load(bundle: Bundle, network: TokenNetwork) -> None:
    wanted = own_weights(network)
    given = {key.removeprefix(_NETWORK) for key in bundle.tensors if key.startswith(_NETWORK)}
    if extra := sorted(given - set(wanted)):
        raise UserError(f"bundle '{bundle.name}' has the tensor '{_NETWORK}{extra[0]}', which its network does not")
    with torch.no_grad():
        for key, value in wanted.items():
            value.copy_(torch.from_numpy(tensor(bundle, _NETWORK + key, tuple(value.shape))))
