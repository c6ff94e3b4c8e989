"""Controls in tables: what each scored, and which methods are not above them.

Three are in the summary of every simulated run, scored on the same images: the majority class of each client, zero-shot
CLIP, and the method's global part alone. The fourth, the method trained on shuffled labels, is a run of its own.

A method and its controls are paired over clients: each client of each split, mean over seeds, is a unit. So one run is
enough to tell whether a method is above them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedotp.runs._paired import Difference, Pair, paired

if TYPE_CHECKING:  # they know torch, which whoever looks at a run need not wait for
    from fedotp.config import Config
    from fedotp.runs._trial_run import Outcome

CONTROLS = {
    "majority": "majority class",
    "zero_shot": "zero-shot CLIP",
    "global_part": "its global part alone",
    "shuffled": "itself on shuffled labels",
}
"""What they are called, by their keys in a summary."""
MARK = "(!)"

Summary = Mapping[str, Any]
Numbered = tuple[tuple[int, int], Summary]
"""Split and seed of a run, and its summary."""


@dataclass(frozen=True)
class Check:
    """How much a method is above a control, over clients."""

    control: str
    difference: Difference

    @property
    def is_passed(self) -> bool:
        """Whether it is above, beyond chance where that can be told."""
        return self.difference.is_above if self.difference.low is not None else self.difference.mean > 0

    def sentence(self, name: str) -> str:
        """Why the method called `name` is marked."""
        found = self.difference
        interval = (
            "one client, no interval"
            if found.low is None or found.high is None
            else f"95 % interval {100 * found.low:+.2f} to {100 * found.high:+.2f} over {found.groups} clients"
        )
        return f"{MARK} {name} is not above {CONTROLS[self.control]}: {100 * found.mean:+.2f} points, {interval}."


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
    return [(_split_and_seed(outcome.trial.config), outcome.directory.summary) for outcome in ended]


def _split_and_seed(config: "Config") -> tuple[int, int]:
    return config.partition.seed, config.seed


def control_accuracies(outcomes: "Sequence[Outcome]", control: str) -> list[float]:
    """What a control scored on each split with each seed, in any of the runs, which are on the same images."""
    found = {
        number: summary["controls"][control]["accuracy"]
        for number, summary in complete(outcomes)
        if control in summary.get("controls", {})
    }
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
