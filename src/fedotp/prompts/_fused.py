"""Causal attention over a row of prompts in one GPU kernel for each direction (Triton).

A program processes one prompt of one client and one head: the keys and values of the shared prefix stay in registers
while it iterates over tiles of suffixes of whole classes. The backward kernel recomputes scores; only results are
written.
"""

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_DTYPES = (torch.bfloat16, torch.float16)  # for exact float32 products the library is faster
_MOST_PREFIX, _MOST_SUFFIX = 128, 64
_TILE = 32  # positions of a tile, unless a single class has more


@triton.jit
def _rows(row, mask, first, which, heads: tl.constexpr, D: tl.constexpr):
    """Return offsets and mask (rows, D) of queries (0), keys (1) or values (2) of a head in (L, 3, heads, D)."""
    return first + (row[:, None] * 3 + which) * (heads * D) + tl.arange(0, D)[None, :], mask[:, None]


@triton.jit
def _weights(q, keys, own_keys, cols, P, own, mask, scale, PRECISION: tl.constexpr):
    """Compute the attention of a tile's queries to the prefix (rows, BP) and to the tile itself (rows, rows)."""
    to_prefix = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
    to_prefix = tl.where(cols[None, :] < P, to_prefix, -1e30)
    to_own = tl.dot(q, tl.trans(own_keys), input_precision=PRECISION) * scale
    place = tl.arange(0, to_own.shape[0])
    seen = (own[:, None] == own[None, :]) & (place[None, :] <= place[:, None]) & mask[None, :]
    to_own = tl.where(seen, to_own, -1e30)
    most = tl.maximum(tl.max(to_prefix, 1), tl.max(to_own, 1))
    on_prefix = tl.exp(to_prefix - most[:, None])
    on_own = tl.exp(to_own - most[:, None])
    total = tl.sum(on_prefix, 1) + tl.sum(on_own, 1)
    return on_prefix / total[:, None], on_own / total[:, None]


@triton.jit
def _prefix_weights(q, keys, cols, P, scale, PRECISION: tl.constexpr):
    """Compute the attention within the prefix (BP, BP)."""
    scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
    scores = tl.where((cols[None, :] <= cols[:, None]) & (cols[None, :] < P), scores, -1e30)
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _forward(
    qkv, out, tiles, owner, L, P, n_tiles, scale,
    heads: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    one, head = program // heads, program % heads
    first = one * L * 3 * heads * D + head * D
    first_out = one * L * heads * D + head * D
    wide = tl.arange(0, D)[None, :]
    cols = tl.arange(0, BP)
    at, there = _rows(cols, cols < P, first, 0, heads, D)
    q = tl.load(qkv + at, there, 0.0)
    keys = tl.load(qkv + at + heads * D, there, 0.0)
    values = tl.load(qkv + at + 2 * heads * D, there, 0.0)
    weights = _prefix_weights(q, keys, cols, P, scale, PRECISION)
    result = tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
    tl.store(out + first_out + cols[:, None] * (heads * D) + wide, result.to(values.dtype), there)
    for tile in range(n_tiles):
        start, end = tl.load(tiles + tile), tl.load(tiles + tile + 1)
        row = start + tl.arange(0, BM)
        mask = row < end
        own = tl.load(owner + row, mask, -1)
        own_at, own_there = _rows(row, mask, first, 0, heads, D)
        own_q = tl.load(qkv + own_at, own_there, 0.0)
        own_keys = tl.load(qkv + own_at + heads * D, own_there, 0.0)
        own_values = tl.load(qkv + own_at + 2 * heads * D, own_there, 0.0)
        on_prefix, on_own = _weights(own_q, keys, own_keys, cols, P, own, mask, scale, PRECISION)
        own_result = tl.dot(on_prefix.to(values.dtype), values, input_precision=PRECISION)
        own_result += tl.dot(on_own.to(values.dtype), own_values, input_precision=PRECISION)
        tl.store(out + first_out + row[:, None] * (heads * D) + wide, own_result.to(values.dtype), own_there)


@triton.jit
def _backward(
    qkv, gradient, out, tiles, owner, L, P, n_tiles, scale,
    heads: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    one, head = program // heads, program % heads
    first = one * L * 3 * heads * D + head * D
    first_out = one * L * heads * D + head * D
    wide = tl.arange(0, D)[None, :]
    cols = tl.arange(0, BP)
    at, there = _rows(cols, cols < P, first, 0, heads, D)
    keys = tl.load(qkv + at + heads * D, there, 0.0)
    values = tl.load(qkv + at + 2 * heads * D, there, 0.0)
    key_gradient = tl.zeros((BP, D), tl.float32)
    value_gradient = tl.zeros((BP, D), tl.float32)
    for tile in range(n_tiles):
        start, end = tl.load(tiles + tile), tl.load(tiles + tile + 1)
        row = start + tl.arange(0, BM)
        mask = row < end
        own = tl.load(owner + row, mask, -1)
        own_at, own_there = _rows(row, mask, first, 0, heads, D)
        q = tl.load(qkv + own_at, own_there, 0.0)
        own_keys = tl.load(qkv + own_at + heads * D, own_there, 0.0)
        own_values = tl.load(qkv + own_at + 2 * heads * D, own_there, 0.0)
        given = tl.load(gradient + first_out + row[:, None] * (heads * D) + wide, own_there, 0.0)
        on_prefix, on_own = _weights(q, keys, own_keys, cols, P, own, mask, scale, PRECISION)
        of_prefix = tl.dot(given, tl.trans(values), input_precision=PRECISION)
        of_own = tl.dot(given, tl.trans(own_values), input_precision=PRECISION)
        mean = (tl.sum(on_prefix * of_prefix, 1) + tl.sum(on_own * of_own, 1))[:, None]
        of_prefix = (on_prefix * (of_prefix - mean) * scale).to(q.dtype)
        of_own = (on_own * (of_own - mean) * scale).to(q.dtype)
        q_gradient = tl.dot(of_prefix, keys, input_precision=PRECISION)
        q_gradient += tl.dot(of_own, own_keys, input_precision=PRECISION)
        own_key_gradient = tl.dot(tl.trans(of_own), q, input_precision=PRECISION)
        own_value_gradient = tl.dot(tl.trans(on_own.to(q.dtype)), given, input_precision=PRECISION)
        tl.store(out + own_at, q_gradient.to(q.dtype), own_there)
        tl.store(out + own_at + heads * D, own_key_gradient.to(q.dtype), own_there)
        tl.store(out + own_at + 2 * heads * D, own_value_gradient.to(q.dtype), own_there)
        key_gradient += tl.dot(tl.trans(of_prefix), q, input_precision=PRECISION)
        value_gradient += tl.dot(tl.trans(on_prefix.to(q.dtype)), given, input_precision=PRECISION)
    prefix_q = tl.load(qkv + at, there, 0.0)
    prefix_given = tl.load(gradient + first_out + cols[:, None] * (heads * D) + wide, there, 0.0)
    weights = _prefix_weights(prefix_q, keys, cols, P, scale, PRECISION)
    weights = tl.where(cols[:, None] < P, weights, 0.0)
    of = tl.dot(prefix_given, tl.trans(values), input_precision=PRECISION)
    of = (weights * (of - tl.sum(weights * of, 1)[:, None]) * scale).to(keys.dtype)
    key_gradient += tl.dot(tl.trans(of), prefix_q, input_precision=PRECISION)
    value_gradient += tl.dot(tl.trans(weights.to(keys.dtype)), prefix_given, input_precision=PRECISION)
    tl.store(out + at, tl.dot(of, keys, input_precision=PRECISION).to(keys.dtype), there)
    tl.store(out + at + heads * D, key_gradient.to(keys.dtype), there)
    tl.store(out + at + 2 * heads * D, value_gradient.to(keys.dtype), there)


class Tiles:
    """Tiles of suffixes of a row of prompts, with whole classes."""

    def __init__(self, classes: Tensor, prefix: int, longest: int) -> None:
        """Divide a row with the classes `classes` (P + T,) of its entries; `longest` is the longest suffix."""
        self.prefix = prefix
        self.height = max(_TILE, triton.next_power_of_2(longest))
        _, counts = classes[prefix:].cpu().unique_consecutive(return_counts=True)
        starts = [prefix]
        filled = 0
        for count in counts.tolist():
            if filled + count > self.height:
                starts.append(starts[-1] + filled)
                filled = 0
            filled += count
        starts.append(starts[-1] + filled)
        self.starts = torch.tensor(starts, dtype=torch.int32, device=classes.device)
        self.owner = classes.to(torch.int32)

    def __len__(self) -> int:
        return len(self.starts) - 1


def can_fuse(qkv: Tensor, heads: int, prefix: int, longest: int) -> bool:
    """True if `FusedAttention` supports these concatenated queries, keys and values (M, L, 3d)."""
    width = qkv.shape[-1] // 3 // heads
    fits = 1 <= prefix <= _MOST_PREFIX and longest <= _MOST_SUFFIX and width in (16, 32, 64, 128)
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"  # on the CPU, for tests, without bfloat16
    return fits and ((qkv.is_cuda and qkv.dtype in _DTYPES) or interpreted)


class FusedAttention(torch.autograd.Function):
    """Attention (M, L, d) of a row from concatenated queries, keys and values (M, L, 3d)."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, tiles: Tiles, heads: int) -> Tensor:
        """Compute the attention, with concatenated heads."""
        qkv = qkv.contiguous()
        ctx.save_for_backward(qkv)
        ctx.tiles, ctx.heads = tiles, heads
        out = qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)
        _forward[(len(qkv) * heads,)](qkv, out, *_arguments(qkv, tiles, heads), **_shape(qkv, tiles, heads))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Compute the gradients of concatenated queries, keys and values."""
        (qkv,), tiles, heads = ctx.saved_tensors, ctx.tiles, ctx.heads
        gradient, out = gradients[0].contiguous(), torch.empty_like(qkv)
        arguments, shape = _arguments(qkv, tiles, heads), _shape(qkv, tiles, heads)
        _backward[(len(qkv) * heads,)](qkv, gradient, out, *arguments, **shape)
        return out, None, None


def _arguments(qkv: Tensor, tiles: Tiles, heads: int) -> tuple[Any, ...]:
    scale = (qkv.shape[-1] // 3 // heads) ** -0.5
    return tiles.starts, tiles.owner, qkv.shape[1], tiles.prefix, len(tiles), scale


def _shape(qkv: Tensor, tiles: Tiles, heads: int) -> dict[str, Any]:
    return {
        "heads": heads,
        "D": qkv.shape[-1] // 3 // heads,
        "BP": max(16, triton.next_power_of_2(tiles.prefix)),
        "BM": tiles.height,
        "PRECISION": "ieee",
    }
