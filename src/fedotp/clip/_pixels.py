"""Eight-bit pixels to the numbers CLIP was trained on, on any device and to the same bits."""

from functools import cache

import torch
from torch import Tensor

from fedotp.clip._preprocess import CHANNELS, Look


def normalise(pixels: Tensor, look: Look = "clip") -> Tensor:
    """RGB as uint8 (..., H, W, 3) to float32 (..., 3, H, W): (pixels / 255 - mean) / std, step by step."""
    white, mean, std = _constants(pixels.device, look)
    pixels = pixels.movedim(-1, -3).to(torch.float32, memory_format=torch.contiguous_format)
    return pixels.div_(white).sub_(mean).div_(std)


@cache
def _constants(device: torch.device, look: Look) -> tuple[Tensor, Tensor, Tensor]:
    """255, mean and standard deviation. By a plain number a GPU does not divide: it multiplies by the inverse."""
    numbers = ((255.0,), *CHANNELS[look])
    white, mean, std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in numbers)
    return white, mean, std
