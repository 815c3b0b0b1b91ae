"""Trainings of token policies on disk: weights, optimiser, counters, and what the training is of, so that no other one goes on with it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ros_rl.errors import UserError
from ros_rl.paths import write_atomically
from ros_rl.policies.token_network import TokenNetwork
from ros_rl.policies.vla import own_weights

Tensors = Mapping[str, torch.Tensor]


def write_training(
    path: Path,
    network: TokenNetwork,
    optimiser: torch.optim.Optimizer,
    what: Mapping[str, Any],
    counters: Mapping[str, int],
    extra: Tensors = {},  # noqa: B006 - it is not changed
) -> None:
    """Writes a training.

    Args:
        path: the file.
        network: whose weights are trained.
        optimiser: that trains them.
        what: the training is of: settings and digests; `read_training` refuses others.
        counters: how far it is.
        extra: further weights that it needs.
    """
    tensors = {f"network.{name}": value for name, value in own_weights(network).items()}
    tensors |= {f"extra.{name}": value for name, value in extra.items()}
    for index, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{name}": value for name, value in moments.items()}
    contents = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_atomically(path, save(contents, {"what": json.dumps(dict(what)), "counters": json.dumps(dict(counters))}))


def read_training(
    path: Path,
    network: TokenNetwork,
    optimiser: torch.optim.Optimizer,
    what: Mapping[str, Any],
) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
    """Puts a training that `write_training` wrote into a network and its optimiser.

    Args:
        path: the file.
        network: gets the weights.
        optimiser: gets its state.
        what: the training has to be of.

    Returns:
        the counters, and the further weights.

    Raises:
        UserError: the file is damaged, or of a training of something else; nothing is changed then.
    """
    try:
        with safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        theirs, counters = dict(json.loads(said["what"])), json.loads(said["counters"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged checkpoint ({error}); delete it to train from the start") from None
    mine = json.loads(json.dumps(dict(what)))
    for name in {**mine, **theirs}:
        if theirs.get(name) != mine.get(name):
            raise UserError(f"{path}: is of a training with {name}={theirs.get(name)}, not {mine.get(name)}; delete it to start over")
    with torch.no_grad():
        for name, value in own_weights(network).items():
            value.copy_(tensors[f"network.{name}"])
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("adam."):
            _, index, name = key.split(".")
            moments.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    return counters, {key.removeprefix("extra."): value for key, value in tensors.items() if key.startswith("extra.")}
