"""How time and memory grow with clients, classes, patches and prompts: exponents fitted to a round of FedOTP.

A round is one training step of every sampled client, the server's average, and the evaluation of every client, timed
apart. Time = c size^x is fitted by least squares of the logarithms over all sizes; beside x stands the largest slope
between two neighbouring sizes, which a fit could hide. The mathematics says 1 for each (transport of N prompts also has
terms of N^2, small beside the N text encodings); what does not grow makes it less. Memory is the peak above what was
held before.

On a GPU the shapes are those of ViT-B/16, on a CPU the text tower is small, so that transport and the engine show, and
the time is the processor's, on one thread: short work slips in between that of others on a busy machine, long work
cannot, and the clock on the wall would call that growth. The sizes take turns, and each time is the fastest of several.
"""

import ctypes
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from fedotp.clip import CLIP, CONFIGS, TINY
from fedotp.federation import FederatedData, HeldFeatures, Images, RoundSettings, Settings, Simulator
from fedotp.methods import FedOTP, Task

CLIENTS, CLASSES = (1, 3, 10, 30, 100, 300, 1000), (10, 30, 100, 300, 1000)
PATCHES, PROMPTS = (49, 100, 196, 324, 576), (1, 2, 4, 8)
SMALL = replace(TINY, embed_dim=64, text=replace(TINY.text_tower, width=64, layers=2, heads=1))
LEAST_TURNS = 5
SECONDS = 40.0  # for all sweeps together, spent on repeats
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Shape:
    """What a round is of; `images` are those of each client, in training and in testing."""

    clients: int
    classes: int
    patches: int
    prompts: int = 2
    images: int = 32


def cannot_run() -> str | None:
    return None


def run() -> dict[str, float]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _sweeps()
    finally:
        torch.set_num_threads(threads)


def _sweeps() -> dict[str, float]:
    on_gpu = torch.cuda.is_available()
    few, base = Shape(1, 10, 49), Shape(1, 100, 196)
    clip = CLIP.random(SMALL)
    if on_gpu:
        few = base = Shape(10, 37, 196)
        clip = CLIP.random(replace(CONFIGS["ViT-B/16"], vision=TINY.vision)).to("cuda")
    sweeps = {
        "clients": [(n, replace(few, clients=n)) for n in CLIENTS],
        "classes": [(n, replace(base, classes=n)) for n in CLASSES],
        "patches": [(n, replace(base, patches=n)) for n in PATCHES],
        "prompts": [(n, replace(base, prompts=n)) for n in PROMPTS],
    }
    figures: dict[str, float] = {}
    for name, shapes in sweeps.items():
        sizes = [size for size, _ in shapes]
        measured = measure([_round_of(clip, shape) for _, shape in shapes], SECONDS / len(sweeps))
        for what in measured[0]:
            values = [each[what] for each in measured]
            title = f"{name} {sizes[0]}-{sizes[-1]:,}: {what}"
            figures[f"{title}, exponent"] = exponent(sizes, values)
            figures[f"{title}, largest local slope"] = max(slopes(sizes, values))
            figures[f"{title}, at {sizes[-1]:,}"] = values[-1]
    return figures


def measure(rounds: list[dict[str, Callable[[], object]]], seconds: float) -> list[dict[str, float]]:
    """Of each round's works: the peak memory, MiB, and the fastest time, s; they take turns for `seconds` in all."""
    found = [
        {f"{name}, peak MiB": peak for name, work in works.items() if (peak := _peak(work))}  # and all is warm
        for works in rounds
    ]
    end = time.perf_counter() + seconds
    turns = 0
    while turns < LEAST_TURNS or time.perf_counter() < end:
        for works, values in zip(rounds, found, strict=True):
            for name, work in works.items():
                values[f"{name}, s"] = min(_timed(work), values.get(f"{name}, s", math.inf))
        turns += 1
    return found


def _round_of(clip: CLIP, shape: Shape) -> dict[str, Callable[[], object]]:
    method = FedOTP(n_shared=1, n_private=shape.prompts - 1)
    task = Task(clip, tuple(f"thing {k:03d}" for k in range(shape.classes)))
    settings = Settings(RoundSettings(local_epochs=1, batch_size=shape.images))
    simulator = Simulator(method, task, _data(clip, shape), settings)
    return {"training": simulator.run_round, "evaluation": simulator.predict}


def exponent(sizes: list[int], values: list[float]) -> float:
    """x of the least-squares fit log value = x log size + c."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def slopes(sizes: list[int], values: list[float]) -> list[float]:
    """Between neighbours."""
    return [math.log(y2 / y1) / math.log(x2 / x1) for (x1, y1), (x2, y2) in pairwise(zip(sizes, values, strict=True))]


def _timed(work: Callable[[], object]) -> float:
    if not torch.cuda.is_available():
        start = time.process_time()
        work()
        return time.process_time() - start
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _peak(work: Callable[[], object]) -> float | None:
    """MiB that `work` takes at its peak beyond what was held before; None where the system does not tell."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - held) / (1 << 20)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if _RESET.exists() else None
    if trim is None:
        work()
        return None
    trim(0)  # what was freed goes back to the system
    _RESET.write_text("5")  # the peak is counted from here
    before = _resident("VmRSS")
    work()
    return max(_resident("VmHWM") - before, 1.0)


def _resident(field: str) -> float:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _data(clip: CLIP, shape: Shape) -> FederatedData:
    """Random features of one pool of at most 1,024 images."""
    device, width = clip.text_projection.device, clip.config.embed_dim
    n = min(shape.clients * shape.images, 1024)
    generator = torch.Generator(device).manual_seed(0)
    pooled = torch.randn(1, n, width, generator=generator, device=device).half()
    tokens = torch.randn(1, n, shape.patches, width, generator=generator, device=device).half()
    rows = tuple(np.arange(i * shape.images, (i + 1) * shape.images) % n for i in range(shape.clients))
    images = Images(HeldFeatures(pooled, tokens), np.arange(n) % shape.classes, rows)
    names = tuple(f"client {i}" for i in range(shape.clients))
    return FederatedData(names, (None,) * shape.clients, train=images, test=images)
