"""The dial: how the mass is divided between global and local prompts, from 0 (global only) to 1 (local only)."""

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from fedotp._values import require
from fedotp.errors import SettingError

Dial = float | Literal["confidence"]
CONFIDENCE: Dial = "confidence"
_RIGHT = "a number from 0 (global prompts only) to 1 (local ones only), or confidence"


def dial_of(text: str) -> Dial:
    """The dial as a person types it."""
    try:
        return "confidence" if text == CONFIDENCE else float(text)
    except ValueError:
        raise SettingError("dial", repr(text), _RIGHT) from None


def require_dial(dial: Dial | None, n_shared: int, n_private: int) -> None:
    """Refuse a dial that is none, or that has nothing to turn between."""
    if dial is None:
        return
    require(dial == CONFIDENCE or (not isinstance(dial, str) and 0 <= dial <= 1), "method.dial", dial, _RIGHT)
    both = min(n_shared, n_private) > 0
    require(both, "method.dial", dial, "left out: a dial needs both, method.n_shared and method.n_private, above 0")


@lru_cache(maxsize=64)
def fixed_shares(dial: float, n_shared: int, n_private: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`shares` of one number, kept: a GPU need not wait for them in every step."""
    return shares(torch.tensor(dial, dtype=torch.float64), n_shared, n_private).to(device, dtype)


def shares(dial: Tensor, n_shared: int, n_private: int) -> Tensor:
    """Shares of the mass (..., N) for dials (...): 1 - dial for all global prompts together, dial for all local."""
    each = ((1 - dial) / n_shared, dial / n_private)
    parts = (part[..., None].expand(*dial.shape, n) for part, n in zip(each, (n_shared, n_private), strict=True))
    return torch.cat(list(parts), dim=-1)


def by_confidence(global_scores: Tensor, local_scores: Tensor, logit_scale: Tensor) -> Tensor:
    """A dial (C, B) for every image, from the scores (C, B, K) it has with the global and with the local prompts alone.

    Each end counts as it is certain: 1 - H / log K, with H the entropy of its probabilities. An image of which both
    ends are equally certain has the dial at 0.5.
    """
    of_global, of_local = (_certainty(scores, logit_scale) for scores in (global_scores, local_scores))
    return of_local / (of_global + of_local)


def _certainty(scores: Tensor, logit_scale: Tensor) -> Tensor:
    """From nearly 0, all classes alike, to 1, one class only: (C, B) of scores (C, B, K)."""
    log_p = (scores * logit_scale.exp()).log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    return (1 - entropy / math.log(max(scores.shape[-1], 2))).clamp_min(1e-6)
