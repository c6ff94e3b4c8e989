"""Controls in tables: their results, and comparisons of methods with them.

The summary of every simulated run contains the results of the majority class of each client, zero-shot CLIP, and the
method's global part alone on the same images; the latter two also with the class prior, the logarithm of the client's
class frequencies. Training on shuffled labels is a separate run.

Differences are paired over clients: the unit is a client of a split, with the mean over seeds. So a comparison needs
only one run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedotp._text import counted
from fedotp.runs.tables._columns import shares_of
from fedotp.runs.tables._differences import Difference, Numbered, Pair, Summary, complete, paired

if TYPE_CHECKING:  # they import torch, which the checks of one run do not need
    from fedotp.config import Config
    from fedotp.runs.many import Outcome

CONTROLS = {
    "majority": "majority class",
    "zero_shot": "zero-shot CLIP",
    "global": "its global part alone",
    "zero_shot_prior": "zero-shot CLIP with class prior",
    "global_prior": "its global part with class prior",
    "shuffled": "itself on shuffled labels",
}
"""Their names, by their keys in a summary."""
MARK = "(!)"
_WITHOUT_LABELS = ("majority", "shuffled")  # their predictions do not depend on image and label
_ENOUGH = 6  # clients; with fewer, intervals are too wide for a warning


@dataclass(frozen=True)
class Check:
    """The difference between a method and a control, over clients."""

    control: str
    difference: Difference

    @property
    def is_flagged(self) -> bool:
        """True if the method is significantly worse, or, with enough clients, not better than the control.

        For controls that do not depend on labels, "not better" means not significantly better; for others, a mean
        difference of at most 0.
        """
        found = self.difference
        if found.is_below:
            return True
        if found.is_above or found.groups < _ENOUGH:
            return False
        return found.mean <= 0 or self.control in _WITHOUT_LABELS

    @property
    def is_open(self) -> bool:
        """True if it is neither flagged nor significantly above."""
        return not (self.is_flagged or self.difference.is_above)

    def sentence(self, name: str) -> str:
        """Explain why the method `name` is flagged."""
        found = self.difference
        how = "worse" if found.is_below else "no better" if found.mean <= 0 else "not significantly better"
        clients = counted(found.groups, "client")
        return f"{MARK} {name} is {how} than {CONTROLS[self.control]}: {found.points} points{_ci(found, clients)}."


def open_checks(checks: Mapping[str, Sequence[Check]]) -> list[str]:
    """Describe differences that are not significant, by method; a sentence for each number of clients."""
    by_clients: dict[int, dict[str, list[str]]] = {}
    for name, each in checks.items():
        for check in each:
            if check.is_open:
                found = check.difference
                over = "over" if found.mean > 0 else "against"
                text = f"{found.points} points {over} {CONTROLS[check.control]}{_ci(found)}"
                by_clients.setdefault(found.groups, {}).setdefault(name, []).append(text)
    sentences = []
    for n, methods in by_clients.items():
        said = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in methods.items())
        few = f"{counted(n, 'client')} {'is' if n == 1 else 'are'} too few to be sure"
        sentences.append(f"{said}; {few if n < _ENOUGH else f'not significant with {n} clients'}.")
    return sentences


def _ci(difference: Difference, *more: str) -> str:
    """Return the interval and further texts in parentheses."""
    known = [] if difference.low is None else [f"95 % CI {difference.interval}"]
    return f" ({', '.join([*known, *more])})" if known or more else ""


def check_run(summary: Summary) -> list[Check]:
    """Return the checks of one complete run."""
    return check_runs([((0, 0), summary)])


def check_runs(runs: Sequence[Numbered], shuffled: Sequence[Numbered] = ()) -> list[Check]:
    """Return the checks of complete runs that differ only in split and seed; `shuffled` are on shuffled labels."""
    ours = _by_client(runs, None)
    theirs = {control: _by_client(runs, control) for control in CONTROLS if control != "shuffled"}
    theirs["shuffled"] = _by_client(shuffled, None)
    found = {control: paired(ours, numbers) for control, numbers in theirs.items()}
    return [Check(control, difference) for control, difference in found.items() if difference]


def control_numbers(outcomes: "Sequence[Outcome]", control: str) -> list[dict[str, float]]:
    """Return the results of a control for each split and seed, from any of the runs, which have the same images."""
    found: dict[Pair, dict[str, float]] = {}
    for number, summary in complete(outcomes):
        controls = summary.get("controls", {})
        if control in controls:
            found[number] = shares_of(controls[control])
            if (with_prior := controls.get(f"{control}_prior")) is not None:
                found[number]["with_prior"] = with_prior["accuracy"]
    return [*found.values()]


def is_control(outcome: "Outcome") -> bool:
    """True if a run is a control of another."""
    return outcome.trial.config.data.labels == "shuffled"


def in_earnest(config: "Config") -> "Config":
    """Return the configuration for which a run on shuffled labels is a control, without split and seed."""
    data, partition = replace(config.data, labels="true"), replace(config.partition, seed=0)
    return replace(config, data=data, partition=partition, seed=0)


def _by_client(runs: Sequence[Numbered], control: str | None) -> dict[Pair, float]:
    """Return accuracies of the method or a control by split and client, and seed."""
    found: dict[Pair, float] = {}
    for (split, seed), summary in runs:
        clients = summary["clients"]
        values = [client["accuracy"] for client in clients]
        if control is not None:
            values = summary.get("controls", {}).get(control, {}).get("clients", [])
        for client, value in zip(clients, values, strict=False):
            found[(split, client["name"]), seed] = value
    return found
