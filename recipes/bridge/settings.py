"""Which settings are run, and with which changes: one for every difference between the authors' code and ours.

Every change is compared with one reference of the same setting, on the same splits and seeds.
"""

from dataclasses import dataclass, field

from fedotp.config import Config
from fedotp.runs.many import Trial

OURS = "ours"
"""The reference of a setting, and what a change is compared with unless it says otherwise."""


@dataclass(frozen=True)
class Change:
    """What differs from the setting, as `--set` takes it, and the change it is compared with."""

    keys: tuple[str, ...]
    against: str = OURS


@dataclass(frozen=True)
class Setting:
    """Data, clients and rounds; changes by name."""

    preset: str
    keys: tuple[str, ...]
    changes: dict[str, Change]
    splits: tuple[int, ...] = tuple(range(6))
    seeds: tuple[int, ...] = (0, 1)
    needs: str = field(default="", metadata={"what": "the data set that must be given"})


def _promptfl(*keys: str, method: str = "promptfl") -> tuple[str, ...]:
    return (f"method.name={method}", *keys)


SETTINGS: dict[str, Setting] = {
    # twenty clients of which five train in a round: what happens in training and in tests
    "some": Setting(
        "demo",
        (
            "partition.scheme=dirichlet",
            "partition.n_clients=20",
            "partition.alpha=0.3",
            "federation.participation=0.25",
            "federation.rounds=20",
        ),
        {
            OURS: Change(()),
            "drop_last": Change(("federation.drop_last=true",)),
            "first_round": Change(("federation.first_round=all",)),
            "half": Change(("authors.half_precision=true",)),
            "leak": Change(("authors.leaked_momentum=true",)),
            "kept": Change(("optimizer.reset=false",)),
            "plain_sgd": Change(("optimizer.momentum=0", "optimizer.weight_decay=0")),
            "batch_stop": Change(("authors.batch_solver=true",)),
            "scaling": Change(("method.solver=scaling",)),
            "capped": Change(("authors.partition=true",)),
            "look": Change(("authors.normalisation=cifar10",)),
            "n_ctx": Change(("prompt.n_ctx=4",)),
            "reg": Change(("method.reg=0.01",)),
            "reg_batch_stop": Change(("method.reg=0.01", "authors.batch_solver=true"), "reg"),
            "mass1": Change(("method.mass=1",)),
            "mass1_batch_stop": Change(("method.mass=1", "authors.batch_solver=true"), "mass1"),
            "all": Change(("bridge=authors",)),
            "promptfl": Change(_promptfl()),
            "promptfl_all": Change(_promptfl("bridge=authors"), "promptfl"),
            "fedprox": Change(_promptfl(method="promptfl-fedprox")),
            "fedprox_detached": Change(
                _promptfl("authors.detached_proximal=true", method="promptfl-fedprox"), "fedprox"
            ),
            "fedprox_sampled": Change(_promptfl("authors.evaluate_sampled=true", method="promptfl-fedprox"), "fedprox"),
            "coop": Change(_promptfl(method="coop")),
            "coop_once": Change(_promptfl("federation.rounds=1", method="coop"), "coop"),
        },
    ),
    # four clients with classes of their own, few shots: K / n is not whole
    "classes": Setting(
        "demo",
        ("partition.n_clients=4", "partition.shots=16", "federation.local_epochs=2"),
        {
            OURS: Change(()),
            "rounded": Change(("authors.partition=true",)),
            "batch_of_shots": Change(("federation.batch_size=16",)),
            "views": Change(("data.crops=20",)),
            "all": Change(("bridge=authors",)),
        },
    ),
    # the same on the one split that never changes; its seeds stand beside those of every split above
    "split2023": Setting(
        "demo",
        ("partition.n_clients=4", "partition.shots=16", "federation.local_epochs=2"),
        {"fixed": Change(())},
        splits=(2023,),
    ),
    # three clients for each of four domains
    "domains": Setting(
        "demo",
        ("data.dataset=emoji", "partition.scheme=domain-dirichlet", "partition.n_clients=12", "partition.alpha=0.3"),
        {
            OURS: Change(()),
            "names": Change(("authors.shuffled_names=true",)),
            "labels": Change(("authors.mispaired_labels=true",)),
            "capped": Change(("authors.partition=true",)),
            "views": Change(("data.crops=10",)),
            "all": Change(("bridge=authors",)),
            "zeroshot": Change(_promptfl(method="zeroshot")),
            "zeroshot_names": Change(_promptfl("authors.shuffled_names=true", method="zeroshot"), "zeroshot"),
            "zeroshot_labels": Change(_promptfl("authors.mispaired_labels=true", method="zeroshot"), "zeroshot"),
        },
    ),
    # one client for each domain: labels and images stay together, names do not; one split, so seeds are the units
    "domain": Setting(
        "demo",
        ("data.dataset=emoji", "partition.scheme=domain"),
        {
            OURS: Change(()),
            "names": Change(("authors.shuffled_names=true",)),
            "all": Change(("bridge=authors",)),
            "zeroshot": Change(_promptfl(method="zeroshot")),
            "zeroshot_names": Change(_promptfl("authors.shuffled_names=true", method="zeroshot"), "zeroshot"),
        },
        splits=(0,),
        seeds=tuple(range(12)),
    ),
    # one hundred classes under twenty coarse labels
    "coarse": Setting(
        "demo",
        (
            "data.dataset=cifar100",
            "partition.scheme=dirichlet",
            "partition.n_clients=20",
            "partition.alpha=0.3",
            "federation.participation=0.25",
            "federation.rounds=10",
            "evaluation.every=5",
        ),
        {
            OURS: Change(()),
            "two_level": Change(("authors.partition=true",)),
            "n_ctx": Change(("prompt.n_ctx=4",)),
            "all": Change(("bridge=authors",)),
        },
        needs="cifar100",
    ),
}


def trials(name: str, more: tuple[str, ...] = ()) -> list[Trial]:
    """Every change of a setting on every split with every seed; `more` is set in all of them, last."""
    setting = SETTINGS[name]
    base = Config.preset(setting.preset).override((*setting.keys, "optimizer.lr=0.1"))
    found = []
    for change, what in setting.changes.items():
        config = base.override(what.keys)
        for split in setting.splits:
            for seed in setting.seeds:
                own = config.override([f"partition.seed={split}", f"seed={seed}", *more])
                label = f"{change},split={split},seed={seed}"
                found.append(Trial(f"{name}/{label}", {"change": change}, own, label))
    return found
