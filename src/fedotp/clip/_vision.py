"""The image towers: the vision transformer, and CLIP's modified ResNet.

The ResNet has a three-convolution stem, anti-aliased strides and an attention pool.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedotp.clip._config import Activation, ResNetConfig, VitConfig
from fedotp.clip._transformer import Transformer


class VisionTransformer(nn.Module):
    """Patches and a class token through a transformer; every token is normalised and projected."""

    def __init__(self, config: VitConfig, embed_dim: int, activation: Activation) -> None:
        """Tensor names are OpenAI's `visual.*`."""
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
        """(B, 3, H, W) -> (B, 1 + V, e), the class token first."""
        patches = self.conv1(pixels).flatten(2).mT  # (B, V, d)
        cls = self.class_embedding.expand(pixels.shape[0], 1, -1)  # (B, 1, d); `len` would fix B where it is exported
        x = torch.cat([cls, patches], dim=1) + self.positional_embedding  # (B, 1 + V, d)
        x = self.transformer(self.ln_pre(x))
        projected: Tensor = self.ln_post(x) @ self.proj
        return projected


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions; a stride is an average pool before the last of them, not a strided one."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        """Maps `channels_in` to `4 * width` channels."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.avgpool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        nn.init.zeros_(self.bn3.weight)  # a block starts as the identity
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or channels_in != 4 * width:
            self.downsample = nn.Sequential(
                OrderedDict(
                    [
                        ("-1", nn.AvgPool2d(stride)),  # so named that the convolution keeps torchvision's "0"
                        ("0", nn.Conv2d(channels_in, 4 * width, 1, bias=False)),
                        ("1", nn.BatchNorm2d(4 * width)),
                    ]
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels_in, H, W) -> (B, 4 * width, H / stride, W / stride)."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(self.avgpool(out)))
        return F.relu(out + self.downsample(x))


class AttentionPool(nn.Module):
    """Attention over the cells of the feature map and their mean, queried at *every* one of them.

    OpenAI queries at the mean only. The cells' own outputs come from the same keys and values, and they
    are the local features that transport is computed on.
    """

    def __init__(self, grid: int, width: int, heads: int, embed_dim: int) -> None:
        """`width` is the number of channels of the feature map."""
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
        """(B, width, H, W) -> (B, 1 + H * W, e), the mean token first."""
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
        """Tensor names are OpenAI's `visual.*`."""
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
        """(B, 3, H, W) -> (B, 1 + V, e), the pooled token first; V = (H / 32) * (W / 32)."""
        x = F.relu(self.bn1(self.conv1(pixels)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.avgpool(F.relu(self.bn3(self.conv3(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        tokens: Tensor = self.attnpool(x)
        return tokens
