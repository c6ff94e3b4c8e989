"""Where a second thread gains: training and encoding, of the small backbone and of ViT-B/16 shapes.

A figure is the time with one thread divided by that with more. Threads wait as under the command line (passive). Where
it is near one, one thread is what `compute.threads = 0` takes.
"""

from collections.abc import Callable
from functools import partial

import torch

from bench._record import medians
from bench.step import Step
from fedotp.clip import CLIP, CONFIGS, load
from fedotp.federation import using_threads

_IMAGES, _REPEATS = 32, 3


def cannot_run() -> str | None:
    return "it measures the CPU" if torch.cuda.is_available() else None


def run() -> dict[str, float]:
    most = torch.get_num_threads()
    counts = [n for n in (2, 4, 8, 16, 32, 64) if n < most] + ([most] if most > 1 else [])
    mini, large = load("mini"), CLIP.random(CONFIGS["ViT-B/16"])
    figures: dict[str, float] = {}
    for name, clip in (("mini", mini), ("ViT-B/16", large)):
        size = clip.config.image_size
        images = torch.randn(_IMAGES, 3, size, size)
        work: dict[str, Callable[[], object]] = {
            "a training step": partial(Step(10, clip).ours, "float32"),
            f"{_IMAGES} images encoded": torch.inference_mode()(partial(clip.encode_image, images)),
        }
        for what, do in work.items():
            seconds = medians({str(n): partial(_with, n, do) for n in (1, *counts)}, repeats=_REPEATS)
            figures[f"{name}, {what}: one thread, ms"] = 1e3 * seconds["1"]
            figures |= {f"{name}, {what}: one thread / {n}": seconds["1"] / seconds[str(n)] for n in counts}
    return figures


def _with(n: int, do: Callable[[], object]) -> None:
    with using_threads(n):
        do()
