"""Prompts as Flower's records, and back, with every check a stranger's message needs."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord

from fedotp.errors import FedotpError
from fedotp.methods import Parameters


def to_record(params: Parameters) -> ArrayRecord:
    """Parameters, without client axis, as arrays."""
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in params.items()})


def from_record(record: ArrayRecord, expected: Parameters) -> Parameters:
    """The arrays of `record` like `expected`: the same names, shapes and types, all values finite."""
    if set(record) != set(expected):
        raise FedotpError(f"it holds {_listed(record)}; right is {_listed(expected)}")
    return {name: _tensor(name, record[name], value) for name, value in expected.items()}


def _tensor(name: str, array: Array, expected: torch.Tensor) -> torch.Tensor:
    try:
        values = np.array(array.numpy())
    except (TypeError, ValueError, OSError, EOFError) as error:
        raise FedotpError(f"{name} cannot be read ({error})") from error
    right = expected.detach().cpu().numpy()
    if values.shape != right.shape or values.dtype != right.dtype:
        raise FedotpError(
            f"{name} is {values.dtype} of shape {values.shape}; right is {right.dtype} of shape {right.shape}"
        )
    if not np.isfinite(values).all():
        raise FedotpError(f"{name} has values that are not finite")
    return torch.from_numpy(values).to(expected.device)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "nothing"
