"""Transformer blocks of both towers, and the image towers: vision transformer and CLIP's modified ResNet.

A residual block is divided at its attention (`Attention.qkv`, then `Block.finish`), for callers with other attention
patterns, such as a prefix shared by many sequences. The ResNet has a three-convolution stem, anti-aliased strides and
an attention pool.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedotp.clip._config import Activation, ResNetConfig, VitConfig


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), the approximation of GELU in OpenAI's models."""

    SLOPE = 1.702

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation elementwise."""
        return x * torch.sigmoid(self.SLOPE * x)


class Attention(nn.Module):
    """Multi-head self-attention with the parameter names of `nn.MultiheadAttention`."""

    def __init__(self, width: int, heads: int) -> None:
        """Create the layers; `heads` must divide `width`."""
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values: (..., L, d) -> three of (..., heads, L, head_dim)."""
        return self.split(self.projected(x))

    def projected(self, x: Tensor) -> Tensor:
        """Compute concatenated queries, keys and values: (..., L, d) -> (..., L, 3d)."""
        return F.linear(x, self.in_proj_weight, self.in_proj_bias)

    def split(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split concatenated queries, keys and values: (..., L, 3d) -> (..., heads, L, head_dim) each."""
        q, k, v = projected.unflatten(-1, (3, self.heads, -1)).transpose(-4, -2).unbind(-3)
        return q, k, v

    def merge(self, attended: Tensor) -> Tensor:
        """Concatenate the heads: (..., heads, L, head_dim) -> (..., L, d)."""
        return attended.transpose(-3, -2).flatten(-2)


class Mlp(nn.Module):
    """Two linear layers with a hidden width of four times the input's."""

    def __init__(self, width: int, activation: Activation) -> None:
        """Create the layers with OpenAI's names: `c_fc`, `gelu`, `c_proj`."""
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.gelu = QuickGELU() if activation == "quick_gelu" else nn.GELU()
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers: (..., d) -> (..., d)."""
        out: Tensor = self.c_proj(self.gelu(self.c_fc(x)))
        return out

    def fused(self) -> Callable[[Tensor], Tensor]:
        """Return an equivalent function with fewer kernels for QuickGELU on a GPU, else the module.

        x sigmoid(1.702 x) is silu(1.702 x) / 1.702; both factors are multiplied into a copy of the weights.
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

    `nn.LayerNorm` accumulates in float32 for half-precision inputs, on CPU and CUDA.
    """

    def __init__(self, width: int, heads: int, activation: Activation) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, activation)

    def forward(self, x: Tensor, *, causal: bool = False) -> Tensor:
        """Apply the block: (..., L, d) -> (..., L, d); with `causal`, positions ignore later ones."""
        q, k, v = self.attn.qkv(self.ln_1(x))  # (..., heads, L, head_dim)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=causal))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Apply everything after attention: x (..., L, d), attended (..., heads, L, head_dim) -> (..., L, d)."""
        x = x + self.attn.out_proj(self.attn.merge(attended))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Transformer(nn.Module):
    """A stack of blocks."""

    def __init__(self, width: int, layers: int, heads: int, activation: Activation) -> None:
        """Initialise weights as in CLIP's paper (and GPT-2): residual branches shrink with depth."""
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
        """Return the blocks in order."""
        return cast(list[Block], list(self.resblocks))

    def forward(self, x: Tensor, *, causal: bool = False) -> Tensor:
        """Apply all blocks: (..., L, d) -> (..., L, d)."""
        for block in self.blocks():
            x = block(x, causal=causal)
        return x


class VisionTransformer(nn.Module):
    """Transformer over patches and a class token; every token is normalised and projected."""

    def __init__(self, config: VitConfig, embed_dim: int, activation: Activation) -> None:
        """Create the layers with OpenAI's names `visual.*`."""
        super().__init__()
        width = config.width
        scale = width**-0.5
        self.conv1 = nn.Conv2d(3, width, config.patch_size, stride=config.patch_size, bias=False)
        self.class_embedding = nn.Parameter(scale * torch.randn(width))
        self.positional_embedding = nn.Parameter(scale * torch.randn(1 + config.grid**2, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(width, config.layers, config.heads, activation)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(scale * torch.randn(width, embed_dim))

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode (B, 3, H, W) -> (B, 1 + V, e), the class token first."""
        patches = self.conv1(pixels).flatten(2).mT  # (B, V, d)
        cls = self.class_embedding.expand(pixels.shape[0], 1, -1)  # (B, 1, d); `len` would fix B in an export
        x = torch.cat([cls, patches], dim=1) + self.positional_embedding  # (B, 1 + V, d)
        x = self.transformer(self.ln_pre(x))
        projected: Tensor = self.ln_post(x) @ self.proj
        return projected


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions; the stride is an average pool before the last one."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        """Create the layers from `channels_in` to `4 * width` channels."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.avgpool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        nn.init.zeros_(self.bn3.weight)  # initially the identity
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or channels_in != 4 * width:
            self.downsample = nn.Sequential(
                OrderedDict(
                    [
                        ("-1", nn.AvgPool2d(stride)),  # named so that the convolution keeps torchvision's "0"
                        ("0", nn.Conv2d(channels_in, 4 * width, 1, bias=False)),
                        ("1", nn.BatchNorm2d(4 * width)),
                    ]
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: (B, channels_in, H, W) -> (B, 4 * width, H / stride, W / stride)."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(self.avgpool(out)))
        return F.relu(out + self.downsample(x))


class AttentionPool(nn.Module):
    """Attention over the cells of the feature map and their mean, with queries at *all* of them.

    OpenAI queries at the mean only. The outputs at cells, from the same keys and values, are the local features for
    transport.
    """

    def __init__(self, grid: int, width: int, heads: int, embed_dim: int) -> None:
        """Create the layers for a feature map of `width` channels."""
        super().__init__()
        self.heads = heads
        self.positional_embedding = nn.Parameter(torch.randn(grid**2 + 1, width) * width**-0.5)
        self.k_proj = nn.Linear(width, width)
        self.q_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.c_proj = nn.Linear(width, embed_dim)
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.c_proj):
            nn.init.normal_(linear.weight, std=width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Pool (B, width, H, W) -> (B, 1 + H * W, e), the mean token first."""
        cells = x.flatten(2).mT  # (B, HW, width)
        x = torch.cat([cells.mean(dim=1, keepdim=True), cells], dim=1) + self.positional_embedding
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, 1 + HW, head_dim)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = F.scaled_dot_product_attention(q, k, v)
        projected: Tensor = self.c_proj(attended.transpose(1, 2).flatten(2))
        return projected


class ModifiedResNet(nn.Module):
    """The stem, four stages of bottlenecks and the attention pool."""

    def __init__(self, config: ResNetConfig, embed_dim: int) -> None:
        """Create the layers with OpenAI's names `visual.*`."""
        super().__init__()
        width = config.width
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width // 2)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        self.avgpool = nn.AvgPool2d(2)
        self.layer1 = self._stage(width, width, config.layers[0], stride=1)
        self.layer2 = self._stage(4 * width, 2 * width, config.layers[1], stride=2)
        self.layer3 = self._stage(8 * width, 4 * width, config.layers[2], stride=2)
        self.layer4 = self._stage(16 * width, 8 * width, config.layers[3], stride=2)
        self.attnpool = AttentionPool(config.grid, 32 * width, config.heads, embed_dim)

    @staticmethod
    def _stage(channels_in: int, width: int, blocks: int, *, stride: int) -> nn.Sequential:
        first = Bottleneck(channels_in, width, stride)
        return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode (B, 3, H, W) -> (B, 1 + V, e), the pooled token first; V = (H / 32) * (W / 32)."""
        x = F.relu(self.bn1(self.conv1(pixels)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.avgpool(F.relu(self.bn3(self.conv3(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        tokens: Tensor = self.attnpool(x)
        return tokens
