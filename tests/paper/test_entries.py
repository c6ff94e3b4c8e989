"""The declarations of the paper's tables and figures."""

from pathlib import Path

import pytest

from fedotp.config import load_config
from fedotp.errors import FedotpError
from fedotp.methods import FedOTP
from fedotp.methods._promptfl import CoOp
from fedotp.paper import ENTRIES, Cell, numbers, trials_of

NAMES = list(ENTRIES)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_sound(name: str) -> None:
    """Every number of the paper has its runs; no cell is declared twice, or in vain."""
    entry = ENTRIES[name]
    declared = [
        Cell(row, part.dataset, setting) for part in entry.parts for setting in part.cells for row in entry.methods
    ]
    if numbers(name):
        assert len(set(declared)) == len(declared)
        assert set(declared) == numbers(name).keys()
    trials = trials_of(entry, [0])
    assert len({trial.name for trial in trials}) == len(trials) == len(entry.parts) * len(entry.methods)
    assert entry.against in entry.methods or not entry.methods
    page = (Path(__file__).parents[2] / "docs/paper.md").read_text()
    sizes = f"{len(numbers(name)) or '-'} | {3 * len(trials)}"
    assert f"| `{name}` | {entry.title} | {sizes} | " in page


def test_entries_share_runs() -> None:
    """Runs of several entries have the same place where they are the same run, and only there."""
    places: dict[str, object] = {}
    n_trials = 0
    for entry in ENTRIES.values():
        for trial in trials_of(entry, [0]):
            n_trials += 1
            assert places.setdefault(trial.name, trial.config) == trial.config
    assert len({str(config) for config in places.values()}) == len(places)
    assert len(places) < n_trials


def test_settings_are_the_papers() -> None:
    fewer = {t.name: t.config for t in trials_of(ENTRIES["table1"], [0])}
    config = fewer["fewshot-pets,partition.shots=4/fedotp,seed=0"]
    assert config == load_config("fewshot-pets").override(["partition.shots=4"])
    masses = {t.config.method.mass for t in trials_of(ENTRIES["tableA4"], [0])}
    assert masses == {0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    alphas = {part.config().partition.alpha for part in ENTRIES["tableA5"].parts}
    assert alphas == {0.1, 0.3, 0.5, 1.0, 5.0, 10.0}
    rules = [t.config.method.rule for t in trials_of(ENTRIES["table4"].only(["Food101, 2 shots"]), [0])]
    assert rules == ["average", "classical", "unbalanced"]


def test_only() -> None:
    entry = ENTRIES["table1"].only(["oxfordpets", "DTD", "fedotp", "CoOp"])
    assert [part.dataset for part in entry.parts] == ["DTD", "OxfordPets"]
    assert list(entry.methods) == ["CoOp", "FedOTP (Ours)"]
    assert entry.against == "FedOTP (Ours)"
    assert ENTRIES["table1"].only(["promptfl", "coop"]).against == "CoOp"  # the first that is left
    assert ENTRIES["tableA4"].only(["DTD, 1 shot"]).parts[0].title == "DTD, 1 shot"
    assert len(ENTRIES["tableA4"].only(["DTD"]).parts) == 5


def test_settings_for_all_runs() -> None:
    """Those of the method are for the methods that have them, and a change counts more than the preset."""
    entry = ENTRIES["table3"].only(["CIFAR-10"])
    trials = trials_of(entry, [3], changes=["method.reg=0.01", "optimizer.lr=0.5", "prompt.n_ctx=4"])
    by_name = {trial.config.method.name: trial.config for trial in trials}
    assert by_name["fedotp"].method == FedOTP(reg=0.01, mass=0.8)
    assert by_name["coop"].method == CoOp()
    assert {(c.optimizer.lr, c.prompt.n_ctx, c.seed) for c in by_name.values()} == {(0.5, 4, 3)}
    with pytest.raises(FedotpError, match=r"method\.nass"):
        trials_of(entry, [0], changes=["method.nass=1"])
