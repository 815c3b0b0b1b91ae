"""Policies that LeRobot has trained, from the folder that its trainer writes, where the package `lerobot` is installed."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
import torch

from ros_rl.config import STRICT
from ros_rl.errors import UserError
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import parameters
from ros_rl.robots.spec import RobotSpec

_NEEDED = ("config.json", "model.safetensors", "policy_preprocessor.json", "policy_postprocessor.json")


@pydantic.dataclasses.dataclass(config=STRICT)
class Parameters:
    """Settings of `LeRobotPolicy`.

    Attributes:
        folder: of the trained policy, ``pretrained_model`` in LeRobot's words.
        cameras: camera of the observation to the name that it had in training; those that are missing keep theirs.
        device: "cpu" or "cuda".
    """

    folder: str
    cameras: Annotated[dict[str, str], pydantic.Field(default_factory=dict)] = pydantic.Field(default_factory=dict)
    device: str = "cpu"


class LeRobotPolicy:
    """Plays a policy of the classes that LeRobot knows (ACT, diffusion, SmolVLA, …): it brings its own normalisation.

    With chunks of one row it is asked for an action in every period of the bundle's rate, and keeps chunks and past observations itself.
    With longer ones it is asked for them, which only those can be that read one observation at a time.
    State and action are the robot's joints in the order of the bundle, rad (m), as datasets of this stack have them.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Loads the policy.

        Raises:
            UserError: the package is not installed; the bundle stacks observations; or the folder holds no policy that it can load, or
                one for another number of joints, one that reads several observations while the bundle has chunks, or one that cannot
                read what the bundle names.
        """
        settings = parameters(bundle, Parameters)
        self.spec = bundle.spec
        self._name = bundle.name
        self._cameras = settings.cameras
        self._lower, self._upper = robot.command_limits
        if stacked := [key.name for key in self.spec.observation if key.history > 1]:
            raise UserError(
                f"bundle '{bundle.name}': its history of '{stacked[0]}' must be 1, a policy of LeRobot keeps what it saw itself"
            )
        self._observations = ObservationBuilder(self.spec)
        self._policy, self._before, self._after = _load(Path(settings.folder).expanduser(), settings.device)
        width = self._policy.config.output_features["action"].shape[0]
        if width != len(self.spec.joint_names):
            raise UserError(f"{settings.folder}: gives {width} numbers, the bundle commands {len(self.spec.joint_names)} joints")
        reads = getattr(self._policy.config, "n_obs_steps", 1)
        if reads > 1 and self.spec.chunk > 1:
            raise UserError(f"{settings.folder}: reads {reads} observations in a row; the bundle's chunk must be 1, not {self.spec.chunk}")
        self.reset(0, "")
        self._try(settings.folder)
        self.reset(0, "")

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode."""
        torch.manual_seed(seed)
        self._instruction = instruction
        self._observations.reset()
        self._policy.reset()

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the next chunk, within the robot's limits.

        Raises:
            UserError: the observation lacks what the policy reads, or what it gives is not finite.
        """
        values = self._ask(self._observations.build(observation))
        if not np.isfinite(values).all():
            raise UserError(f"policy '{self._name}' gives actions that are not finite")
        values = np.clip(values, self._lower, self._upper)
        return ActionChunk(self.spec.joint_names, values, 1.0 / self.spec.rate, observation.stamp, self._name)

    def _ask(self, built: Mapping[str, Any]) -> np.ndarray:
        """Returns the actions, (rows, n), for an observation."""
        batch: dict[str, Any] = {"observation.state": torch.from_numpy(built["joint_position"].astype(np.float32))[None]}
        for name, value in built.items():
            if name.startswith("images."):
                camera = name.removeprefix("images.")
                image = torch.from_numpy(value).permute(2, 0, 1)[None].float() / 255.0
                batch[f"observation.images.{self._cameras.get(camera, camera)}"] = image
        batch["task"] = [self._instruction]
        with torch.inference_mode():
            ask = self._policy.select_action if self.spec.chunk == 1 else self._policy.predict_action_chunk
            chunk = self._after(ask(self._before(batch)))
        return np.asarray(chunk.reshape(-1, len(self.spec.joint_names))[: self.spec.chunk].float().cpu().numpy().astype(float))

    def _try(self, folder: str) -> None:
        """Asks once: whether names and sizes are those of the training shows here, and not on the robot."""
        numeric = [key for key in self.spec.observation if key.shape]
        built = {key.name: np.zeros(key.shape, np.uint8 if key.name.startswith("images.") else float) for key in numeric}
        try:
            rows = len(self._ask(built))
        except Exception as error:  # anything, as each class of policies has its own
            raise UserError(f"{folder}: does not take what the bundle reads ({_one_line(error)})") from None
        if rows < self.spec.chunk:
            raise UserError(f"{folder}: gives chunks of {rows} rows, the bundle's chunk is {self.spec.chunk}")


def _load(folder: Path, device: str) -> tuple[Any, Any, Any]:
    """Returns the policy and what comes before and after it. An absolute path is never mistaken for a name on a server."""
    folder = folder.absolute()
    for name in _NEEDED:
        if not (folder / name).is_file():
            raise UserError(f"{folder}: lacks {name}; a policy of LeRobot is a folder with {', '.join(_NEEDED)}")
    if importlib.util.find_spec("lerobot") is None:
        raise UserError(f"{folder}: is a policy of LeRobot, and the package lerobot is not installed; run: pip install lerobot")
    try:
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        config = PreTrainedConfig.from_pretrained(folder, local_files_only=True)
        config.device = device
        policy = get_policy_class(config.type).from_pretrained(folder, config=config, local_files_only=True)
        overrides = {"device_processor": {"device": device}}  # the folder says on which device it was trained
        before, after = make_pre_post_processors(config, pretrained_path=str(folder), preprocessor_overrides=overrides)
        return policy.to(device).eval(), before, after
    except Exception as error:  # of the many libraries that read the folder's files
        raise UserError(f"{folder}: the package lerobot cannot load it on '{device}' ({_one_line(error)})") from None


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
