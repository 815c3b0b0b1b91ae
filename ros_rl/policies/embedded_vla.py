"""The small vision-language-action network that is trained from scratch: about a million parameters, made for a CPU.

Each camera passes four convolutions with stride 2, the middle ones scaled and shifted by the instruction (FiLM, Perez et al. 2018), so that
what is looked for depends on what was said. Of the second stage, spatial soft-arg-max (Finn et al. 2016) reads where things are, finer than
the grid. A small Llama of the `transformers` library reads instruction, joints, keypoints and the last stage's cells, and after them
the positions of the chunk.
"""

from typing import Annotated, Any, Literal

import pydantic
import torch
from torch import nn
from torch.nn import functional

from ros_rl.config import STRICT, Count
from ros_rl.policies.action_tokens import BINS
from ros_rl.policies.extras import ENCODER, check_packages
from ros_rl.policies.language import SentenceEncoder, WordEncoder
from ros_rl.policies.token_network import Decoding, Inputs, TokenNetwork

_STRIDE = 16  # of all four convolutions
_CHANNELS = (24, 48, 96)
_KEYPOINTS = 32


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class EmbeddedConfig:
    """The shape of an `EmbeddedVla`.

    Attributes:
        image: height and width to which images are scaled, multiples of 16.
        language: "words": of the vocabulary; "sentence": a frozen sentence encoder, for language beyond a vocabulary.
        words: the vocabulary.
        decoding: "parallel" or "autoregressive".
        width, layers, heads: of the transformer.
    """

    image: Annotated[list[Annotated[int, pydantic.Field(gt=0, multiple_of=_STRIDE)]], pydantic.Field(min_length=2, max_length=2)]
    language: Literal["words", "sentence"] = "words"
    words: Annotated[list[str], pydantic.Field(default_factory=list)] = pydantic.Field(default_factory=list)
    decoding: Decoding = "parallel"
    width: Count = 128
    layers: Count = 3
    heads: Count = 4


class EmbeddedVla(TokenNetwork):
    """See the module's text."""

    def __init__(self, config: EmbeddedConfig, cameras: int, state: int, ticks: int, joints: int):
        """Draws the weights from torch's global generator.

        Args:
            config: its shape.
            cameras: images in an observation.
            state: numbers in the measured state.
            ticks, joints: of a chunk.

        Raises:
            UserError: a package that it needs is not installed.
        """
        check_packages(("transformers", *[ENCODER] * (config.language == "sentence")), "a VLA")
        super().__init__(ticks, joints, config.decoding, config.width, config.image)
        width = config.width
        self.config = config
        self.words = WordEncoder(config.words, width) if config.language == "words" else SentenceEncoder(width)
        self.cameras = nn.ModuleList(_Camera(self.image, width) for _ in range(cameras))
        self.state = nn.Sequential(nn.Linear(state, width), nn.GELU(), nn.Linear(width, width))
        self.trunk = _llama(config, 2 + cameras * (1 + config.image[0] * config.image[1] // _STRIDE**2) + self.length)

    def embedding(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the vectors of tokens."""
        embedded: torch.Tensor = self.trunk.embed_tokens(tokens)
        return embedded

    def prefix(self, inputs: Inputs) -> torch.Tensor:
        """Returns what the transformer reads before the chunk, (B, P, width)."""
        said = self.words(inputs.instructions)
        images = inputs.images.permute(0, 1, 4, 2, 3).float() / 127.5 - 1.0
        seen = [camera(images[:, i], said) for i, camera in enumerate(self.cameras)]
        return torch.cat([said[:, None], self.state(inputs.state)[:, None], *seen], dim=1)

    def hidden(self, inputs: Inputs, positions: torch.Tensor) -> torch.Tensor:
        """Returns the trunk's outputs, in one pass over inputs and positions."""
        states = self.trunk(inputs_embeds=torch.cat([self.prefix(inputs), positions], dim=1), use_cache=False).last_hidden_state
        return states[:, -positions.shape[1] :]

    def prefill(self, inputs: Inputs) -> Any:
        """Reads the inputs."""
        return self.trunk(inputs_embeds=self.prefix(inputs), use_cache=True).cache

    def advance(self, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Returns the trunk's outputs at the next positions."""
        states: torch.Tensor = self.trunk(inputs_embeds=positions, cache=cache, use_cache=True).last_hidden_state
        return states

    def as_causal_lm(self) -> Any:
        """Returns the trunk and its head, decoding one token after the other, as the library's own language model."""
        from transformers import LlamaForCausalLM

        model = LlamaForCausalLM(self.trunk.config)
        model.model, model.lm_head = self.trunk, self.out
        return model.eval()


class _Camera(nn.Module):
    """From an image (B, 3, height, width) and an instruction (B, width) to 1 + cells vectors, (B, 1 + cells, width)."""

    grid: torch.Tensor

    def __init__(self, size: tuple[int, int], width: int):
        super().__init__()
        one, two, three = _CHANNELS
        self.stages = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1) for before, after in ((3, one), (one, two), (two, three), (three, width))
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels, affine=False) for channels in (two, three))
        self.films = nn.ModuleList(nn.Linear(width, 2 * channels) for channels in (two, three))
        self.maps = nn.Conv2d(two, _KEYPOINTS, 1)
        self.points = nn.Linear(2 * _KEYPOINTS, width)
        height, breadth = size
        self.cells = nn.Parameter(torch.randn(height * breadth // _STRIDE**2, width) * 0.02)
        grid = torch.meshgrid(torch.linspace(-1, 1, height // 4), torch.linspace(-1, 1, breadth // 4), indexing="ij")
        self.register_buffer("grid", torch.stack(grid).flatten(1).T.contiguous(), persistent=False)

    def forward(self, image: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        first, second, third, last = self.stages
        seen = functional.gelu(first(image))
        seen = functional.gelu(self._told(0, second(seen), said))
        keypoints = torch.softmax(self.maps(seen).flatten(2), dim=-1) @ self.grid
        seen = functional.gelu(self._told(1, third(seen), said))
        cells = last(seen).flatten(2).transpose(1, 2) + self.cells
        return torch.cat([self.points(keypoints.flatten(1))[:, None], cells], dim=1)

    def _told(self, stage: int, seen: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        """Scales and shifts the channels as the instruction asks."""
        scale, shift = self.films[stage](said)[..., None, None].chunk(2, dim=1)
        told: torch.Tensor = self.norms[stage](seen) * (1.0 + scale) + shift
        return told


def _llama(config: EmbeddedConfig, positions: int) -> Any:
    """Returns the transformer with random weights; its vocabulary are the bins."""
    from transformers import LlamaConfig, LlamaModel

    return LlamaModel(
        LlamaConfig(
            vocab_size=BINS,
            hidden_size=config.width,
            intermediate_size=3 * config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=positions,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
