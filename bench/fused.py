"""From similarities to scores on the GPU: the fused kernel against reading its input once.

Float32, N prompts x V patches, mass 0.8. "Read" is torch's sum over the same tensor, which moves the same bytes at
the card's bandwidth. Times are medians of CUDA-event timings over repeated launches.
"""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fedotp.ot import score

SHAPES = ((2, 196, 320_000), (1, 196, 320_000), (2, 49, 1_000_000), (4, 196, 160_000))


def cannot_run() -> str | None:
    return None if torch.cuda.is_available() else "it needs a CUDA device"


def run() -> dict[str, float]:
    torch.manual_seed(0)
    figures: dict[str, float] = {}
    for prompts, patches, problems in SHAPES:
        similarity = 0.2 + 0.05 * torch.randn(problems, 1, patches, device="cuda")
        similarity = (similarity + 0.02 * torch.randn(problems, prompts, patches, device="cuda")).mT
        name = f"{prompts} x {patches}"
        read = milliseconds(similarity.sum)
        figures[f"{name}: read {problems:,} problems, ms"] = read
        for reg in (0.1, 0.01):
            fused = milliseconds(partial(score, similarity, reg=reg, fused=True))
            figures[f"{name}: fused, reg {reg}, ms"] = fused
            figures[f"{name}: fused / read, reg {reg}"] = fused / read
        if (prompts, patches) == (2, 196):
            few = similarity[: problems // 10]
            torch_path = milliseconds(partial(score, few, fused=False), repeats=3)
            kernel = milliseconds(partial(score, few, fused=True))
            figures[f"{name}: torch path / fused, reg 0.1"] = torch_path / kernel
            figures[f"{name}: backward, reg 0.1, ms"] = backward_milliseconds(similarity)
    return figures


def backward_milliseconds(similarity: Tensor) -> float:
    similarity = similarity.detach().requires_grad_()
    scores = score(similarity, fused=True)
    ones = torch.ones_like(scores)
    return milliseconds(lambda: torch.autograd.grad(scores, similarity, ones, retain_graph=True))


def milliseconds(call: Callable[[], object], repeats: int = 9, launches: int = 10) -> float:
    """Median time of a call, measured over launches in a row so that the host's work hides behind the GPU's."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(launches):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / launches)
    return statistics.median(times)
