"""The first values of what is no prompt: layers of a small network, drawn as PyTorch draws them."""

import zlib

import torch
from torch import Tensor

from fedotp.methods._task import Task


def uniform(task: Task, purpose: str, *shape: int, bound: float) -> Tensor:
    """Numbers from -bound to bound, the same on every device; `purpose` tells them from other draws of the seed."""
    drawn = torch.rand(shape, generator=_generator(task, purpose))
    return bound * (2 * drawn.to(task.device, task.dtype) - 1)


def normal(task: Task, purpose: str, *shape: int, std: float) -> Tensor:
    """Normal numbers of this standard deviation around 0, otherwise as `uniform`."""
    drawn = torch.randn(shape, generator=_generator(task, purpose))
    return std * drawn.to(task.device, task.dtype)


def constant(task: Task, value: float, *shape: int) -> Tensor:
    """The same number everywhere: what biases and norms start from."""
    return torch.full(shape, value, device=task.device, dtype=task.dtype)


def _generator(task: Task, purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{task.seed} {purpose}".encode()))
