"""What is run: two methods, five attacks from four shares of the sites, six rules, six splits.

Written down before the study was run:

- The federation is that of docs/claims.md under Dirichlet shift: cifar10-mini, 20 clients, alpha 0.3, all of them in
  every round, ten rounds of one epoch, at the demo's learning rate. FedOTP has a private prompt, PromptFL
  has none.
- Attackers are drawn anew with every split. A rule is told the share of attackers (`server.malicious`), as in the
  literature: what is measured is the best it can do.
- Sign flips are five times as long as what was learned: at once, they would only slow a majority down. All other
  strengths are the defaults: ten times for "scaled", 1.5 standard deviations for "colluding".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedotp.config import load_config
from fedotp.runs.many import Trial

METHODS = ("promptfl", "fedotp")
RULES = ("average", "bounded", "median", "trimmed", "krum", "multi-krum")
ATTACKS = {"label-flip": (), "sign-flip": ("attack.scale=5",), "scaled": (), "colluding": (), "backdoor": ()}
"""By name, and how they differ from the defaults."""
AIMED = ("label-flip", "backdoor")
"""Those that have a success of their own."""
SHARES = (0.1, 0.2, 0.3, 0.4)
STAGES: tuple[tuple[float, ...], ...] = ((0.0,), (0.2, 0.4), (0.1, 0.3))
"""Shares in the order in which they are run; 0 is without an attack."""
SPLITS = tuple(range(6))

_FEDERATION = (
    "data.dataset=cifar10-mini",
    "partition.scheme=dirichlet",
    "partition.alpha=0.3",
    "partition.n_clients=20",
    "evaluation.every=0",
)
_TOY = ("federation.rounds=2", "data.dataset=emoji", "partition.n_clients=10")


@dataclass(frozen=True)
class Asked:
    """A run that is asked for; `key` tells it from all others, and is the beginning of its row in runs.csv."""

    key: tuple[str, ...]
    trial: Trial

    COLUMNS = ("method", "attack", "share", "rule", "split")


def asked(shares: Sequence[float], *, device: str, toy: bool) -> Iterator[Asked]:
    """The runs with these shares of attackers; as a `toy` few of them, and small."""
    common = load_config("demo").override([*_FEDERATION, f"compute.device={device}", *(_TOY if toy else ())])
    rules = ("average", "median") if toy else RULES
    attacks = {name: ATTACKS[name] for name in (("sign-flip", "backdoor") if toy else ATTACKS)}
    for share in shares:
        for attack, options in attacks.items() if share else (("none", ()),):
            under = [f"attack.name={attack}", *options, *([f"attack.share={share}"] if share else [])]
            for rule in rules:
                told = [f"server.rule={rule}", f"server.malicious={share or SHARES[-1]}"]
                for method in METHODS:
                    for split in SPLITS[:2] if toy else SPLITS:
                        drawn = [f"method.name={method}", f"partition.seed={split}", f"seed={split}"]
                        key = (method, attack, f"{share:g}", rule, str(split))
                        config = common.override([*under, *told, *drawn])
                        yield Asked(key, Trial("/".join(key), dict(zip(Asked.COLUMNS[:-1], key, strict=False)), config))
