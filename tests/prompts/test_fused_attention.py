"""The fused attention against the plain one: on CUDA, or interpreted on the CPU (small, because slow)."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedotp.clip._towers import Attention
from fedotp.prompts._row import Row
from own_process import python

pytest.importorskip("triton")
from fedotp.prompts._fused import FusedAttention, Tiles, can_fuse

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
ROWS = {
    "names of one length": (5, [7, 7, 7]),
    "ragged": (3, [4, 9, 5, 3, 6, 12, 4]),
    "more than a tile": (4, [3 + 4 + i % 7 for i in range(24)]),
    "one class": (2, [9]),
    "a name longer than a tile": (6, [8, 6 + 40, 9]),
}


@pytest.mark.parametrize("case", ROWS)
def test_forward_and_backward(case: str) -> None:
    dtype = torch.bfloat16 if CUDA else torch.float32  # which the interpreter can multiply
    prefix, ends = ROWS[case]
    row = Row(torch.tensor(ends), prefix, torch.device(DEVICE))
    heads, width = 2, 16
    attention = Attention(heads * width, heads).to(DEVICE)
    given = torch.randn(3, len(row), 3 * heads * width, device=DEVICE).to(dtype)
    weights = torch.randn(3, len(row), heads * width, device=DEVICE)
    exact = given.double().requires_grad_()
    expected = attention.merge(row.attend(*attention.split(exact)))
    (expected * weights).sum().backward()
    fused_from = given.clone().requires_grad_()
    longest = max(ends) + 1 - prefix
    assert can_fuse(fused_from, heads, prefix, longest)
    found = FusedAttention.apply(fused_from, Tiles(row.classes, prefix, longest), heads)
    (found * weights.to(dtype)).sum().backward()
    tolerance = 2e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(fused_from.grad.double(), exact.grad, rtol=0, atol=10 * tolerance)


@pytest.mark.processes
def test_the_kernels_compile_for_a_gpu() -> None:
    """Without one: what the interpreter lets pass, such as a name of two shapes in a loop, the compiler does not."""
    done = python(Path(__file__).with_name("compile_attention.py"), TRITON_INTERPRET=None)
    shared = [int(line.split()[-1]) for line in done.stdout.splitlines()]
    assert max(shared) <= 99 * 1024  # bytes of shared memory that any GPU of the last years has


def test_tiles_hold_whole_classes() -> None:
    row = Row(torch.tensor([3 + 4 + i % 7 for i in range(24)]), 4, torch.device(DEVICE))
    tiles = Tiles(row.classes, 4, 11)
    starts = tiles.starts.tolist()
    assert starts[0] == 4
    assert starts[-1] == len(row)
    for start, end in pairwise(starts):
        assert 0 < end - start <= tiles.height
        assert end == len(row) or row.classes[end] != row.classes[end - 1]
