"""Learning on several processes, as torchrun starts them: equal weights everywhere, gradients averaged. One process needs nothing of it."""

import os
from collections.abc import Sequence

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


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Makes every gradient the mean over the processes. One that some have counts as zero in the others; one that none has stays none."""
    if distributed.is_initialized():
        has = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32, device=device())
        distributed.all_reduce(has)
        for parameter, count in zip(parameters, has.tolist(), strict=True):
            if count:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
                parameter.grad /= distributed.get_world_size()


def mean(value: float) -> float:
    """Returns the mean of a number over the processes."""
    if not distributed.is_initialized():
        return value
    shared = torch.tensor(value, dtype=torch.float64, device=device())
    distributed.all_reduce(shared)
    return float(shared) / distributed.get_world_size()


def device() -> torch.device:
    """Returns this process's own GPU, or the CPU."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
