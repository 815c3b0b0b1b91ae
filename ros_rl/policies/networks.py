"""Networks of many runs, stacked: one batched product trains all seeds and settings of a method at once."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn


class StackedMlp(nn.Module):
    """R independent perceptrons of the same shape, with ReLU between their layers.

    Inputs are (R, batch, sizes[0]), outputs (R, batch, sizes[-1]); network r sees row r alone.
    """

    def __init__(self, sizes: Sequence[int], generators: Sequence[np.random.Generator]):
        """Draws the weights of network r from `generators[r]`, uniformly within ±1/√inputs as PyTorch's linear layers do.

        Args:
            sizes: width of input, hidden layers and output.
            generators: one for each network, R of them.
        """
        super().__init__()
        weights, biases = [], []
        for inputs, outputs in itertools.pairwise(sizes):
            bound = inputs**-0.5
            weights.append(np.stack([draw.uniform(-bound, bound, (inputs, outputs)) for draw in generators]))
            biases.append(np.stack([draw.uniform(-bound, bound, (1, outputs)) for draw in generators]))
        self.weights = nn.ParameterList(torch.tensor(value, dtype=torch.float32) for value in weights)
        self.biases = nn.ParameterList(torch.tensor(value, dtype=torch.float32) for value in biases)
        self._layers = list(zip(self.weights, self.biases, strict=True))  # reading a ParameterList is slow

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the outputs, shape (R, batch, sizes[-1])."""
        *hidden, (weight, bias) = self._layers
        values = inputs
        for hidden_weight, hidden_bias in hidden:
            values = torch.baddbmm(hidden_bias, values, hidden_weight).relu_()
        return torch.baddbmm(bias, values, weight)


class GaussianActor(nn.Module):
    """R actors: from an observation to a Gaussian over actions before tanh, and optionally the logit of AutoSafe's sharpness.

    All heads share one trunk, and are one matrix: the sharpness costs a column more.
    """

    LOG_STD = (-5.0, 2.0)

    def __init__(
        self, observations: int, actions: int, hidden: Sequence[int], generators: Sequence[np.random.Generator], sharpness: bool = False
    ):
        """Draws the weights; those of the sharpness ten times smaller and without bias, so that it starts in the middle of its range.

        Args:
            observations: size of an observation.
            actions: size of an action.
            hidden: widths of the trunk.
            generators: one for each run.
            sharpness: whether there is a sharpness head.
        """
        super().__init__()
        self.actions = actions
        self.sharpness = sharpness
        self.layers = StackedMlp([observations, *hidden, 2 * actions + sharpness], generators)
        if sharpness:
            with torch.no_grad():
                self.layers.weights[-1][..., -1] *= 0.1
                self.layers.biases[-1][..., -1] = 0.0

    def split(self, out: Any) -> tuple[Any, Any, Any]:
        """Returns the parts of an output of `layers`, array or tensor (..., w): mean, unscaled spread, and the sharpness' logit or None."""
        return out[..., : self.actions], out[..., self.actions : 2 * self.actions], out[..., -1] if self.sharpness else None

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Returns mean and logarithm of the standard deviation, (R, batch, actions), and the sharpness' logit, (R, batch), or None."""
        mean, spread, logit = self.split(self.layers(observations))
        low, high = self.LOG_STD
        log_std = low + 0.5 * (high - low) * (torch.tanh(spread) + 1.0)
        return mean, log_std, logit
