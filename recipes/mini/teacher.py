"""The teacher: DINOv2 ViT-S/14 at 112 pixels, so that its 8 x 8 patches are the student's; and its two heads."""

from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, PATCH, GRID = 384, 6, 12, 14, 8


class Dino:
    """Forward pass over DINOv2's own tensor names, in bfloat16."""

    def __init__(self, path: Path, device: str) -> None:
        """`path` is a safetensors file of DINOv2 ViT-S/14."""
        stored = safetensors.torch.load_file(path)
        self.w = {name: tensor.to(device, torch.bfloat16) for name, tensor in stored.items()}
        position = stored["pos_embed"].float().to(device)
        side = round((position.shape[1] - 1) ** 0.5)
        patches = position[:, 1:].reshape(1, side, side, WIDTH).permute(0, 3, 1, 2)
        patches = F.interpolate(patches, size=(GRID, GRID), mode="bicubic", antialias=True)
        patches = patches.permute(0, 2, 3, 1).reshape(1, GRID * GRID, WIDTH)
        self.position = torch.cat([position[:, :1], patches], 1).bfloat16()
        self.mean = torch.tensor([0.485, 0.456, 0.406], device=device)[:, None, None]
        self.std = torch.tensor([0.229, 0.224, 0.225], device=device)[:, None, None]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Pictures (B, 3, 64, 64) in [0, 1] to normalised tokens (B, 1 + 64, 384), the class token first."""
        w, n = self.w, len(x)
        x = F.interpolate(x.float(), size=(GRID * PATCH, GRID * PATCH), mode="bicubic", align_corners=False).clamp(0, 1)
        x = ((x - self.mean) / self.std).bfloat16()
        x = F.conv2d(x, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=PATCH).flatten(2).mT
        x = torch.cat([w["cls_token"].expand(n, -1, -1), x], 1) + self.position
        for i in range(LAYERS):
            x = x + w[f"blocks.{i}.ls1.gamma"] * self._attention(self._norm(x, f"blocks.{i}.norm1"), f"blocks.{i}.attn")
            x = x + w[f"blocks.{i}.ls2.gamma"] * self._mlp(self._norm(x, f"blocks.{i}.norm2"), f"blocks.{i}.mlp")
        return self._norm(x, "norm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self.w[f"{name}.weight"], self.w[f"{name}.bias"], 1e-6)

    def _attention(self, x: Tensor, name: str) -> Tensor:
        q, k, v = self._linear(x, f"{name}.qkv").unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self._linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), f"{name}.proj")

    def _mlp(self, x: Tensor, name: str) -> Tensor:
        return self._linear(F.gelu(self._linear(x, f"{name}.fc1")), f"{name}.fc2")


class Heads(nn.Module):
    """Linear maps of the teacher's class token and patch tokens into the joint space."""

    def __init__(self, embed: int) -> None:
        """One map for each kind of token."""
        super().__init__()
        self.pooled = nn.Linear(WIDTH, embed)
        self.patch = nn.Linear(WIDTH, embed)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1 + V, 384) -> normalised (B, e) and (B, V, e), float32."""
        with torch.autocast(tokens.device.type, torch.bfloat16):
            pooled, patches = self.pooled(tokens[:, 0]), self.patch(tokens[:, 1:])
        return F.normalize(pooled.float(), dim=-1), F.normalize(patches.float(), dim=-1)
