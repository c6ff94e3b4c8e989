"""Where the authors' published code departs from the paper: the section [authors] and the word `bridge = "authors"`.

Everything that repeats a defect or an undocumented choice of that code is a key of this section, off by default. What
each of them changes, and by how many points, is in docs/reproduction.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedotp._values import MOST, Value, require_choices, require_from

BRIDGES = ("authors",)
"""What the key `bridge`, outside of sections, may be."""
DIVIDED = ("pathological", "dirichlet", "domain-dirichlet")
"""The partition schemes that the authors' code implements differently."""

_SPLIT_SEEDS = {"pathological": 2023, "domain-dirichlet": 0}  # constants in their code, independent of a run's seed
_COARSE_SEED = 12345  # of CIFAR-100 divided by coarse labels
_MOST_CROPS = 10_000


@dataclass(frozen=True)
class AuthorsSettings:
    """What the authors' code does differently from the paper; the defaults are the paper's behaviour.

    These departures have keys here. Others are usual settings with other values (no last small batch, all clients in
    the first round, constant seeds of the split, a new crop in every epoch): `bridge = "authors"` sets both kinds. All
    of them are for simulations; a server of real sites refuses them.

    Attributes:
        mispaired_labels: a client's labels, in training and in tests, are paired with the first images of its domain
            instead of its own.
        shuffled_names: classes have each other's names, drawn from the seed.
        normalisation: images are resized bilinearly and normalised with the mean and standard deviation that the
            authors' code has for "cifar10" or "cifar100"; "clip" is CLIP's own.
        half_precision: prompts, gradients and momentum are rounded to float16 after every step, and averages are summed
            in it.
        leaked_momentum: one optimizer serves all clients in turn: each starts with the momentum that the previous
            client left, from round to round. Clients then train one after the other.
        schedule_rounds: rounds after which the schedule of the learning rate would end; 0 for those of the run.
        evaluate_sampled: only the clients that took part in the last round are tested, in the last evaluation too: so
            the authors' code tests FedProx, CoOp and zero-shot CLIP.
        partition: divide images as the authors' code does. "pathological": round(K / n) classes each, the rest to the
            last client. "dirichlet": a client with n_images / n_clients images gets no more; where the data set has
            coarse labels, all clients have equally many images, of classes drawn from the client's own Dirichlet(alpha)
            over coarse labels and Dirichlet(10) over the classes of each. "domain-dirichlet": the same cap in each
            domain, and classes with equally many images are divided alike. The other schemes do not change.
        detached_proximal: FedProx's term is added to the reported loss without a gradient, so that the method is
            PromptFL.
        batch_solver: the transport problems of a batch stop together, after their mean change: the scores of an image
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
        """Those that say which images and names clients have: runs on the same data agree on them."""
        return self.mispaired_labels, self.shuffled_names, self.normalisation, self.partition

    @property
    def wrong_data(self) -> list[str]:
        """The keys that give a classifier wrong labels or names, so that it is of no use."""
        return [key for key in ("mispaired_labels", "shuffled_names") if getattr(self, key)]


def bridged(keys: Mapping[str, Value]) -> dict[str, Value]:
    """What `bridge = "authors"` sets in a configuration with these `keys` (dotted), by their dotted names.

    The word is not kept: a configuration read with it has the keys themselves, so that a run records what it did.
    """
    found: dict[str, Value] = {
        "authors.half_precision": True,
        "authors.leaked_momentum": True,
        "federation.drop_last": True,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 5e-4,
        "evaluation.every": 1,  # the number reported is the mean over the last five rounds
    }
    return found | _images(keys) | _split(keys) | _METHODS.get(str(keys["method.name"]), {})


def _images(keys: Mapping[str, Value]) -> dict[str, Value]:
    """How images are shown, and what stands beside them."""
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
    """Which images a client gets, and how many of them are in a batch."""
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
"""How methods of the authors' code are trained and tested there."""


def _whole(keys: Mapping[str, Value], key: str) -> int:
    """A number, or 0 for any other value, which is refused where it is read."""
    value = keys[key]
    return value if isinstance(value, int) else 0
