"""Federations: clients side by side against one by one, a paper-sized round, and 100 to 10,000 clients.

The features are random, which changes no cost. "A round of OxfordPets" has the shapes of the paper's few-shot setting:
37 classes, 10 clients with 16 images of each of their classes, 5 local epochs in batches of 32, 3,669 test images.
The simulations of many clients sample 100 of them per round, who hold 10 images each; every round ends with a
checkpoint, and clients keep their private prompt (16 x 512) in a file. Each is a process of its own.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bench._record import medians
from fedotp.clip import CLIP, CONFIGS, TINY, ClipConfig
from fedotp.federation import (
    Checkpoint,
    ComputeSettings,
    FederatedData,
    HeldFeatures,
    Images,
    Progress,
    RoundSettings,
    Settings,
    Simulator,
)
from fedotp.methods import FedOTP, Task

_STATUS = Path("/proc/self/status")
_SAMPLED, _IMAGES, _ROUNDS = 100, 10, 5
_WIDE = replace(TINY, text=replace(TINY.text_tower, width=512, heads=8))  # a toy with CLIP's prompts


def cannot_run() -> str | None:
    return None if _STATUS.exists() else "memory is measured through Linux's /proc"


def run() -> dict[str, float]:
    figures = {**_side_by_side(), **(_pets() if torch.cuda.is_available() else {})}
    for n in (100, 1_000, 10_000):
        code = f"from bench.federation import many; print(*many({n}))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
        seconds, peak, disk = (float(value) for value in done.stdout.split())
        figures[f"{n:,} clients, {_SAMPLED} a round: seconds per round"] = seconds
        figures[f"{n:,} clients, {_SAMPLED} a round: peak memory, MiB"] = peak
        figures[f"{n:,} clients, {_SAMPLED} a round: private prompts on disk after {_ROUNDS} rounds, MiB"] = disk
    return figures


def many(n_clients: int) -> tuple[float, float, float]:
    """Median seconds of a round with its checkpoint, peak memory of the process, disk taken by private prompts."""
    clip = CLIP.random(_WIDE)
    data = _data(clip.config, n_clients, _IMAGES, n_classes=10, n_test=_IMAGES)
    rounds = RoundSettings(rounds=_ROUNDS, local_epochs=1, participation=_SAMPLED / n_clients)
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(FedOTP(), _task(clip, 10), data, Settings(rounds), kept_in=Path(folder) / "private.bin")
        seconds = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            simulator.run_round()
            Checkpoint.write(Path(folder) / "checkpoint.safetensors", simulator, Progress())
            seconds.append(time.perf_counter() - start)
        disk = (Path(folder) / "private.bin").stat().st_blocks * 512 / (1 << 20)
    peak = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return statistics.median(seconds), int(peak.split()[1]) / 1024, disk


def _side_by_side() -> dict[str, float]:
    """Ten clients trained together and one by one, on a toy whose steps cost little."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    clip = CLIP.random(_WIDE).to(device)
    data = _data(clip.config, 10, 32, n_classes=10, n_test=10, device=device)
    seconds = medians(
        {
            name: _round(Simulator(FedOTP(), _task(clip, 10), data, Settings(RoundSettings(), compute=compute)))
            for name, compute in (("together", ComputeSettings()), ("one by one", ComputeSettings(group_size=1)))
        },
        repeats=5,
    )
    return {"10 clients of a toy: one by one / side by side": seconds["one by one"] / seconds["together"]}


def _pets() -> dict[str, float]:
    """Local training and evaluation of one round, in seconds: what takes the authors' code 10.8 and 12.9 on an H200."""
    clip = CLIP.random(CONFIGS["ViT-B/16"]).to("cuda")
    data = _data(clip.config, 10, 59, n_classes=37, n_test=367, device="cuda")
    figures = {}
    for precision in ("float32", "bfloat16"):
        settings = Settings(RoundSettings(), compute=ComputeSettings(precision=precision))
        simulator = Simulator(FedOTP(), _task(clip, 37), data, settings)
        seconds = medians({"train": _round(simulator), "evaluate": _synchronised(simulator.predict)}, repeats=3)
        for phase, value in seconds.items():
            figures[f"a round of OxfordPets, ViT-B/16, {precision}: {phase}, seconds"] = value
    return figures


def _round(simulator: Simulator) -> Callable[[], object]:
    return _synchronised(simulator.run_round)


def _synchronised(work: Callable[[], object]) -> Callable[[], object]:
    def timed() -> None:
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return timed


def _task(clip: CLIP, n_classes: int) -> Task:
    return Task(clip, tuple(f"thing {k}" for k in range(n_classes)))


def _data(
    config: ClipConfig, n_clients: int, n_train: int, *, n_classes: int, n_test: int, device: str = "cpu"
) -> FederatedData:
    """Clients whose images come from one pool of at most 4,096: memory is the engine's, not the data's."""
    generator = torch.Generator(device).manual_seed(0)
    images = []
    for n_images in (n_train, n_test):
        n = min(n_clients * n_images, 4096)
        pooled = torch.randn(1, n, config.embed_dim, generator=generator, device=device).half()
        tokens = torch.randn(1, n, config.n_patches, config.embed_dim, generator=generator, device=device).half()
        rows = tuple(np.arange(i * n_images, (i + 1) * n_images) % n for i in range(n_clients))
        images.append(Images(HeldFeatures(pooled, tokens), np.arange(n) % n_classes, rows))
    train, test = images
    return FederatedData(tuple(f"client-{i}" for i in range(n_clients)), (None,) * n_clients, train, test)
