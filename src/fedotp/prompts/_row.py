"""Row of all positions of K prompts with a common prefix, and attention over it.

The row contains the P positions of the prefix once, then those of each class's suffix up to its end-of-text token, T in
total, so that short names need no padding in positionwise operations. Only attention within a suffix needs separate
suffixes, padded to the longest, S.
"""

import importlib.util
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from fedotp.prompts._fused import Tiles


class Row:
    """Layout of the row.

    Attributes:
        prefix: P.
        classes, positions: (P + T,) class of an entry, and position in its prompt; the prefix has the first class.
        ends: (K,) entries of the end-of-text tokens.
    """

    def __init__(self, eot: Tensor, prefix: int, device: torch.device) -> None:
        """Lay out prompts with end-of-text tokens at the positions `eot` (K,), after a common `prefix`."""
        lengths = eot.to(device) + 1 - prefix  # (K,) of the suffixes
        places = torch.arange(int(lengths.max()), device=device)  # (S,)
        real = places < lengths.unsqueeze(1)  # (K, S)
        classes, suffix = real.nonzero().unbind(1)  # (T,)
        shared = torch.arange(prefix, device=device)
        self.prefix = prefix
        self.classes = torch.cat([torch.zeros_like(shared), classes])
        self.positions = torch.cat([shared, prefix + suffix])
        self.ends = prefix - 1 + lengths.cumsum(0)
        self._shape = real.shape
        ragged = not bool(real.all())
        first = self.ends - lengths + 1 - prefix  # (K,) among the T
        self._padded = (first.unsqueeze(1) + places.minimum(lengths.unsqueeze(1) - 1)).flatten() if ragged else None
        self._kept = real.flatten().nonzero().squeeze(1)  # (T,) of the K S
        self._later = places > places.unsqueeze(1)  # (S, S) masked by causality
        self._tiles: Tiles | None = None  # created on first use by a GPU
        self._unreal = ~real.unsqueeze(1)  # (K, 1, S) masked padding

    def __len__(self) -> int:
        return len(self.positions)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute causal attention within every prompt: queries, keys, values and result (M, h, P + T, x)."""
        (prefix_q, q), (prefix_k, k), (prefix_v, v) = (self._split(x) for x in (q, k, v))
        prefix = F.scaled_dot_product_attention(prefix_q, prefix_k, prefix_v, is_causal=True)
        q, k, v = (self._apart(x) for x in (q, k, v))
        suffix = _attend(q, prefix_k, prefix_v, k, v, self._later).flatten(2, 3)
        if self._padded is not None:
            suffix = suffix.index_select(2, self._kept)
        return torch.cat([prefix, suffix], dim=2)

    def attend_fused(self, projected: Tensor, heads: int) -> Tensor | None:
        """Compute `attend` in one kernel, (M, P + T, 3d) concatenated -> (M, P + T, d); None if not supported."""
        if not projected.is_cuda or importlib.util.find_spec("triton") is None:
            return None
        from fedotp.prompts._fused import FusedAttention, Tiles, can_fuse  # Triton is installed on CUDA machines only

        longest = self._shape[1]
        if not can_fuse(projected, heads, self.prefix, longest):
            return None
        if self._tiles is None:
            self._tiles = Tiles(self.classes, self.prefix, longest)
        fused: Tensor = FusedAttention.apply(projected, self._tiles, heads)
        return fused

    def attend_from_ends(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute `attend` for the end-of-text queries only: (M, h, P + T, x) each -> (M, h, K, x)."""
        (prefix_k, k), (prefix_v, v) = (self._split(x) for x in (k, v))
        q = q.index_select(2, self.ends).unsqueeze(3)  # (M, h, K, 1, x)
        return _attend(q, prefix_k, prefix_v, self._apart(k), self._apart(v), self._unreal).squeeze(3)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split into prefix (M, h, P, x) and suffixes (M, h, T, x)."""
        return x[:, :, : self.prefix], x[:, :, self.prefix :]

    def _apart(self, x: Tensor) -> Tensor:
        """Separate suffixes by class: (M, h, T, x) -> (M, h, K, S, x), padded by the last position.

        Padding gets no gradient: no real query attends to it, and its own result is dropped.
        """
        if self._padded is not None:
            x = x.index_select(2, self._padded)
        return x.unflatten(2, self._shape)


def _attend(q: Tensor, key: Tensor, value: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """Compute attention of suffix queries over the shared prefix and their own suffix, without copying the prefix.

    q (M, h, K, Q, x); prefix key, value (M, h, P, x); suffix k, v (M, h, K, S, x); `hidden`, (Q, S) or (K, Q, S), masks
    suffix positions. Returns (M, h, K, Q, x).
    """
    q = q * q.shape[-1] ** -0.5
    to_prefix = (q.flatten(2, 3) @ key.mT).unflatten(2, q.shape[2:4])  # (M, h, K, Q, P)
    to_suffix = (q @ k.mT).masked_fill(hidden, -torch.inf)  # (M, h, K, Q, S)
    weights = torch.cat([to_prefix, to_suffix], dim=-1).softmax(-1)
    on_prefix, on_suffix = weights.split([key.shape[-2], k.shape[-2]], dim=-1)
    return (on_prefix.flatten(2, 3) @ value).unflatten(2, q.shape[2:4]) + on_suffix @ v
