"""Networks that answer what is seen and said with action tokens: exact log-probabilities, and two ways to decode.

A chunk of L tokens has the probability ∏ p(token i | observation, context of i). Decoding one token after the other, the context is the
tokens before it (each is fed back, with the keys and values of all before kept). In parallel, there is no context: one learned query
for each waypoint asks for the tokens of all its joints, in a single pass. Either way the product is the exact probability of the chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from ros_rl.errors import UserError
from ros_rl.policies.action_tokens import BINS

Decoding = Literal["parallel", "autoregressive"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a network reads.

    Attributes:
        images: of C cameras, uint8, (B, C, height, width, 3).
        state: what was measured of the joints, on a scale of -1 to 1, (B, s).
        instructions: B texts.
    """

    images: torch.Tensor
    state: torch.Tensor
    instructions: Sequence[str]

    def __len__(self) -> int:
        return len(self.state)

    def rows(self, which: torch.Tensor | slice) -> "Inputs":
        """Returns some of the rows."""
        indices = range(len(self))[which] if isinstance(which, slice) else which.tolist()
        return Inputs(self.images[which], self.state[which], [self.instructions[i] for i in indices])

    def to(self, device: torch.device | str) -> "Inputs":
        """Returns the same on a device."""
        return Inputs(self.images.to(device), self.state.to(device), self.instructions)


class Scored(NamedTuple):
    """Tokens with their log-probabilities, and the entropies (nats) of what they were drawn from; each (B, L)."""

    tokens: torch.Tensor
    log_prob: torch.Tensor
    entropy: torch.Tensor


class TokenNetwork(nn.Module):
    """What all token policies share. A subclass says how its trunk reads the inputs and the positions that follow them.

    Attributes:
        length: tokens L in a chunk: waypoints times joints.
        decoding: whether a token sees those before it.
        image: height and width of the images that it reads.
        out: from a position's output to the logits of its tokens: of one, or in parallel of all joints of a waypoint.
    """

    def __init__(self, ticks: int, joints: int, decoding: Decoding, width: int, image: Sequence[int]):
        super().__init__()
        self.image = (image[0], image[1])
        self.length = ticks * joints
        self.decoding: Decoding = decoding
        parallel = decoding == "parallel"
        self.start = nn.Parameter(torch.randn(ticks if parallel else 1, width) * 0.02)
        self.out = nn.Linear(width, BINS * (joints if parallel else 1), bias=False)
        nn.init.normal_(self.out.weight, std=0.02)  # nearly uniform at first

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.start.device

    def first(self, rows: int) -> torch.Tensor:
        """Returns what the chunk begins with: the queries of all waypoints, or the one before the first token; (rows, k, width)."""
        return self.start.expand(rows, -1, -1)

    def embedding(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the vectors (B, k, width) of tokens (B, k)."""
        raise NotImplementedError

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the logits (B, tokens, 256) of the trunk's outputs (B, k, width)."""
        logits: torch.Tensor = self.out(hidden.float())
        return logits.reshape(len(hidden), -1, BINS)

    def hidden(self, inputs: Inputs, positions: torch.Tensor) -> torch.Tensor:
        """Returns the trunk's outputs (B, k, width) at positions (B, k, width) after the inputs, each of which sees those before it."""
        cache = self.prefill(inputs)
        return self.advance(positions, cache)

    def prefill(self, inputs: Inputs) -> Any:
        """Reads the inputs; returns the keys and values that `advance` goes on from."""
        raise NotImplementedError

    def advance(self, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Returns the trunk's outputs (B, k, width) at the next k positions, and adds their keys and values to the cache."""
        raise NotImplementedError

    def logits(self, inputs: Inputs, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the logits (B, L, 256).

        Args:
            inputs: of B rows.
            tokens: the chunk, (B, L), which decoding one after the other feeds back; not read in parallel.
        """
        return self.head(self.hidden(inputs, self.positions(len(inputs), tokens)))

    def positions(self, rows: int, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Returns what is asked after the inputs for a whole chunk, (rows, k, width); arguments as of `logits`."""
        if self.decoding == "parallel":
            return self.first(rows)
        assert tokens is not None
        return torch.cat([self.first(rows), self.embedding(tokens[:, :-1])], dim=1)

    def score(self, inputs: Inputs, tokens: torch.Tensor, temperature: float = 1.0) -> Scored:
        """Returns the exact log-probabilities of given chunks (B, L) at a temperature, with gradient."""
        logs = log_probs(self.logits(inputs, tokens), temperature)
        return Scored(tokens, logs.gather(-1, tokens[..., None])[..., 0], entropy(logs))

    @torch.no_grad()
    def decode(self, inputs: Inputs, temperature: float = 0.0, uniform: torch.Tensor | None = None) -> Scored:
        """Chooses chunks.

        Args:
            inputs: of B rows.
            temperature: 0 takes the likeliest token each time, and then log-probabilities and entropies are those at 1.
            uniform: random numbers in [0, 1), (B, L), one for each token; not read at temperature 0.

        Raises:
            UserError: the temperature is negative, or random numbers are missing.
        """
        if temperature < 0 or (temperature > 0 and uniform is None):
            raise UserError(f"temperature must be 0 or more, and above 0 it needs random numbers, got {temperature:g}")
        if self.decoding == "parallel":
            return choose(self.logits(inputs), temperature, uniform)
        cache = self.prefill(inputs)
        position = self.first(len(inputs))
        steps = []
        for i in range(self.length):
            logits = self.head(self.advance(position, cache))
            steps.append(choose(logits, temperature, None if uniform is None else uniform[:, i : i + 1]))
            position = self.embedding(steps[-1].tokens)
        return Scored(*(torch.cat(parts, dim=1) for parts in zip(*steps, strict=True)))


def log_probs(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Returns log softmax(logits / temperature) over the last axis, in float32."""
    return torch.log_softmax(logits.float() / temperature, dim=-1)


def entropy(logs: torch.Tensor) -> torch.Tensor:
    """Returns the entropies (...), nats, of log-probabilities (..., V)."""
    return -(logs.exp() * logs).sum(-1)


def choose(logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None) -> Scored:
    """Picks tokens of logits (B, k, V): the likeliest at temperature 0, else where the distribution passes `uniform`.

    Raises:
        UserError: a logit is NaN.
    """
    logs = log_probs(logits, temperature if temperature > 0 else 1.0)
    if torch.isnan(logs[..., 0]).any():
        raise UserError("the policy's network gives NaN; its weights or what it reads are not finite")
    if temperature == 0:
        tokens = logs.argmax(-1)
    else:
        assert uniform is not None
        # In float64, so that the last sum is 1 to 1e-15 and no token of probability 0 is ever drawn.
        sums = logs.double().exp().cumsum(-1)
        tokens = torch.searchsorted(sums, (uniform.double().to(sums.device) * sums[..., -1])[..., None], right=True)[..., 0]
        tokens = tokens.clamp(max=BINS - 1)
    return Scored(tokens, logs.gather(-1, tokens[..., None])[..., 0], entropy(logs))
