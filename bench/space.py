"""Prompts in feature space and context vectors: a round of FedOTP with each, side by side.

The paper's few-shot shapes: 37 classes, 10 clients with 59 images, batches of 32; 5 local epochs on a GPU, 1 on a CPU,
where 2 clients train. Features and weights are random, which changes no cost. Feature space needs no text tower.
"""

from collections.abc import Callable
from functools import partial

import torch

from bench._record import medians
from bench.federation import _data
from bench.step import BREEDS
from fedotp.clip import CLIP, CONFIGS, load
from fedotp.federation import RoundSettings, Settings, Simulator
from fedotp.methods import FedOTP, PromptSettings, Task


def cannot_run() -> str | None:
    return None


def run() -> dict[str, float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n_clients, epochs = (10, 5) if device == "cuda" else (2, 1)
    figures: dict[str, float] = {}
    for name, clip in {"ViT-B/16": CLIP.random(CONFIGS["ViT-B/16"]), "mini": load("mini")}.items():
        clip = clip.to(device)
        data = _data(clip.config, n_clients, 59, n_classes=len(BREEDS), n_test=59, device=device)
        rounds: dict[str, Callable[[], object]] = {}
        for space in ("context", "features"):
            task = Task(clip, BREEDS, PromptSettings(space=space))
            simulator = Simulator(FedOTP(), task, data, Settings(RoundSettings(local_epochs=epochs)))
            rounds[space] = partial(_waiting, simulator)
        seconds = medians(rounds)
        figures |= {f"{name}, {space}: a round's training, seconds": value for space, value in seconds.items()}
        figures[f"{name}: context / features"] = seconds["context"] / seconds["features"]
    return figures


def _waiting(simulator: Simulator) -> None:
    simulator.run_round()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
