"""Small perceptrons with a backward pass of their own.

At the sizes of locomotion policies (two layers of 64, batches of a few hundred) autograd spends most of its time between the
products. Here a network is a slice of one flat vector, seen by NumPy for acting and by PyTorch for learning; the chain rule is
written out and checked against autograd in the tests.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets PyTorch work on one thread: on products as small as these others only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Parameters:
    """A flat vector of float32 parameters, its gradient, and Adam on the two.

    Attributes:
        values: the parameters, shape (p,).
        gradient: of a loss, (p,); networks and losses write it, `descend` reads it.
    """

    def __init__(self, size: int, learning_rate: float):
        """Starts at zero."""
        self.values, self.gradient = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._tensor = torch.from_numpy(self.values)
        self._tensor.grad = torch.from_numpy(self.gradient)
        self._adam = torch.optim.Adam([self._tensor], lr=learning_rate, eps=1e-5, fused=True)

    def descend(self, learning_rate: float, max_norm: float = np.inf, only: slice | None = None) -> float:
        """Takes one step of Adam with the gradient, scaled to `max_norm` if it is longer; returns how long it was.

        Args:
            learning_rate: of this step.
            max_norm: of the gradient.
            only: parameters that have a gradient; all others stay as they are, and so do their moments: with a gradient of zero Adam
                would still move them, as it moved them before.
        """
        if only is not None:
            self.gradient[: only.start], self.gradient[only.stop :] = 0.0, 0.0
        norm = float(np.sqrt(np.dot(self.gradient, self.gradient)))
        if norm > max_norm:
            self.gradient *= max_norm / norm
        self._adam.param_groups[0]["lr"] = learning_rate
        moments = [value.numpy() for value in self._adam.state[self._tensor].values() if value.numel() > 1]
        before = [] if only is None else [(array, array.copy()) for array in (self.values, *moments)]
        self._adam.step()
        for array, old in before:
            array[: only.start], array[only.stop :] = old[: only.start], old[only.stop :]  # type: ignore[union-attr]
        return norm

    def state(self) -> dict[str, np.ndarray]:
        """Returns parameters and moments."""
        moments = {name: value.numpy().copy() for name, value in self._adam.state[self._tensor].items()}
        return {"values": self.values.copy(), **moments}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes back to what `state` returned.

        Raises:
            ValueError: it is of another number of parameters.
        """
        if state["values"].shape != self.values.shape:
            raise ValueError(f"the checkpoint holds parameters of shape {state['values'].shape}, these networks have {self.values.shape}")
        self.values[:] = state["values"]
        self._adam.state[self._tensor] = {name: torch.from_numpy(value.copy()) for name, value in state.items() if name != "values"}


class Mlp:
    """A perceptron with tanh between its layers, in a slice of `Parameters`."""

    def __init__(self, parameters: Parameters, start: int, sizes: Sequence[int], draw: np.random.Generator, last_gain: float):
        """Draws orthogonal weights, with the gain √2 in hidden layers, and biases of zero.

        Args:
            parameters: that it is part of.
            start: where its slice begins; it is `size_of(sizes)` long.
            sizes: width of input, hidden layers and output.
            draw: randomness of the weights.
            last_gain: of the output layer.
        """
        self.sizes, self.parameters = tuple(sizes), parameters
        self._arrays: list[tuple[np.ndarray, np.ndarray]] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._gradients: list[tuple[torch.Tensor, np.ndarray]] = []
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
            ends = start + inputs * outputs, start + (inputs + 1) * outputs
            weight, bias = parameters.values[start : ends[0]].reshape(inputs, outputs), parameters.values[ends[0] : ends[1]]
            gradient = parameters.gradient[start : ends[0]].reshape(inputs, outputs)
            self._arrays.append((weight, bias))
            self._tensors.append((torch.from_numpy(weight), torch.from_numpy(bias)))
            self._gradients.append((torch.from_numpy(gradient), parameters.gradient[ends[0] : ends[1]]))
            weight[:] = _orthogonal(inputs, outputs, draw) * (last_gain if layer == len(sizes) - 2 else np.sqrt(2.0))
            start = ends[1]

    @staticmethod
    def size_of(sizes: Sequence[int]) -> int:
        """Returns how many parameters it has."""
        return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))

    @property
    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weight, (inputs, outputs), and bias, (outputs,), of each layer; what is written to them changes the network."""
        return self._arrays

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Returns the outputs of a few rows, (k, sizes[0]) to (k, sizes[-1]), in NumPy: the fastest for tens of rows."""
        *hidden, (weight, bias) = self._arrays
        values = inputs
        for hidden_weight, hidden_bias in hidden:
            values = np.tanh(values @ hidden_weight + hidden_bias)
        return np.asarray(values @ weight + bias)

    def forward(self, inputs: np.ndarray) -> list[torch.Tensor]:
        """Returns inputs and what each layer gives, float32 (k, sizes[i]); the last are the outputs."""
        values = [torch.from_numpy(inputs)]
        for layer, (weight, bias) in enumerate(self._tensors):
            values.append(torch.addmm(bias, values[-1], weight))
            if layer < len(self._tensors) - 1:
                array = values[-1].numpy()
                np.tanh(array, out=array)  # ten times as fast as PyTorch's
        return values

    def backward(self, values: list[torch.Tensor], gradient: np.ndarray) -> None:
        """Writes the gradient of a loss into that of the parameters.

        Args:
            values: from `forward`.
            gradient: of the loss with respect to the outputs, float32 (k, sizes[-1]).
        """
        behind = torch.from_numpy(gradient)
        for layer in reversed(range(len(self._tensors))):
            weight_gradient, bias_gradient = self._gradients[layer]
            torch.mm(values[layer].T, behind, out=weight_gradient)
            behind.numpy().sum(axis=0, out=bias_gradient)
            if layer:
                behind = torch.mm(behind, self._tensors[layer][0].T)
                inner, array = values[layer].numpy(), behind.numpy()
                array *= 1.0 - inner * inner  # the derivative of tanh

    def tangent(self, values: list[torch.Tensor], direction: np.ndarray) -> np.ndarray:
        """Returns how the outputs change, (k, sizes[-1]), per step along a direction of the parameters, float32 (size_of(sizes),)."""
        start, change = 0, torch.zeros_like(values[0])
        for layer, (weight, bias) in enumerate(self._tensors):
            ends = start + weight.numel(), start + weight.numel() + bias.numel()
            moved_weight = torch.from_numpy(direction[start : ends[0]]).view_as(weight)
            moved_bias = torch.from_numpy(direction[ends[0] : ends[1]])
            change = torch.mm(change, weight) + torch.addmm(moved_bias, values[layer], moved_weight)
            if layer < len(self._tensors) - 1:
                change *= 1.0 - values[layer + 1] ** 2
            start = ends[1]
        return change.numpy()


def regress(network: Mlp, inputs: np.ndarray, targets: np.ndarray, order: np.ndarray, batch: int, rate: float, max_norm: float) -> float:
    """Descends half the mean squared error of a network's one output through all rows once; returns that of the last minibatch.

    Args:
        network: alone in its parameters.
        inputs: float32 (k, i).
        targets: float32 (k,).
        order: of the rows, (k,).
        batch: rows of a minibatch, at most.
        rate: of Adam.
        max_norm: of the gradient.
    """
    for rows in np.array_split(order, -(-len(order) // batch)):
        values = network.forward(inputs[rows])
        error = values[-1].numpy() - targets[rows, None]
        network.backward(values, error / np.float32(len(rows)))
        network.parameters.descend(rate, max_norm)
    return 0.5 * float(np.mean(error * error))


def _orthogonal(inputs: int, outputs: int, draw: np.random.Generator) -> np.ndarray:
    square, triangle = np.linalg.qr(draw.standard_normal((max(inputs, outputs), min(inputs, outputs))))
    square *= np.sign(np.diag(triangle))  # without this the distribution is not uniform
    return square if inputs >= outputs else square.T
