"""Does every entry still work: one round of each at toy size, from files to the table or the figure.

A toy has the paper's data sets in miniature, noise in the layouts in which they come, and a small random backbone.
"""

import json
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from fedotp.clip import CLIP, TINY, save
from fedotp.config import Config
from fedotp.data import DATASETS, load_dataset
from fedotp.errors import FedotpError
from fedotp.paper._draw import draw
from fedotp.paper._entry import Entry
from fedotp.paper._entry_runs import Made, by_part, config_of, missing_inputs, trials_of
from fedotp.paper._result import Result
from fedotp.runs.many import run_many

_LISTED = {  # CoOp's lists: where the images are, and what the list is called
    "food101": ("images", "Food101"),
    "dtd": ("images", "DescribableTextures"),
    "caltech101": ("101_ObjectCategories", "Caltech101"),
    "flowers102": ("jpg", "OxfordFlowers"),
    "oxford_pets": ("images", "OxfordPets"),
}
_DOMAINS = {
    "domainnet": (
        ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
        ("bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass", "zebra"),
    ),
    "office_caltech10": (
        ("amazon", "caltech", "dslr", "webcam"),
        (
            *("backpack", "bike", "calculator", "headphones", "keyboard"),
            *("laptop_computer", "monitor", "mouse", "mug", "projector"),
        ),
    ),
}
_N_CLASSES = 10  # of the data sets with lists: one for each client
_SHOTS = 16  # the most that an entry asks for
_PER_DOMAIN = 5  # images of a class of a domain
_SIDE = 32
_MANY = 100  # clients, of which a toy has fewer
_FEW = 20


class Toy:
    """A folder with a backbone and the data sets, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._random = np.random.default_rng(0)
        save(CLIP.random(TINY, seed=0), self._backbone)

    @property
    def _backbone(self) -> Path:
        return self.folder / "tiny.safetensors"

    @property
    def _root(self) -> Path:
        return self.folder / "data"

    @property
    def places(self) -> list[str]:
        """The settings that say where all of it is."""
        return [
            f"backbone.name={self._backbone}",
            f"data.root={self._root}",
            f"data.store={self.folder / 'store'}",
        ]

    def changes(self, config: Config) -> list[str]:
        """What makes a toy of a configuration: one round of one epoch on the miniature of its data."""
        self.make(config.data.dataset)
        is_large = config.partition.n_clients == _MANY
        few = [f"partition.n_clients={_FEW}", "federation.participation=0.5"] if is_large else []
        return [
            *few,
            *self.places,
            "prompt.n_ctx=2",
            "federation.rounds=1",
            "federation.local_epochs=1",
            "compute.device=cpu",
        ]

    def make(self, name: str) -> None:
        """Write the miniature of a data set, if it is not there; its reader must understand it."""
        folder = self._root / DATASETS[name].folder
        if folder.exists():
            return
        folder.mkdir(parents=True)
        if name in _LISTED:
            self._listed(folder, *_LISTED[name])
        elif name in _DOMAINS:
            self._by_domain(folder, *_DOMAINS[name])
        elif name == "cifar10":
            self._cifar10(folder)
        else:
            self._cifar100(folder)
        load_dataset(name, root=self._root)

    def _listed(self, folder: Path, images: str, name: str) -> None:
        rows: dict[str, list[tuple[str, int, str]]] = {"train": [], "val": [], "test": []}
        for label in range(_N_CLASSES):
            for number in range(_SHOTS + 2):
                split = "train" if number < _SHOTS else "test"
                rows[split].append((f"class_{label}/{number}.jpg", label, f"class {label}"))
                self._image(folder / images / rows[split][-1][0])
        (folder / f"split_zhou_{name}.json").write_text(json.dumps(rows))

    def _by_domain(self, folder: Path, domains: Sequence[str], classes: Sequence[str]) -> None:
        for domain in domains:
            for name in classes:
                for number in range(_PER_DOMAIN):
                    self._image(folder / domain / name / f"{number}.jpg")

    def _cifar10(self, folder: Path) -> None:
        _pickle(folder / "batches.meta", {"label_names": [f"class {k}" for k in range(10)]})
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            _pickle(folder / name, {"data": self._pixels(40), "labels": [i % 10 for i in range(40)]})

    def _cifar100(self, folder: Path) -> None:
        names = {"fine_label_names": 100, "coarse_label_names": 20}
        _pickle(folder / "meta", {key: [f"{key[:4]} {k}" for k in range(n)] for key, n in names.items()})
        for name, n in (("train", 500), ("test", 100)):
            fine = [i % 100 for i in range(n)]
            coarse = [k % 20 for k in fine]
            _pickle(folder / name, {"data": self._pixels(n), "fine_labels": fine, "coarse_labels": coarse})

    def _pixels(self, n: int) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
        return self._random.integers(0, 256, (n, 3 * _SIDE * _SIDE), dtype=np.uint8)

    def _image(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self._pixels(1).reshape(_SIDE, _SIDE, 3)).save(path)


def _pickle(path: Path, content: dict[str, object]) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))


@dataclass(frozen=True)
class Checked:
    """What became of an entry: how much was made in which time, and what went wrong, if anything."""

    entry: Entry
    runs: int
    cells: int
    figures: int
    seconds: float
    error: str = ""


def check(entries: Sequence[Entry], folder: Path) -> Iterator[Checked]:
    """Run entries one after the other at toy size in `folder`; those that share runs share them here, too."""
    toy = Toy(folder)
    for entry in entries:
        began = time.perf_counter()
        try:
            made, figures = _make(entry, toy, folder)
            result = Result.of(entry, made)
            result.save(folder)
            error = _wrong(entry, result, figures)
            n_runs = sum(len(outcomes) for _, outcomes in made)
            yield Checked(entry, n_runs, result.n_filled, len(figures), time.perf_counter() - began, error)
        except FedotpError as problem:
            yield Checked(entry, 0, 0, 0, time.perf_counter() - began, str(problem))


def _make(entry: Entry, toy: Toy, folder: Path) -> tuple[Made, list[Path]]:
    """Each part by itself: what makes a toy of it depends on its data."""
    made: Made = []
    figures = []
    for part in entry.parts:
        one = replace(entry, parts=(part,))
        changes = toy.changes(config_of(part))
        trials = trials_of(one, [0], changes=changes)
        if missing := missing_inputs(trial.config for trial in trials):
            raise FedotpError(f"{missing[0].what} is missing")
        outcomes = run_many(trials, folder / "runs")
        for outcome in outcomes:
            if outcome.error:
                raise FedotpError(f"{outcome.trial.name}: {outcome.error}")
        made += by_part(one, outcomes)
        if entry.drawing == "partition":
            figures += draw(one, made, folder, changes)
    return made, figures or draw(entry, made, folder)


def _wrong(entry: Entry, result: Result, figures: Sequence[Path]) -> str:
    """Whether a cell has no number of ours, or a figure was not drawn."""
    if empty := [line.cell for line in result.all_lines if line.mean is None]:
        return f"no number for {empty[0].method}, {empty[0].dataset} {empty[0].setting}".rstrip()
    if entry.drawing and not figures:
        return "nothing was drawn"
    return ""
