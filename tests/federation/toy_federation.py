"""A federation small enough to run in a blink: random towers, made-up tokens, uneven clients."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedotp._authors import AuthorsSettings
from fedotp.clip import CLIP, TINY, ClipConfig
from fedotp.federation import (
    ComputeSettings,
    EvaluationSettings,
    FederatedData,
    HeldFeatures,
    Images,
    Novel,
    OptimizerSettings,
    RoundSettings,
    ServerStepSettings,
    Settings,
    Simulator,
)
from fedotp.federation.testing import Predictions
from fedotp.methods import METHODS, Method, PromptSettings, Task

CLASSES = ("cat", "egyptian mau", "car")
NOVEL = ("dog", "bicycle wheel")
TRAIN = (7, 3, 10, 5, 1)
TEST = (4, 2, 5, 3, 2)
N_PATCHES = 5
SMALL = replace(TINY, embed_dim=16, text=replace(TINY.text, width=32, heads=2))
TRAINED = [name for name in METHODS if name != "zeroshot"]
CODE = ("fedmgp:code", "fedclip:code", "dp-fpl:code")  # as their authors' code has them
SINGLE = ("fedotp", "promptfl-ft", "pfedmoap", "fedtpg")  # in float32, too: a plan, fine-tuning, a memory, a network


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


@cache
def small_clip(dtype: torch.dtype = torch.float32, config: ClipConfig = SMALL) -> CLIP:
    """Every tensor random, biases and norms included, so that nothing hides behind a zero."""
    clip = CLIP.random(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in clip.named_parameters():
            if name != "logit_scale":
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return clip.to(dtype)


def make_task(
    dtype: torch.dtype = torch.float32, *, seed: int = 0, authors: dict[str, Any] | None = None, **prompt: Any
) -> Task:
    settings = PromptSettings(**{"n_ctx": 3, "std": 0.1, **prompt})
    return Task(small_clip(dtype), CLASSES, settings, seed=seed, authors=AuthorsSettings(**(authors or {})))


def _images(
    sizes: Sequence[int], generator: torch.Generator, n_crops: int, classes_of: Sequence[Sequence[int]]
) -> Images:
    """Images whose tokens show their class; image j of client i is of class classes_of[i][j % ...]."""
    ends = np.cumsum([0, *sizes])
    clients = [np.arange(start, end) for start, end in pairwise(ends)]
    labels = np.zeros(int(ends[-1]), np.int64)
    for rows, classes in zip(clients, classes_of, strict=True):
        labels[rows] = [classes[j % len(classes)] for j in range(len(rows))]
    place = torch.randperm(len(labels), generator=generator).numpy()  # clients' rows are not next to each other
    shuffled = np.zeros_like(labels)
    shuffled[place] = labels
    shown = torch.randn(len(CLASSES), SMALL.embed_dim, generator=torch.Generator().manual_seed(7))[shuffled]
    pooled = torch.randn(n_crops, len(labels), SMALL.embed_dim, generator=generator) + 2 * shown
    tokens = torch.randn(n_crops, len(labels), N_PATCHES, SMALL.embed_dim, generator=generator)
    tokens[:, :, :2] += 2 * shown[:, None]
    return Images(HeldFeatures(pooled, tokens), shuffled, tuple(np.sort(place[rows]) for rows in clients))


def make_data(
    train: Sequence[int] = TRAIN, test: Sequence[int] = TEST, *, n_crops: int = 1, seed: int = 0
) -> FederatedData:
    """Client i has the classes i and i + 1 (modulo K)."""
    generator = torch.Generator().manual_seed(seed)
    classes = [(i % len(CLASSES), (i + 1) % len(CLASSES)) for i in range(len(train))]
    return FederatedData(
        names=tuple(f"client {i}" for i in range(len(train))),
        domains=tuple("north" if i % 2 else "south" for i in range(len(train))),
        train=_images(train, generator, n_crops, classes),
        test=_images(test, generator, 1, classes),
    )


def make_novel(n: int = 7) -> Novel:
    """Images of classes that nobody trains on."""
    generator = torch.Generator().manual_seed(5)
    pooled = torch.randn(1, n, SMALL.embed_dim, generator=generator)
    tokens = torch.randn(1, n, N_PATCHES, SMALL.embed_dim, generator=generator)
    return Novel(NOVEL, HeldFeatures(pooled, tokens), np.arange(n) % len(NOVEL))


def make_settings(
    *,
    optimizer: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
    compute: dict[str, Any] | None = None,
    seed: int = 0,
    **federation: Any,
) -> Settings:
    return Settings(
        RoundSettings(**{"rounds": 3, "local_epochs": 2, "batch_size": 4, **federation}),
        OptimizerSettings(**{"lr": 0.05, **(optimizer or {})}),
        ServerStepSettings(**(server or {})),
        EvaluationSettings(**(evaluation or {})),
        ComputeSettings(**{"group_size": 64, **(compute or {})}),
        seed,
    )


def method_of(method: str) -> Method:
    """A method by its name, behind a colon its variant."""
    name, _, variant = method.partition(":")
    return METHODS[name](**{"variant": variant} if variant else {})


def simulator(
    method: Method | str,
    settings: Settings | None = None,
    *,
    task: Task | None = None,
    data: FederatedData | None = None,
    kept: Path | None = None,
) -> Simulator:
    return Simulator(
        method_of(method) if isinstance(method, str) else method,
        task or make_task(),
        data or make_data(),
        settings or make_settings(),
        kept_in=kept,
    )


def kept_rows(federation: Simulator) -> dict[str, torch.Tensor]:
    """What every client keeps."""
    return federation.kept.read(np.arange(len(federation.data)), torch.device("cpu"))


def state_of(federation: Simulator) -> dict[str, torch.Tensor]:
    """All there is: the server's parameters and every client's."""
    server = {f"server.{name}": value for name, value in federation.server.params.items()}
    return server | {f"kept.{name}": value for name, value in kept_rows(federation).items()}


def worst_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((float((one[name] - other[name]).abs().max()) for name in one if one[name].numel()), default=0.0)


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def in_order(predictions: Predictions) -> Predictions:
    """By client and row; a simulator gives them in the order in which it computes them."""
    at = np.lexsort((predictions.row, predictions.client))
    return Predictions(*(getattr(predictions, name)[at] for name in ("client", "row", "label", "predicted", "loss")))


def unit(x: np.ndarray) -> np.ndarray:
    """Of length 1 along the last axis."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
