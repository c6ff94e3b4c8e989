"""One client of a restored run and some of its test images, for figures and statistics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedotp.clip import EvalTransform, ImageFeatures
from fedotp.errors import FedotpError
from fedotp.federation import Ints, Simulator
from fedotp.federation.testing import Predictor
from fedotp.matching import Matching
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Prepared

Floats = NDArray[np.float64]

MASSES = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the compared plans
SHOWN_CLIENTS = 3  # by default
_CHUNK = 32  # images whose similarities to all classes are in memory at a time


@dataclass(frozen=True, eq=False)
class ClientImages:
    """n test images of one client, its classes in turn, and its predictor.

    `rows` (n,) are positions in the test split; `image` has pooled (1, n, e) and tokens (1, n, V, e); `labels` (n,);
    `predictor` is the client's, C = 1.
    """

    name: str
    rows: Ints
    image: ImageFeatures
    labels: Tensor
    predictor: Predictor

    @classmethod
    def of(cls, prepared: Prepared, simulator: Simulator, client: str, n_images: int) -> "ClientImages":
        """Read the first `n_images` of `client`."""
        number = np.array([prepared.data.names.index(client)])
        test, task = prepared.data.test, simulator.task
        rows = in_turn(test.clients[number[0]], test.labels)[:n_images]
        image, labels = test.read(rows[None], 0, task.device, task.dtype)
        return cls(client, rows, image, labels[0], simulator.predictor(number))

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self) -> Iterator["ClientImages"]:
        """Yield the images in batches."""
        for start in range(0, len(self), _CHUNK):
            part = slice(start, start + _CHUNK)
            image = ImageFeatures(*(x[:, part] for x in self.image))
            yield replace(self, rows=self.rows[part], image=image, labels=self.labels[part])

    def own_similarity(self) -> Tensor:
        """Return cosines (n, V, N) of patches and prompts, for each image's own class."""
        return self.predictor.similarity(self.image.tokens, self.labels[None])[0]

    def plan(self, similar: Tensor, matching: Matching) -> Tensor:
        """Return transport plans (n, V, N) for similarities (n, V, N)."""
        return self.predictor.plan(similar[None], self.image, matching)[0]

    def predicted(self, matching: Matching | None = None) -> Tensor:
        """Return the classes (n,) that the client predicts, by its own rule or another `matching`."""
        predictor = self.predictor if matching is None else self.predictor.with_matching(matching)
        return predictor.scores(self.image)[0].argmax(-1)


def at_mass(matching: Matching, mass: float) -> Matching:
    """Return `matching` as unbalanced transport at another mass; at 1 it is the classical problem."""
    return replace(matching, rule="unbalanced", mass=mass)


def require_clients(run: RunDirectory, clients: Sequence[str]) -> None:
    """Raise an error for names that are not clients of `run`."""
    names = run.manifest["clients"]
    for client in clients:
        if client not in names:
            raise FedotpError(f"{run.path} has no client {client!r}; its clients are {', '.join(names[:8])}")


def choose(prepared: Prepared, clients: Sequence[str] | None = None, most: int = SHOWN_CLIENTS) -> tuple[str, ...]:
    """Return those of `clients` with test images; default: at most `most` clients, evenly spread."""
    able = [name for name, rows in zip(prepared.data.names, prepared.data.test.clients, strict=True) if len(rows)]
    return spread(able, most) if clients is None else tuple(client for client in clients if client in able)


def spread(names: Sequence[str], most: int) -> tuple[str, ...]:
    """Return at most `most` of `names`, evenly spread."""
    places = np.linspace(0, len(names) - 1, min(most, len(names))).round().astype(int)
    return tuple(names[i] for i in np.unique(places))


def in_turn(rows: Ints, labels: Ints) -> Ints:
    """Order `rows` by the first of every class, then the second, and so on."""
    rank = np.empty(len(rows), np.int64)
    for label in np.unique(labels[rows]):
        of_class = labels[rows] == label
        rank[of_class] = np.arange(of_class.sum())
    return rows[np.lexsort((labels[rows], rank))]


def pixels(prepared: Prepared, row: int) -> Floats:
    """Return a test image as input of the tower: (H, W, 3) in 0 to 1."""
    config = prepared.config
    transform = EvalTransform(prepared.task.clip.config.image_size, config.authors.normalisation, config.data.window)
    return np.asarray(transform.crop(prepared.encoded.dataset.test.image(row))) / 255


def rounded(value: Any) -> Any:
    """Round all floats in `value` to four significant digits; convert arrays and tuples to lists."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    return value
