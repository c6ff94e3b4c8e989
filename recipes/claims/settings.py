"""What is run to test the paper's claims: settings, each a federation with methods, and what is varied in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedotp.config import load_config
from fedotp.runs.many import Trial, by_method

SHARED = ("promptfl", "promptfl-fedprox")
"""Methods of the paper with one prompt for all."""
BASELINES = ("coop", *SHARED, "promptfl-ft", "promptfl-fedper", "promptfl-fedamp", "pfedprompt")
"""Those of the paper's Table 1, apart from zero-shot CLIP, which every run has among its controls."""
TABLE_3 = ("coop", *SHARED)
"""Those of the paper's Tables 2, 3, A2, A3 and A5."""
MASSES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The paper's; at 1 the plan must use up every patch, which is classical transport."""
SHOTS = (1, 2, 4, 8, 16)
ALPHAS = (0.1, 0.3, 0.5, 1, 5, 10)
COUNTS = ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2))
"""Numbers of global and local prompts, beside the paper's (1, 1)."""

SPLITS, SEEDS = range(6), range(2)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
"""Learning rates tried for every method in every family of settings, on splits that count for nothing else."""
OTHER_SPLITS = (100, 101)

FEDOTP, CLASSICAL, AVERAGE = "fedotp", "fedotp:rule=classical", "fedotp:rule=average"
OTHER_MASSES = tuple(f"fedotp:mass={mass}" for mass in MASSES if mass not in (0.8, 1.0))
OTHER_COUNTS = tuple(f"fedotp:n_shared={g}:n_private={n}" for g, n in COUNTS)
EMOJI_COUNTS = tuple(method for method in OTHER_COUNTS if method != "fedotp:n_shared=2:n_private=0")

_TEN_OF_FIVE = ("federation.rounds=10", "federation.local_epochs=5")  # T and R of the paper's Table 1
_CIFAR = ("data.dataset=cifar10-mini", "partition.scheme=pathological", "partition.n_clients=5")
_EMOJI = ("data.dataset=emoji", "partition.scheme=pathological", "partition.n_clients=4")
_DIRICHLET = ("data.dataset=cifar10-mini", "partition.scheme=dirichlet")


@dataclass(frozen=True)
class Setting:
    """A federation, the methods run in it, and the values of what is varied: `key` is a setting, `values` its values.

    Of a division without chance there is one split: then `splits` is (0,), and there are more seeds. `rates` is the
    setting that chose the learning rates, "" for those that choose.
    """

    rates: str
    changes: tuple[str, ...]
    methods: tuple[str, ...]
    key: str = ""
    values: tuple[float, ...] = ()
    splits: Sequence[int] = SPLITS
    seeds: Sequence[int] = SEEDS


_ABLATED = (FEDOTP, CLASSICAL, AVERAGE)
_ALL = (*_ABLATED, *BASELINES)
_FEW_SHOTS = {name: (*who, *_TEN_OF_FIVE) for name, who in {"classes": _CIFAR, "emoji": _EMOJI}.items()}
_TWENTY = (*_DIRICHLET, "partition.n_clients=20")


def _choosing(changes: tuple[str, ...], methods: tuple[str, ...]) -> Setting:
    return Setting("", changes, methods, "optimizer.lr", RATES, OTHER_SPLITS, SEEDS[:1])


CHOOSING = {
    "rates-classes": _choosing((*_FEW_SHOTS["classes"], "partition.shots=4"), _ALL),
    "rates-emoji": _choosing((*_FEW_SHOTS["emoji"], "partition.shots=4"), _ALL),
    "rates-dirichlet": _choosing((*_TWENTY, "partition.alpha=0.3"), (*_ABLATED, *TABLE_3)),
}
"""Settings that choose learning rates."""

SETTINGS = {
    "classes-shots": Setting("rates-classes", _FEW_SHOTS["classes"], _ALL, "partition.shots", SHOTS),
    "emoji-shots": Setting(
        "rates-emoji", _FEW_SHOTS["emoji"], (*_ABLATED, "coop", "promptfl"), "partition.shots", SHOTS
    ),
    "alpha": Setting("rates-dirichlet", _TWENTY, (FEDOTP, *SHARED), "partition.alpha", ALPHAS),
    "alpha-classical": Setting("rates-dirichlet", _TWENTY, (CLASSICAL,), "partition.alpha", ALPHAS[1:]),
    "dirichlet-mass": Setting("rates-dirichlet", _TWENTY, OTHER_MASSES, "partition.alpha", (0.3,)),
    "dirichlet-prompts": Setting("rates-dirichlet", _TWENTY, OTHER_COUNTS, "partition.alpha", (0.3,)),
    "emoji-prompts": Setting("rates-emoji", _FEW_SHOTS["emoji"], EMOJI_COUNTS, "partition.shots", (8,)),
}
"""By name, those that most depends on first."""


@dataclass(frozen=True)
class Asked:
    """A run that is asked for; `key` tells it from all others, and is the beginning of its row in runs.csv."""

    key: tuple[str, ...]
    trial: Trial

    COLUMNS = ("setting", "value", "method", "split", "seed")


def asked(name: str, rates: Mapping[tuple[str, str], float], *, device: str, toy: bool) -> Iterator[Asked]:
    """The runs of a setting; as a `toy` two rounds on two splits, at the ends of what is varied.

    `rates` are the learning rates by the setting that chose them and method; options of FedOTP without a rate of
    their own have FedOTP's.
    """
    setting = (SETTINGS | CHOOSING)[name]
    splits, seeds, values = setting.splits, setting.seeds, setting.values
    common = ["evaluation.every=0", f"compute.device={device}", *setting.changes]
    if toy:
        splits, seeds = splits[:2], seeds[: 3 - len(splits[:2])]
        values = values[:: max(1, len(values) - 1)]
        common += ["federation.rounds=2", "federation.local_epochs=1"]
    for value in values or (None,):
        at = "" if value is None else f"{value:g}"
        config = load_config("demo").override([*common, *([f"{setting.key}={at}"] if at else [])])
        for method in setting.methods:
            tried = [(setting.rates, method), (setting.rates, method.partition(":")[0])]
            rate = next((rates[key] for key in tried if key in rates), None)
            changed = config if rate is None else config.override([f"optimizer.lr={rate}"])
            for trial in by_method(changed, [method], seeds, splits):
                key = (name, at, method, str(trial.config.partition.seed), str(trial.config.seed))
                yield Asked(key, replace(trial, name="/".join(filter(None, (name, at, trial.name)))))
