"""Gradients of every unit: a loop over units, and no unit moves a sum by more than the clip."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp.privacy import clipped_sums

C, B = 2, 5


def toy(seed: int, scale: float = 1.0) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Losses (C, B) of leaves (C, 3, 2) and (C,), in float64."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(C, 3, 2, dtype=torch.float64, generator=generator).requires_grad_()
    number = torch.randn(C, dtype=torch.float64, generator=generator).requires_grad_()
    images = scale * torch.randn(C, B, 3, dtype=torch.float64, generator=generator)
    return ((images @ matrix).square().sum(-1) + images[..., 0] * number[:, None]).sin(), [matrix, number]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    units=st.lists(st.integers(-1, 3), min_size=C * B, max_size=C * B),
    clip=st.floats(1e-3, 100),
    chunk=st.integers(1, 4),
)
def test_sums_are_those_of_a_loop_over_units(seed: int, units: list[int], clip: float, chunk: int) -> None:
    losses, leaves = toy(seed)
    whose = torch.tensor(units).view(C, B)
    found = clipped_sums(losses, leaves, whose, clip, chunk)
    for c in range(C):
        expected = [torch.zeros_like(leaf[c]) for leaf in leaves]
        for unit in set(whose[c].tolist()) - {-1}:
            total = losses[c][whose[c] == unit].sum()
            own = [g[c] for g in torch.autograd.grad(total, leaves, retain_graph=True)]
            length = torch.cat([g.flatten() for g in own]).norm()
            factor = min(1.0, clip / float(length)) if length else 1.0
            expected = [e + factor * g for e, g in zip(expected, own, strict=True)]
        for e, f in zip(expected, found, strict=True):
            torch.testing.assert_close(f[c], e, rtol=1e-10, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), gone=st.integers(0, B - 1), clip=st.floats(1e-3, 10), scale=st.floats(0, 1e6))
def test_no_unit_moves_a_sum_further_than_the_clip(seed: int, gone: int, clip: float, scale: float) -> None:
    losses, leaves = toy(seed, scale)
    with_it = torch.arange(B).expand(C, B).clone()
    without = with_it.clone()
    without[0, gone] = -1
    both = [clipped_sums(losses, leaves, units, clip) for units in (with_it, without)]
    moved = [one - other for one, other in zip(*both, strict=True)]
    assert torch.cat([m[0].flatten() for m in moved]).norm() <= clip * (1 + 1e-9)
    assert all((m[1] == 0).all() for m in moved)  # another client's sum does not move at all


def test_what_is_not_finite_counts_as_nothing() -> None:
    leaf = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
    losses = torch.stack([(leaf * 1e308 * 1e308).sum(1), 3 * leaf.sum(1)], 1)  # (1, 2)
    (found,) = clipped_sums(losses, [leaf], torch.tensor([[0, 1]]), 100.0)
    torch.testing.assert_close(found, torch.full((1, 2), 3.0, dtype=torch.float64))
