"""The work of the race, the same for every engine: images, order of clients and batches, initial prompts, the model."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.ot import reference
from fedotp.clip import CLIP, CONFIGS, TINY, EvalTransform, ImageFeatures, load
from fedotp.data import load_dataset
from fedotp.federation import OptimizerSettings, RoundSettings, draws
from fedotp.matching import Matching, similarity
from fedotp.methods import METHODS, Method, Task
from fedotp.prompts import PromptEncoder

CACHE = Path(__file__).parents[2] / "build" / "race"
SEED = 0
_POOL = 512  # distinct images, which clients share: memory is the engine's, not the data's


class After(Protocol):
    def __call__(self, shared: Tensor) -> None:
        """Receive the shared prompt (1, s, d), when an engine is ready for the first round and after each round."""


@dataclass(frozen=True)
class Work:
    """A federation of equal clients.

    Attributes:
        way: "cached" for image features and text features as fedotp computes them; "tutorial" for the full text tower,
            at every position, and images encoded in every step.
        backbone: "mini" with CIFAR-10's images, "toy" with random ones (tests), or "vit": ViT-B/16's shapes, on a GPU.
    """

    method: Literal["promptfl", "fedotp"] = "promptfl"
    way: Literal["cached", "tutorial"] = "cached"
    backbone: Literal["mini", "toy", "vit"] = "mini"
    clients: int = 1000
    sampled: int = 100
    images: int = 40
    epochs: int = 1
    batch: int = 32
    rounds: int = 6
    threads: int = 1

    def __deepcopy__(self, memo: object) -> "Work":
        return self  # a copy of a model shares its work

    @property
    def clip(self) -> CLIP:
        return _clip(self.backbone)

    @property
    def optimizer(self) -> OptimizerSettings:
        """SGD with fedotp's defaults, which differ by method."""
        return OptimizerSettings().of(self.rules)

    @property
    def rules(self) -> Method:
        return METHODS[self.method]()

    @property
    def settings(self) -> RoundSettings:
        share = min(1.0, self.sampled / self.clients)
        return RoundSettings(self.rounds, self.epochs, self.batch, participation=share)

    @property
    def task(self) -> Task:
        return _task(self.backbone)

    @cached_property
    def initial(self) -> Tensor:
        """Initial prompts (N, s, d): the shared one and, with FedOTP, the private one."""
        return self.task.contexts(2 if self.method == "fedotp" else 1)

    def rows(self, client: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.arange(client * self.images, (client + 1) * self.images) % len(self.labels)

    def clients_of(self, round_: int) -> list[int]:
        return [int(i) for i in self.settings.sampled(np.arange(self.clients), round_, SEED)]

    def batches(self, round_: int, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of each step."""
        draw, rows = draws(SEED, "batches", round_, client), self.rows(client)
        for _ in range(self.epochs):
            order = np.argsort(draw.random(len(rows)), kind="stable")
            for start in range(0, len(rows), self.batch):
                yield self.read(torch.from_numpy(rows[order[start : start + self.batch]]))

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return pixels, pooled features or (FedOTP) tokens of images, and their labels."""
        source = self.pixels if self.way == "tutorial" else self.features[self.method == "fedotp"]
        return source[rows.to(source.device)], self.labels[rows.to(source.device)]

    @property
    def pixels(self) -> Tensor:
        return _images(self.backbone)[0]

    @property
    def labels(self) -> Tensor:
        return _images(self.backbone)[1]

    @property
    def features(self) -> ImageFeatures:
        """Pooled (n, e) and token features (n, V, e), encoded once and cached in a file."""
        return _features(self.backbone)


class PromptModel(nn.Module):
    """PromptFL or FedOTP as a user of another engine writes it: prompts are parameters, the towers are not."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.shared = nn.Parameter(work.initial[:1].clone())  # (1, s, d)
        self.private = nn.Parameter(work.initial[1:].clone()) if work.method == "fedotp" else None

    def forward(self, images: Tensor) -> Tensor:
        work, encoder = self.work, self.work.task.encoder
        prompts = self.shared if self.private is None else torch.cat([self.shared, self.private])
        if work.way == "cached":
            text = encoder(prompts[None])[0]  # (N, K, e)
            pooled = tokens = images
        else:
            text = cast(PromptEncoder, encoder).encode_plain(prompts[None])[0]
            with torch.no_grad():
                pooled, tokens = work.clip.encode_image(images)
        if self.private is None:
            scores = F.normalize(pooled, dim=-1) @ F.normalize(text[0], dim=-1).mT  # (B, K)
        elif work.way == "cached":
            scores = Matching()(ImageFeatures(tokens[:, 0][None], tokens[None]), text[None])[0]
        else:  # transport as the authors' code computes it
            cosine = similarity(tokens[None], text[None])[0]  # (B, K, V, N)
            plan = reference(1 - cosine.detach().flatten(0, 1).contiguous(), Matching.reg)
            scores = (plan.view(cosine.shape) * cosine).sum((-2, -1))
        return work.clip.logit_scale.exp() * scores

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self(images), labels)


@cache
def _clip(backbone: str) -> CLIP:
    if backbone == "mini":
        return load("mini")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return CLIP.random(TINY) if backbone == "toy" else CLIP.random(CONFIGS["ViT-B/16"]).to(device)


@cache
def _task(backbone: str) -> Task:
    if backbone == "mini":
        return Task(_clip(backbone), load_dataset("cifar10-mini").classes, seed=SEED)
    return Task(_clip(backbone), tuple(f"thing {k}" for k in range(37 if backbone == "vit" else 3)), seed=SEED)


@cache
def _images(backbone: str) -> tuple[Tensor, Tensor]:
    """Return pixels (n, 3, p, p) and labels (n,)."""
    clip, device = _clip(backbone), _clip(backbone).device
    size = clip.config.image_size
    if backbone == "mini":
        split = load_dataset("cifar10-mini").train
        chosen = np.random.default_rng(SEED).permutation(len(split))[:_POOL]
        transform = EvalTransform(size)
        return torch.stack([transform(split.image(int(i))) for i in chosen]), torch.from_numpy(split.labels[chosen])
    n = 24 if backbone == "toy" else _POOL
    pixels = torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(SEED))
    return pixels.to(device), (torch.arange(n) % len(_task(backbone).classes)).to(device)


@cache
def _features(backbone: str) -> ImageFeatures:
    path = CACHE / f"{backbone}.pt"
    if backbone != "mini":
        return encode(_clip(backbone), _images(backbone)[0])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(tuple(encode(_clip(backbone), _images(backbone)[0])), path)
    return ImageFeatures(*torch.load(path))


@torch.no_grad()
def encode(clip: CLIP, pixels: Tensor) -> ImageFeatures:
    parts = [clip.encode_image(part) for part in pixels.split(64)]
    return ImageFeatures(*(torch.cat(several) for several in zip(*parts, strict=True)))
