"""Random views on the device: crops, colours, styles, and drawings on flat backgrounds.

Pictures are float (B, 3, 64, 64) in [0, 1].
"""

import torch
import torch.nn.functional as F
from recipes.mini.styles import STYLES
from torch import Tensor

from fedotp.clip._preprocess import MEAN, STD


def normalise(x: Tensor) -> Tensor:
    """CLIP's mean and standard deviation."""
    mean, std = (torch.tensor(v, device=x.device)[:, None, None] for v in (MEAN, STD))
    return (x - mean) / std


def random_crop(x: Tensor, smallest: float) -> Tensor:
    """A part of `smallest` to all of the area, of some other shape, mirrored half the time."""
    n = len(x)
    side = _uniform(x, smallest, 1).sqrt()
    ratio = _uniform(x, -0.25, 0.25).exp()
    wide, high = (side * ratio).clamp(max=1), (side / ratio).clamp(max=1)
    mirror = (torch.rand(n, device=x.device) < 0.5).float() * 2 - 1
    theta = torch.zeros(n, 2, 3, device=x.device)
    theta[:, 0, 0], theta[:, 0, 2] = wide * mirror, _uniform(x, -1, 1) * (1 - wide)
    theta[:, 1, 1], theta[:, 1, 2] = high, _uniform(x, -1, 1) * (1 - high)
    return _warp(x, theta, "reflection")


def random_colours(x: Tensor, strength: float) -> Tensor:
    """Brightness, contrast and saturation, each changed by up to `strength`."""
    x = x * _each(x, 1 - strength, 1 + strength)
    mean = x.mean((1, 2, 3), keepdim=True)
    x = (x - mean) * _each(x, 1 - strength, 1 + strength) + mean
    grey = x.mean(1, keepdim=True)
    return ((x - grey) * _each(x, 1 - 1.5 * strength, 1 + 1.5 * strength) + grey).clamp(0, 1)


def stylise(x: Tensor, style: str) -> Tensor:
    """The change of the picture that a style's captions speak of."""
    match style:
        case "photo" | "drawing":
            return x
        case "small":
            side = (16, 20, 24, 32)[int(torch.randint(4, ()))]
            small = F.interpolate(x, size=(side, side), mode="area")
            return F.interpolate(small, size=x.shape[-2:], mode="bicubic", align_corners=False).clamp(0, 1)
        case "grey":
            return x.mean(1, keepdim=True).expand_as(x)
        case "dark":
            return x * _each(x, 0.2, 0.5)
        case "bright":
            return 1 - (1 - x) * _each(x, 0.2, 0.5)
        case "warm":
            return (
                x
                * torch.stack([_uniform(x, 1.0, 1.2), _uniform(x, 0.6, 0.9), _uniform(x, 0.3, 0.7)], 1)[..., None, None]
            )
        case "cold":
            return (
                x
                * torch.stack([_uniform(x, 0.3, 0.7), _uniform(x, 0.6, 0.95), _uniform(x, 1.0, 1.2)], 1)[
                    ..., None, None
                ]
            )
        case "noisy":
            return (x + torch.randn_like(x) * _each(x, 0.08, 0.25)).clamp(0, 1)
        case "close":
            return random_crop(x, 0.2)
        case "poster":
            smooth = F.avg_pool2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), 5, stride=1)
            levels = 3
            flat = (smooth * levels).round() / levels
            return (flat - 0.35 * _edges(smooth)).clamp(0, 1)
        case "sketch":
            lines = (1.8 * _edges(F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, stride=1))).clamp(0, 1)
            return (1 - lines).expand_as(x)
        case _:
            raise ValueError(f"no style is called {style!r}")


def random_styles(x: Tensor, share: float) -> Tensor:
    """A share of the batch stylised, a slice per style: the batch is in random order, so no picture is favoured."""
    names = [style.name for style in STYLES if style.name not in ("photo", "drawing", "close")]
    each = int(len(x) * share) // len(names)
    parts = [stylise(x[i * each : (i + 1) * each], name) for i, name in enumerate(names)]
    return torch.cat([*parts, x[len(names) * each :]]).clamp(0, 1)


def place_drawings(rgba: Tensor, *, plain: bool = False) -> Tensor:
    """Drawings uint8 (B, 4, 64, 64) on flat backgrounds, moved and scaled; black ones at times in other colours.

    `plain` gives what evaluation sees: a white background, nothing moved.
    """
    rgba = rgba.float() / 255
    colour, alpha = rgba[:, :3], rgba[:, 3:]
    white = torch.ones(len(rgba), 3, 1, 1, device=rgba.device)
    if plain:
        return colour * alpha + white * (1 - alpha)
    n = len(rgba)
    coin = torch.rand(n, 1, 1, 1, device=rgba.device)
    background = torch.where(coin < 0.5, white, torch.rand(n, 3, 1, 1, device=rgba.device))
    background = torch.where(coin > 0.92, 0 * white, background)
    is_black = (colour * alpha).amax((1, 2, 3), keepdim=True) < 0.05
    ink = torch.rand(n, 3, 1, 1, device=rgba.device)
    ink = torch.where(torch.rand(n, 1, 1, 1, device=rgba.device) < 0.5, (1 - background).round(), ink)
    colour = torch.where(is_black, ink.expand_as(colour), colour)
    scale = _uniform(rgba, 0.85, 1.35)  # above 1 the drawing shrinks
    theta = torch.zeros(n, 2, 3, device=rgba.device)
    angle = _uniform(rgba, -0.2, 0.2)
    mirror = (torch.rand(n, device=rgba.device) < 0.5).float() * 2 - 1
    theta[:, 0, 0], theta[:, 0, 1] = scale * mirror * angle.cos(), -scale * angle.sin()
    theta[:, 1, 0], theta[:, 1, 1] = scale * mirror * angle.sin(), scale * angle.cos()
    theta[:, :, 2] = torch.rand(n, 2, device=rgba.device) * 0.3 - 0.15
    moved = _warp(torch.cat([colour * alpha, alpha], 1), theta, "zeros")
    return moved[:, :3] + background * (1 - moved[:, 3:])


def _warp(x: Tensor, theta: Tensor, padding: str) -> Tensor:
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode=padding, align_corners=False)


def _edges(x: Tensor) -> Tensor:
    """Strength of the grey picture's gradient, (B, 1, 64, 64)."""
    grey = F.pad(x.mean(1, keepdim=True), (1, 1, 1, 1), mode="reflect")
    dx = grey[:, :, 1:-1, 2:] - grey[:, :, 1:-1, :-2]
    dy = grey[:, :, 2:, 1:-1] - grey[:, :, :-2, 1:-1]
    return (dx.square() + dy.square() + 1e-8).sqrt()


def _uniform(x: Tensor, low: float, high: float) -> Tensor:
    return torch.empty(len(x), device=x.device).uniform_(low, high)


def _each(x: Tensor, low: float, high: float) -> Tensor:
    return _uniform(x, low, high)[:, None, None, None]
