"""Norms and clipping of sites' updates and of per-unit gradients."""

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from fedotp.methods import Parameters

CHUNK = 16
"""Units per client whose gradients are computed at once."""


def length(update: Parameters, start: Parameters | None = None) -> float:
    """Return the distance of an update from `start` (or from 0), over all its parameters."""
    squares = (
        (value.double() - (0.0 if start is None else start[name].double())).square().sum()
        for name, value in update.items()
    )
    return math.sqrt(sum(map(float, squares)))


def clipped(update: Parameters, start: Parameters, norm: float) -> Parameters:
    """Return `update`, clipped to the distance `norm` from `start`."""
    return {name: (start[name] + moved).to(update[name].dtype) for name, moved in _moved(update, start, norm).items()}


def clipped_sum(updates: Sequence[Parameters], start: Parameters, norm: float) -> Parameters:
    """Sum the differences of the updates from `start`, each clipped to `norm`; in float64."""
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in start.items()}
    for update in updates:
        for name, moved in _moved(update, start, norm).items():
            total[name] += moved
    return total


def _moved(update: Parameters, start: Parameters, norm: float) -> Parameters:
    far = length(update, start)
    scale = norm / far if far > norm else 1.0
    return {name: scale * (value.double() - start[name].double()) for name, value in update.items()}


def unit_gradients(
    losses: Tensor, leaves: Sequence[Tensor], units: Tensor, chunk: int = CHUNK
) -> Iterator[list[Tensor]]:
    """Yield the gradient of every unit's loss: (U, C, ...) of each of the `leaves` (C, ...), `chunk` units at a time.

    `losses` (C, B) of different images and clients must be independent: gradients are vector-Jacobian products with one
    graph, many vectors at once. `units` (C, B) are the images' units, counted from 0 for each client; -1 is padding.
    """
    n_units = int(units.max()) + 1 if units.numel() else 0
    for start in range(0, n_units, chunk):
        numbers = torch.arange(start, min(start + chunk, n_units), device=units.device)
        chosen = (units == numbers[:, None, None]).to(losses.dtype)  # (U, C, B)
        found = torch.autograd.grad(losses, leaves, chosen, retain_graph=True, is_grads_batched=True, allow_unused=True)
        yield [
            torch.zeros(len(numbers), *leaf.shape, dtype=leaf.dtype, device=leaf.device) if each is None else each
            for each, leaf in zip(found, leaves, strict=True)
        ]


def clipped_sums(
    losses: Tensor, leaves: Sequence[Tensor], units: Tensor, clip: float, chunk: int = CHUNK
) -> list[Tensor]:
    """Sum the units' gradients, each clipped to norm `clip` over all leaves: (C, ...), in float64.

    One unit thus changes the sums by at most `clip`. Non-finite gradients count as 0.
    """
    return clip_and_add(unit_gradients(losses, leaves, units, chunk), leaves, clip)


def clip_and_add(parts: Iterable[Sequence[Tensor]], leaves: Sequence[Tensor], clip: float) -> list[Tensor]:
    """Sum gradients (U, C, ...) of each of the `leaves` (C, ...), U at a time, each clipped to norm `clip`."""
    sums = [torch.zeros_like(leaf, dtype=torch.float64) for leaf in leaves]
    for part in parts:
        wide = [each.double() for each in part]
        squares = torch.stack([each.square().reshape(*each.shape[:2], -1).sum(2) for each in wide])
        lengths = squares.sum(0).sqrt()  # (U, C)
        scale = torch.where(lengths.isfinite(), (clip / lengths).clamp_max(1.0), 0.0)
        for total, each in zip(sums, wide, strict=True):
            total += (scale.view(*scale.shape, *[1] * (each.dim() - 2)) * each).nan_to_num(0.0, 0.0, 0.0).sum(0)
    return sums
