"""Departures of the authors' published code from the paper: the section [authors] and the key `bridge = "authors"`.

Each key reproduces a defect or an undocumented choice of that code and is off by default. docs/reproduction.md lists
the effect of each on accuracy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedotp._values import MOST, Value, require_choices, require_from

BRIDGES = ("authors",)
"""Values of the top-level key `bridge`."""
DIVIDED = ("pathological", "dirichlet", "domain-dirichlet")
"""The partition schemes that the authors' code implements differently."""

_SPLIT_SEEDS = {"pathological": 2023, "domain-dirichlet": 0}  # constants in their code, independent of a run's seed
_COARSE_SEED = 12345  # for CIFAR-100 partitioned by coarse labels
_MOST_CROPS = 10_000


@dataclass(frozen=True)
class AuthorsSettings:
    """Departures of the authors' code from the paper; the defaults follow the paper.

    Other departures are values of ordinary settings (no last small batch, all clients in the first round, constant
    seeds of the split, a new crop in every epoch). `bridge = "authors"` sets both kinds. A server of real sites does
    not support them.

    Attributes:
        mispaired_labels: pair a client's labels, in training and in tests, with the first images of its domain instead
            of its own.
        shuffled_names: shuffle the class names among the classes, by the seed.
        normalisation: "clip" for CLIP's own preprocessing; with "cifar10" or "cifar100", images are resized bilinearly
            and normalised with the authors' mean and standard deviation for that data set.
        half_precision: round prompts, gradients and momentum to float16 after every step, and average in float16.
        leaked_momentum: all clients share one optimizer: each starts with the momentum of the client before it, also
            across rounds. Clients then train one after the other.
        schedule_rounds: length of the learning rate schedule in rounds; 0 for the rounds of the run.
        evaluate_sampled: test only the clients that were sampled for the last round, also in the last evaluation. The
            authors' code tests FedProx, CoOp and zero-shot CLIP this way.
        partition: partition as the authors' code does. "pathological": round(K / n) classes per client, the rest to the
            last one. "dirichlet": a client that has n_images / n_clients images gets no more; with coarse labels, all
            clients have the same number of images, of classes drawn from the client's Dirichlet(alpha) over coarse
            labels and Dirichlet(10) over the classes of each. "domain-dirichlet": the same cap in each domain, and
            equal proportions for classes of equal size. Other schemes do not change.
        detached_proximal: add FedProx's term to the reported loss without a gradient, which makes the method PromptFL.
        batch_solver: stop all transport problems of a batch together, by their mean change. The scores of an image then
            depend on the other images of its batch.
    """

    mispaired_labels: bool = False
    shuffled_names: bool = False
    normalisation: Literal["clip", "cifar10", "cifar100"] = "clip"
    half_precision: bool = False
    leaked_momentum: bool = False
    schedule_rounds: int = 0
    evaluate_sampled: bool = False
    partition: bool = False
    detached_proximal: bool = False
    batch_solver: bool = False

    def __post_init__(self) -> None:
        require_choices(self, "authors.")
        require_from(0, MOST, "authors.schedule_rounds", self.schedule_rounds, " (0: the rounds of the run)")

    @property
    def of_data(self) -> tuple[object, ...]:
        """Settings that change images, labels or names; runs on the same data must agree on them."""
        return self.mispaired_labels, self.shuffled_names, self.normalisation, self.partition

    @property
    def wrong_data(self) -> list[str]:
        """Enabled keys that give wrong labels or names and so make the classifier useless."""
        return [key for key in ("mispaired_labels", "shuffled_names") if getattr(self, key)]


def bridged(keys: Mapping[str, Value]) -> dict[str, Value]:
    """Return the dotted keys and values that `bridge = "authors"` sets in a configuration with these `keys`.

    A run records these values, not the key `bridge`.
    """
    found: dict[str, Value] = {
        "authors.half_precision": True,
        "authors.leaked_momentum": True,
        "federation.drop_last": True,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 5e-4,
        "evaluation.every": 1,  # they report the mean over the last five rounds
    }
    return found | _images(keys) | _split(keys) | _METHODS.get(str(keys["method.name"]), {})


def _images(keys: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings of crops, normalisation, labels and names."""
    dataset, scheme = str(keys["data.dataset"]), str(keys["partition.scheme"])
    if dataset.startswith("cifar"):
        normalisation = "cifar100" if dataset == "cifar100" else "cifar10"
        shown: dict[str, Value] = {"authors.normalisation": normalisation, "data.crops": 0}
    else:
        crops = _whole(keys, "federation.rounds") * _whole(keys, "federation.local_epochs")
        shown = {"data.crops": min(crops, _MOST_CROPS)}
    if dataset == "cifar100":
        shown["prompt.n_ctx"] = 4
    if scheme in ("domain", "domain-dirichlet"):
        shown["authors.shuffled_names"] = True
    if scheme == "domain-dirichlet":
        shown["authors.mispaired_labels"] = True
    return shown


def _split(keys: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings of the partition and the batch size."""
    scheme, shots = str(keys["partition.scheme"]), keys.get("partition.shots")
    found: dict[str, Value] = {}
    if scheme in DIVIDED:
        found["authors.partition"] = True
    if scheme in _SPLIT_SEEDS:
        found["partition.seed"] = _SPLIT_SEEDS[scheme]
    if scheme == "dirichlet" and keys["data.dataset"] == "cifar100":
        found["partition.seed"] = _COARSE_SEED
    if scheme == "pathological" and shots is not None:
        found["federation.batch_size"] = shots
    return found


_METHODS: dict[str, dict[str, Value]] = {
    "fedotp": {"authors.batch_solver": True, "federation.first_round": "all"},
    "coop": {"authors.evaluate_sampled": True, "federation.rounds": 1},
    "promptfl-fedprox": {"authors.detached_proximal": True, "authors.evaluate_sampled": True},
    "zeroshot": {"authors.evaluate_sampled": True},
}
"""Settings of training and evaluation by method, as in the authors' code."""


def _whole(keys: Mapping[str, Value], key: str) -> int:
    """Return an integer; 0 for an invalid value, which a later check reports."""
    value = keys[key]
    return value if isinstance(value, int) else 0
