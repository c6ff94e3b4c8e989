"""The vision transformer tower."""

import torch
from torch import Tensor, nn

from fedotp.clip._config import Activation, VitConfig
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
