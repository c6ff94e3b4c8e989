"""How far updates move a prompt, and updates that are made shorter."""

import math
from collections.abc import Sequence

import torch

from fedotp.methods import Parameters


def length(update: Parameters, start: Parameters | None = None) -> float:
    """How far an update is from where it started (or from 0), over all its parameters."""
    squares = (
        (value.double() - (0.0 if start is None else start[name].double())).square().sum()
        for name, value in update.items()
    )
    return math.sqrt(sum(map(float, squares)))


def clipped(update: Parameters, start: Parameters, norm: float) -> Parameters:
    """`update` no further than `norm` from `start`."""
    return {name: (start[name] + moved).to(update[name].dtype) for name, moved in _moved(update, start, norm).items()}


def clipped_sum(updates: Sequence[Parameters], start: Parameters, norm: float) -> Parameters:
    """By how much the updates move `start` together, each of them by no more than `norm`; in float64."""
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in start.items()}
    for update in updates:
        for name, moved in _moved(update, start, norm).items():
            total[name] += moved
    return total


def _moved(update: Parameters, start: Parameters, norm: float) -> Parameters:
    far = length(update, start)
    scale = norm / far if far > norm else 1.0
    return {name: scale * (value.double() - start[name].double()) for name, value in update.items()}
