"""Reading packs of pictures, and the words that go with them."""

import io
import json
import os
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

SIZE = 64
PHOTO_SETS = ("tiny", "cifar100", "food", "cifar10")  # in the order of their class numbers
FILES = {
    "tiny": ("tiny_imagenet_train_0", "tiny_imagenet_train_1"),
    "cifar100": ("cifar100_train",),
    "food": ("food101_64px_train",),
    "cifar10": ("cifar10_train",),
    "drawings": ("drawings",),
}
TESTS = (
    "tiny_imagenet_val",
    "cifar10_test",
    "cifar100_test",
    "office_amazon",
    "office_caltech",
    "office_dslr",
    "office_webcam",
)


@dataclass
class Pack:
    """Decoded pictures (n, 3, 64, 64) or, with transparency, (n, 4, 64, 64), uint8; labels (n,); class names."""

    images: Tensor
    labels: Tensor
    classes: list[str]


def read_pack(path: Path, *, limit: int | None = None) -> Pack:
    """Decode a pack, on all cores; the decoded tensors are kept beside it for the next time."""
    cache = path.with_suffix(".decoded")
    if cache.exists() and limit is None:
        stored = torch.load(cache, weights_only=True)
        return Pack(stored["images"], stored["labels"], stored["classes"])
    with np.load(path) as pack:
        blob, offsets = pack["bytes"].tobytes(), pack["offsets"]
        labels, classes = torch.from_numpy(pack["labels"]).long(), [str(c) for c in pack["classes"]]
    if limit is not None:  # a sample spread over all classes, for trying the code out
        keep = range(0, len(labels), max(1, len(labels) // limit))
        files, labels = [blob[offsets[i] : offsets[i + 1]] for i in keep], labels[list(keep)]
    else:
        files = [blob[a:b] for a, b in pairwise(offsets)]
    with get_context("fork").Pool(os.cpu_count()) as pool:
        decode = partial(_decode, mode="RGBA" if path.stem == "drawings" else "RGB")
        images = torch.from_numpy(np.stack(pool.map(decode, files, chunksize=512)))
    images = images.permute(0, 3, 1, 2).contiguous()
    if limit is None:
        torch.save({"images": images, "labels": labels, "classes": classes}, cache)
    return Pack(images, labels, classes)


def _decode(blob: bytes, mode: str) -> np.ndarray:
    image = Image.open(io.BytesIO(blob)).convert(mode)
    if image.size != (SIZE, SIZE):
        image = image.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return np.asarray(image)


class Captions:
    """True captions of each of K classes: its names first, then its hypernyms."""

    def __init__(self, classes: list[list[list[str]]], index: dict[str, int], n_words: int, device: str) -> None:
        """`classes` has levels of words for each class; `index` numbers the words, the first `n_words` are theirs."""
        width = max(sum(map(len, levels)) for levels in classes)
        ids, chance = torch.zeros(len(classes), width, dtype=torch.long), torch.zeros(len(classes), width)
        valid = torch.zeros(len(classes), n_words, dtype=torch.bool)
        for row, levels in enumerate(classes):
            at = 0
            for depth, level in enumerate(levels):
                for word in level:
                    ids[row, at] = index[word.lower()]
                    valid[row, index[word.lower()]] = True
                    chance[row, at] = (1.0 if depth == 0 else 0.5 / (len(levels) - 1)) / len(level)
                    at += 1
        self._ids, self._chance, self._valid = ids.to(device), chance.to(device), valid.to(device)
        self.names = [levels[0][0].lower() for levels in classes]
        self.name_ids = torch.tensor([index[name] for name in self.names], device=device)  # (K,)

    def sample(self, some: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A random caption of all or `some` classes (k,); which of them (columns) are true of other classes, (k, k)."""
        some = torch.arange(len(self._ids), device=self._ids.device) if some is None else some
        picked = self._ids[some].gather(1, torch.multinomial(self._chance[some], 1)).squeeze(1)  # (k,)
        also_true = self._valid[some][:, picked]
        return picked, also_true & ~torch.eye(len(picked), dtype=torch.bool, device=picked.device)


class Words:
    """Names, which of them describe which class, and the sentence encoder's targets for all of them."""

    def __init__(self, folder: Path, device: str) -> None:
        """From the files of `prepare_words`."""
        words = json.loads((folder / "words.json").read_text())
        self.names: list[str] = words["names"]
        self.n_class_words, self.n_common = int(words["classes"]), int(words["common"])
        index = {name: i for i, name in enumerate(self.names)}
        classes = [levels for key in PHOTO_SETS for levels in words["captions"][key]]
        self.photos = Captions(classes, index, self.n_class_words, device)
        self.drawn = Captions(words["captions"]["drawings"], index, self.n_class_words, device)
        self.set_of_class = torch.tensor([i for i, key in enumerate(PHOTO_SETS) for _ in words["captions"][key]])
        with np.load(folder / "sentences.npz") as stored:
            photo, bare = (torch.from_numpy(stored[f"{p}rows"] * stored[f"{p}scale"]).float() for p in ("", "bare_"))
        self.sentences = F.normalize(photo, dim=-1).to(device)  # (n, e): "a photo of a <name>."
        self.bare = F.normalize(bare, dim=-1).to(device)  # (n, e): the bare name


class Photos:
    """All photos on one device, drawn at random with a weight per set."""

    def __init__(self, folder: Path, weights: dict[str, float], device: str, *, limit: int | None = None) -> None:
        """Reads every set of `PHOTO_SETS`; class numbers are consecutive over the sets."""
        images, labels, weight, first = [], [], [], 0
        for key in PHOTO_SETS:
            packs = [read_pack(folder / f"{name}.npz", limit=limit) for name in FILES[key]]
            for pack in packs:
                images.append(pack.images)
                labels.append(pack.labels + first)
                weight.append(torch.full((len(pack.labels),), weights[key], dtype=torch.double))
            first += len(packs[0].classes)
        self.images, self.labels = torch.cat(images).to(device), torch.cat(labels).to(device)
        self._cumulative = torch.cat(weight).cumsum(0).to(device)

    def sample(self, n: int) -> Tensor:
        """Indices (n,) of random photos."""
        return _draw(self._cumulative, n)


def _draw(cumulative: Tensor, n: int) -> Tensor:
    at = torch.rand(n, device=cumulative.device, dtype=torch.double) * cumulative[-1]
    return torch.searchsorted(cumulative, at).clamp(max=len(cumulative) - 1)
