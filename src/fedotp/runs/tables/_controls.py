"""Controls in tables: what each scored, and which methods are not better.

The summary of every simulated run has, scored on the same images: the majority class of each client, zero-shot CLIP,
and the method's global part alone; the latter two also with the class prior, the logarithm of the client's own class
frequencies. The method trained on shuffled labels is a run of its own.

A method and its controls are paired over clients: each client of each split, mean over seeds, is a unit. So one run is
enough to see whether a method is above them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedotp._text import counted
from fedotp.runs.tables._columns import shares_of
from fedotp.runs.tables._differences import Difference, Pair, paired

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
"""What they are called, by their keys in a summary."""
MARK = "(!)"
_WITHOUT_LABELS = ("majority", "shuffled")  # what these predict by has nothing to do with an image and its label
_ENOUGH = 6  # clients; with fewer, intervals are too wide to say that something is wrong

Summary = Mapping[str, Any]
Numbered = tuple[tuple[int, int], Summary]
"""Split and seed of a run, and its summary."""


@dataclass(frozen=True)
class Check:
    """How much a method is above a control, over clients."""

    control: str
    difference: Difference

    @property
    def is_flagged(self) -> bool:
        """Whether something may be wrong: the method is worse than the control, or no better with enough clients.

        A method that learns from labels is far above the controls that do not: of those a difference that is not
        significant is enough, of the others only one that is not positive.
        """
        found = self.difference
        if found.is_below:
            return True
        if found.is_above or found.groups < _ENOUGH:
            return False
        return found.mean <= 0 or self.control in _WITHOUT_LABELS

    @property
    def is_open(self) -> bool:
        """Whether it is neither flagged nor significantly above."""
        return not (self.is_flagged or self.difference.is_above)

    def sentence(self, name: str) -> str:
        """Why the method called `name` is flagged."""
        found = self.difference
        how = "worse" if found.is_below else "no better" if found.mean <= 0 else "not significantly better"
        clients = counted(found.groups, "client")
        return f"{MARK} {name} is {how} than {CONTROLS[self.control]}: {found.points} points{_ci(found, clients)}."


def open_checks(checks: Mapping[str, Sequence[Check]]) -> list[str]:
    """What is not significant, by the methods' names: a sentence for each number of clients, usually one."""
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
    """Its interval between brackets, and what else belongs there."""
    known = [] if difference.low is None else [f"95 % CI {difference.interval}"]
    return f" ({', '.join([*known, *more])})" if known or more else ""


def check_run(summary: Summary) -> list[Check]:
    """The checks of one complete run."""
    return check_runs([((0, 0), summary)])


def check_runs(runs: Sequence[Numbered], shuffled: Sequence[Numbered] = ()) -> list[Check]:
    """The checks of complete runs that differ in split and seed only; `shuffled` are those on shuffled labels."""
    ours = _by_client(runs, None)
    theirs = {control: _by_client(runs, control) for control in CONTROLS if control != "shuffled"}
    theirs["shuffled"] = _by_client(shuffled, None)
    found = {control: paired(ours, numbers) for control, numbers in theirs.items()}
    return [Check(control, difference) for control, difference in found.items() if difference]


def complete(outcomes: "Sequence[Outcome]") -> list[Numbered]:
    """Split, seed and summary of those that are complete."""
    ended = [outcome for outcome in outcomes if outcome.directory.is_complete]
    configs = [outcome.trial.config for outcome in ended]
    numbers = [(config.partition.seed, config.seed) for config in configs]
    return [(number, outcome.directory.summary) for number, outcome in zip(numbers, ended, strict=True)]


def control_numbers(outcomes: "Sequence[Outcome]", control: str) -> list[dict[str, float]]:
    """What a control scored on each split with each seed, in any of the runs, which are on the same images."""
    found: dict[Pair, dict[str, float]] = {}
    for number, summary in complete(outcomes):
        controls = summary.get("controls", {})
        if control in controls:
            found[number] = shares_of(controls[control])
            if (with_prior := controls.get(f"{control}_prior")) is not None:
                found[number]["with_prior"] = with_prior["accuracy"]
    return [*found.values()]


def is_control(outcome: "Outcome") -> bool:
    """Whether a run is of interest only beside another."""
    return outcome.trial.config.data.labels == "shuffled"


def in_earnest(config: "Config") -> "Config":
    """The run that one on shuffled labels is the control of; split and seed left out."""
    data, partition = replace(config.data, labels="true"), replace(config.partition, seed=0)
    return replace(config, data=data, partition=partition, seed=0)


def _by_client(runs: Sequence[Numbered], control: str | None) -> dict[Pair, float]:
    """Accuracies, or those of a control, by split and client, and seed."""
    found: dict[Pair, float] = {}
    for (split, seed), summary in runs:
        clients = summary["clients"]
        values = [client["accuracy"] for client in clients]
        if control is not None:
            values = summary.get("controls", {}).get(control, {}).get("clients", [])
        for client, value in zip(clients, values, strict=False):
            found[(split, client["name"]), seed] = value
    return found
