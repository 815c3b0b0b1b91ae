"""Learning on several processes, as torchrun starts them: equal weights everywhere, gradients averaged. One process needs nothing of it."""

import os
from collections.abc import Iterable

import torch
from torch import distributed, nn


def join() -> tuple[int, int]:
    """Joins the others that torchrun has started, if any; returns this process's number and how many there are."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return (distributed.get_rank(), count) if count > 1 else (0, 1)


def share_weights(module: nn.Module) -> None:
    """Gives all processes the weights of the first."""
    if distributed.is_initialized():
        for value in module.state_dict().values():
            distributed.broadcast(value, 0)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Makes every gradient the mean over the processes; where one has none it counts as zero."""
    if distributed.is_initialized():
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)
            parameter.grad /= distributed.get_world_size()


def device() -> torch.device:
    """Returns this process's own GPU, or the CPU."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
