"""The gradient of a step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedotp.methods import Batch, Method, Parameters, Task


def step_gradients(
    method: Method, task: Task, params: Parameters, names: Sequence[str], received: Parameters, batch: Batch
) -> tuple[Tensor, Parameters]:
    """The objective of each client (C,) on `batch`, and its gradients (C, ...) by the parameters `names`."""
    leaves = {name: value.requires_grad_() for name, value in method.leaves(params, names).items()}
    loss = method.loss(task, params | leaves, received, batch)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()))
    return loss, method.gradients(leaves, dict(zip(leaves, found, strict=True)))
