"""`bridge = "authors"`: one word for every setting in which the authors' code differs from the paper or from us.

The word is not kept: a configuration read with it has the keys themselves, so that a run records what it did. What
each of them changes, and by how many points, is in docs/reproduction.md.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from fedotp._values import Value, show
from fedotp.config._reading import one_of
from fedotp.data.partition import PartitionSettings
from fedotp.errors import SettingError

Bridge = Literal["authors"]

_MOST_CROPS = 10_000
_SPLIT_SEEDS = {"pathological": 2023, "domain-dirichlet": 0}  # whatever the seed of the run is
_COARSE_SEED = 12345  # of CIFAR-100 divided by coarse labels


def bridged(name: object, keys: Mapping[str, Value]) -> dict[str, Value]:
    """What the bridge called `name` sets in a configuration with these `keys` (dotted), by their dotted names."""
    if name not in get_args(Bridge):
        raise SettingError("bridge", show(name), one_of(get_args(Bridge), name))
    found: dict[str, Value] = {
        "prompt.half": True,
        "federation.drop_last": True,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 5e-4,
        "optimizer.leak": True,
        "evaluation.every": 1,  # the number reported is the mean over the last five rounds
    }
    return found | _data(keys) | _split(keys) | _METHODS.get(str(keys["method.name"]), {})


def _data(keys: Mapping[str, Value]) -> dict[str, Value]:
    """How images are shown, and what stands beside them."""
    dataset, scheme = str(keys["data.dataset"]), str(keys["partition.scheme"])
    if dataset.startswith("cifar"):
        shown: dict[str, Value] = {"data.look": "cifar100" if dataset == "cifar100" else "cifar10", "data.crops": 0}
    else:
        crops = _whole(keys, "federation.rounds") * _whole(keys, "federation.local_epochs")
        shown = {"data.crops": min(crops, _MOST_CROPS)}
    if dataset == "cifar100":
        shown["prompt.n_ctx"] = 4
    if scheme in ("domain", "domain-dirichlet"):
        shown["data.names"] = "shuffled"
    if scheme == "domain-dirichlet":
        shown["data.labels"] = "mispaired"
    return shown


def _split(keys: Mapping[str, Value]) -> dict[str, Value]:
    """Who gets which images, and how many of them are in a batch."""
    scheme, shots = str(keys["partition.scheme"]), keys.get("partition.shots")
    found: dict[str, Value] = {}
    if PartitionSettings(scheme).has_variants:
        found["partition.variant"] = "authors"
    if scheme in _SPLIT_SEEDS:
        found["partition.seed"] = _SPLIT_SEEDS[scheme]
    if scheme == "dirichlet" and keys["data.dataset"] == "cifar100":
        found["partition.seed"] = _COARSE_SEED
    if scheme == "pathological" and shots is not None:
        found["federation.batch_size"] = shots
    return found


_METHODS: dict[str, dict[str, Value]] = {
    "fedotp": {"method.solver": "batch", "federation.first_round": "all"},
    "coop": {"federation.rounds": 1, "evaluation.of": "sampled"},
    "promptfl-fedprox": {"method.detached": True, "evaluation.of": "sampled"},
    "zeroshot": {"evaluation.of": "sampled"},
}
"""How methods of the authors' code are trained and tested there."""


def _whole(keys: Mapping[str, Value], key: str) -> int:
    """A number, or 0 for whatever else stands there: that is refused where it is read."""
    value = keys[key]
    return value if isinstance(value, int) else 0
