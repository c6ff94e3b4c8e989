"""The residual attention blocks both towers are made of.

A block is cut in two at its attention (`Attention.qkv`, then `Block.finish`), so that a caller with another
attention pattern, such as a prefix shared by many sequences, runs the very same weights.
"""

from collections.abc import Callable
from functools import partial
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedotp.clip._config import Activation


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), the approximation of GELU that OpenAI trained with."""

    SLOPE = 1.702

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise."""
        return x * torch.sigmoid(self.SLOPE * x)


class Attention(nn.Module):
    """Multi-head self-attention with the parameter names of `nn.MultiheadAttention`."""

    def __init__(self, width: int, heads: int) -> None:
        """`heads` must divide `width`."""
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: (..., L, d) -> three of (..., heads, L, head_dim)."""
        return self.split(self.projected(x))

    def projected(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side: (..., L, d) -> (..., L, 3d)."""
        return F.linear(x, self.in_proj_weight, self.in_proj_bias)

    def split(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From side by side to three: (..., L, 3d) -> (..., heads, L, head_dim) each."""
        q, k, v = projected.unflatten(-1, (3, self.heads, -1)).transpose(-4, -2).unbind(-3)
        return q, k, v

    def merge(self, attended: Tensor) -> Tensor:
        """Set the heads side by side: (..., heads, L, head_dim) -> (..., L, d)."""
        return attended.transpose(-3, -2).flatten(-2)

    def project(self, attended: Tensor) -> Tensor:
        """Merge the heads: (..., heads, L, head_dim) -> (..., L, d)."""
        projected: Tensor = self.out_proj(self.merge(attended))
        return projected


class Mlp(nn.Module):
    """Two linear maps, four times as wide in the middle."""

    def __init__(self, width: int, activation: Activation) -> None:
        """Names follow OpenAI's: `c_fc`, `gelu`, `c_proj`."""
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.gelu = QuickGELU() if activation == "quick_gelu" else nn.GELU()
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        out: Tensor = self.c_proj(self.gelu(self.c_fc(x)))
        return out

    def fused(self) -> Callable[[Tensor], Tensor]:
        """The same map in fewer kernels, where that pays: QuickGELU on a GPU.

        x sigmoid(1.702 x) is silu(1.702 x) / 1.702, and both factors go into the weights, of which this takes a copy.
        """
        if not (isinstance(self.gelu, QuickGELU) and self.c_fc.weight.is_cuda):
            return self
        if self not in _FUSED:
            _FUSED[self] = self._fused()
        return _FUSED[self]

    def _fused(self) -> Callable[[Tensor], Tensor]:
        first, second = ((layer.weight.detach(), layer.bias.detach()) for layer in (self.c_fc, self.c_proj))
        slope = QuickGELU.SLOPE
        return partial(_silu_mlp, slope * first[0], slope * first[1], second[0] / slope, second[1])


_FUSED: WeakKeyDictionary[Mlp, Callable[[Tensor], Tensor]] = WeakKeyDictionary()  # one copy for all encoders


def _silu_mlp(w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor, x: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, w_in, b_in)), w_out, b_out)


class Block(nn.Module):
    """x + attention(ln_1(x)), then x + mlp(ln_2(x)).

    `nn.LayerNorm` accumulates in float32 for half-precision inputs, on CPU and on CUDA alike.
    """

    def __init__(self, width: int, heads: int, activation: Activation) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, activation)

    def forward(self, x: Tensor, *, causal: bool = False) -> Tensor:
        """(..., L, d) -> (..., L, d); `causal` lets a position see only itself and those before it."""
        q, k, v = self.attn.qkv(self.ln_1(x))  # (..., heads, L, head_dim)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=causal))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """All that follows attention: x (..., L, d), attended (..., heads, L, head_dim) -> (..., L, d)."""
        x = x + self.attn.project(attended)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Transformer(nn.Module):
    """A stack of blocks."""

    def __init__(self, width: int, layers: int, heads: int, activation: Activation) -> None:
        """Weights start as in CLIP's paper (and GPT-2): residual branches shrink with depth."""
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads, activation) for _ in range(layers))
        residual_std = width**-0.5 * (2 * layers) ** -0.5
        for block in self.blocks():
            nn.init.normal_(block.attn.in_proj_weight, std=width**-0.5)
            nn.init.normal_(block.attn.out_proj.weight, std=residual_std)
            nn.init.zeros_(block.attn.out_proj.bias)
            nn.init.normal_(block.mlp.c_fc.weight, std=(2 * width) ** -0.5)
            nn.init.normal_(block.mlp.c_proj.weight, std=residual_std)

    def blocks(self) -> list[Block]:
        """The blocks in order."""
        return cast(list[Block], list(self.resblocks))

    def forward(self, x: Tensor, *, causal: bool = False) -> Tensor:
        """(..., L, d) -> (..., L, d)."""
        for block in self.blocks():
            x = block(x, causal=causal)
        return x
