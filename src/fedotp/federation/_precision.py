"""The precision of the text tower's computation."""

from typing import Literal

import torch

Precision = Literal["float32", "bfloat16", "float64"]


def compute_in(precision: Precision, device: torch.device) -> torch.autocast:
    """The context in which the text tower runs: autocast for bfloat16, nothing otherwise."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
