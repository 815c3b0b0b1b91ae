"""Large vision-language models as token policies: a model of `transformers` reads images and instruction, action tokens follow.

The model comes from a folder, without code from there and without a network. Its own vocabulary is not touched: bins have an embedding
and a head of their own. Adapters (LoRA, Hu et al. 2021, by `peft`) train the language model's attention; the rest stays frozen, and
stays in its folder.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic
import torch
from torch import nn

from ros_rl.config import STRICT, Count
from ros_rl.errors import UserError
from ros_rl.policies.action_tokens import BINS
from ros_rl.policies.extras import check_packages
from ros_rl.policies.token_network import Decoding, Inputs, TokenNetwork

_NEEDED = ("config.json", "tokenizer.json", "preprocessor_config.json")
_SMOLVLM = ("pixel_values", "pixel_attention_mask")


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class BackboneConfig:
    """Which model reads the inputs.

    Attributes:
        folder: where it lies, with its tokenizer and image processor, as `save_pretrained` writes them.
        image: height and width to which images are scaled, before its image processor brings them to the size that it reads.
        lora: rank of the adapters; 0 trains the whole model, and then the bundle holds all of it.
        decoding: "parallel" or "autoregressive".
    """

    folder: str
    image: Annotated[list[Count], pydantic.Field(min_length=2, max_length=2)]
    lora: Annotated[int, pydantic.Field(ge=0)] = 16
    decoding: Decoding = "parallel"


@dataclass(frozen=True)
class Family:
    """How a class of models is asked.

    Attributes:
        image: what stands for one image in the prompt, around its placeholders.
        placeholder: the token that stands for one feature of an image.
        prompt: with {images} and {instruction}.
        arguments: what the image processor is told, beside the images.
        fields: from token ids (1, T), the processor's outputs and the number of rows, what the model takes beside the ids.
    """

    image: tuple[str, str]
    placeholder: str
    prompt: str
    arguments: dict[str, Any]
    fields: Callable[[torch.Tensor, dict[str, torch.Tensor], int], dict[str, torch.Tensor]]


FAMILIES = {
    "smolvlm": Family(
        ("<fake_token_around_image><global-img>", "<fake_token_around_image>"),
        "<image>",
        "<|im_start|>User:{images}{instruction}<end_of_utterance>\nAssistant:",
        {"do_image_splitting": False},
        lambda ids, seen, rows: {name: value.reshape(rows, -1, *value.shape[2:]) for name, value in seen.items() if name in _SMOLVLM},
    ),
    "qwen2_5_vl": Family(
        ("<|vision_start|>", "<|vision_end|>"),
        "<|image_pad|>",
        "<|im_start|>user\n{images}{instruction}<|im_end|>\n<|im_start|>assistant\n",
        {},
        lambda ids, seen, rows: {"pixel_values": seen["pixel_values"], "image_grid_thw": seen["image_grid_thw"]},
    ),
    "paligemma": Family(
        ("", ""),
        "<image>",
        "{images}<bos>{instruction}\n",
        {},
        lambda ids, seen, rows: {"pixel_values": seen["pixel_values"], "token_type_ids": torch.zeros_like(ids).expand(rows, -1)},
    ),
}


@dataclass(eq=False)
class _Read:
    """What the model keeps of rows with the same instruction: which rows, keys and values, and the next position."""

    rows: torch.Tensor
    cache: Any
    position: torch.Tensor | int


class BackboneVla(TokenNetwork):
    """See the module's text. Rows of one instruction are read together, so that no prompt is padded and no row depends on another."""

    def __init__(self, config: BackboneConfig, state: int, ticks: int, joints: int):
        """Loads the backbone; new weights are random, from torch's global generator.

        Args:
            config: which backbone.
            state: numbers in the measured state.
            ticks, joints: of a chunk.

        Raises:
            UserError: the folder holds no such model, or not all of it; or a package that it needs is not installed.
        """
        check_packages(("transformers", *["peft"] * bool(config.lora)), "a VLA")
        base, tokenizer, images, family = load_backbone(Path(config.folder))
        width = base.get_input_embeddings().embedding_dim
        super().__init__(ticks, joints, config.decoding, width, config.image)
        self.config = config
        self.backbone = _with_adapters(base, config.lora) if config.lora else base
        self._tokenizer, self._images, self._family = tokenizer, images, family
        special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._markers = sorted({*special, family.placeholder})
        self.bins = nn.Embedding(BINS, width)
        self.state = nn.Linear(state, width)
        nn.init.normal_(self.bins.weight, std=0.02)

    def embedding(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the vectors of tokens."""
        embedded: torch.Tensor = self.bins(tokens)
        return embedded

    def prefill(self, inputs: Inputs) -> list[_Read]:
        """Reads images and instruction, then the joints' state, which is one position more.

        Raises:
            UserError: an instruction has a marker of the model's own, such as what stands for an image.
        """
        read = []
        for instruction in dict.fromkeys(inputs.instructions):
            rows = torch.tensor([i for i, text in enumerate(inputs.instructions) if text == instruction], device=self.device)
            part = self._read(inputs.images[rows], instruction)
            part.rows = rows
            read.append(part)
        self.advance(self.state(inputs.state)[:, None], read)
        return read

    def advance(self, positions: torch.Tensor, cache: list[_Read]) -> torch.Tensor:
        """Returns the trunk's outputs at the next positions."""
        out: torch.Tensor | None = None
        for part in cache:
            states = self._advance(positions[part.rows], part)
            out = states.new_empty(*positions.shape[:2], states.shape[-1]) if out is None else out
            out = out.index_copy(0, part.rows, states)
        assert out is not None
        return out

    def trained_weights(self) -> dict[str, torch.Tensor]:
        """Returns what is trained, or would be: all but a frozen backbone."""
        frozen = {name for name, value in self.named_parameters() if not value.requires_grad and name.startswith("backbone.")}
        return {name: value for name, value in self.named_parameters() if name not in frozen}

    def _read(self, images: torch.Tensor, instruction: str) -> _Read:
        if marker := next((token for token in self._markers if token in instruction), None):
            raise UserError(
                f"the instruction '{instruction}' has the marker {marker}, which means something else to the network; leave it out"
            )
        count, cameras = images.shape[:2]
        pictures = list(images.flatten(0, 1).cpu().numpy())
        seen = dict(self._images(pictures, return_tensors="pt", **self._family.arguments))
        placeholders = self._features_of_image(seen)
        before, after = self._family.image
        picture = before + self._family.placeholder * placeholders + after
        prompt = self._family.prompt.format(images=picture * cameras, instruction=instruction)
        ids = self._tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        fields = {name: value.to(self.device) for name, value in self._family.fields(ids, seen, count).items()}
        if (pixels := fields.get("pixel_values")) is not None:
            fields["pixel_values"] = pixels.to(self.backbone.dtype)
        ids = ids.expand(count, -1).to(self.device)
        if self._family.placeholder == "<|image_pad|>":
            fields["mm_token_type_ids"] = (ids == self._tokenizer.convert_tokens_to_ids(self._family.placeholder)).int()
        output = self.backbone(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True, **fields)
        moved = getattr(self.backbone, "rope_deltas", None)  # by how much an image takes fewer positions than placeholders
        return _Read(ids, output.cache, ids.shape[1] if moved is None else ids.shape[1] + moved.reshape(-1, 1).expand(count, 1))

    def _advance(self, positions: torch.Tensor, part: _Read) -> torch.Tensor:
        count, steps = positions.shape[:2]
        fields: dict[str, torch.Tensor] = {}
        if isinstance(part.position, torch.Tensor):
            places = part.position + torch.arange(steps, device=self.device)
            fields["position_ids"] = places.expand(3, count, steps)
            part.position = part.position + steps
        output = self.backbone(inputs_embeds=positions.to(self.backbone.dtype), cache=part.cache, use_cache=True, **fields)
        part.cache = output.cache
        states: torch.Tensor = output.last_hidden_state
        return states

    def _features_of_image(self, seen: dict[str, torch.Tensor]) -> int:
        """Returns how many placeholders stand for one image."""
        config = self.backbone.config
        if "image_grid_thw" in seen:
            return int(seen["image_grid_thw"][0].prod()) // config.vision_config.spatial_merge_size**2
        per_side = config.vision_config.image_size // config.vision_config.patch_size
        return int(per_side**2 // getattr(config, "scale_factor", 1) ** 2)


def load_backbone(folder: Path) -> tuple[Any, Any, Any, Family]:
    """Reads model (without its language head), tokenizer and image processor from a folder. Only safetensors are read, no code.

    Raises:
        UserError: the folder holds no model, lacks a part, or is of a family that is not known here.
    """
    import transformers

    folder = folder.expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; a backbone is a folder that save_pretrained wrote")
    for name in _NEEDED:
        if not (folder / name).is_file():
            raise UserError(f"{folder}: lacks {name}; a backbone is a folder with {', '.join(_NEEDED)} and *.safetensors")
    if not list(folder.glob("*.safetensors")):
        raise UserError(f"{folder}: lacks weights as *.safetensors; others are not read")
    try:
        kind = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False).model_type
    except (ValueError, OSError, KeyError) as error:
        raise UserError(f"{folder}/config.json: {_first_line(error)}") from None
    if kind not in FAMILIES:
        raise UserError(f"{folder}: is a model of the class '{kind}'; those that are read are {', '.join(sorted(FAMILIES))}")
    try:
        whole = transformers.AutoModelForImageTextToText.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        images = transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the readers of three formats have no common error
        raise UserError(f"{folder}: cannot be read: {_first_line(error)}") from None
    family = FAMILIES[kind]
    if tokenizer.convert_tokens_to_ids(family.placeholder) in (None, tokenizer.unk_token_id):
        raise UserError(f"{folder}/tokenizer.json: lacks the token {family.placeholder}, which stands for an image in a {kind}")
    return whole.model, tokenizer, images, family


def _with_adapters(base: Any, rank: int) -> Any:
    """Freezes a model and puts adapters on queries and values of its language model."""
    from peft import LoraConfig, inject_adapter_in_model

    base.requires_grad_(False)
    names = [name for name, module in base.named_modules() if isinstance(module, nn.Linear) and _is_target(name)]
    return inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names), base)


def _is_target(name: str) -> bool:
    return re.search(r"(language_model|text_model)\..*\.(q|v)_proj$", name) is not None and "vision" not in name


def _first_line(error: object) -> str:
    return str(error).strip().split("\n")[0][:200]
