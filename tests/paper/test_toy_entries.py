"""Every entry of the paper, for one round at toy size: its first data set and last method, from files to the table."""

from dataclasses import replace
from pathlib import Path

import pytest
from toy import Toy

from fedotp.paper import ENTRIES, Result, by_part, draw, missing_inputs, trials_of
from fedotp.runs.many import run_many


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(tmp_path_factory.mktemp("toy"))


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_runs(name: str, toy: Toy, tmp_path: Path) -> None:
    whole = ENTRIES[name]
    entry = replace(whole, parts=whole.parts[:1]).only([*whole.methods][-1:])
    (part,) = entry.parts
    changes = toy.changes(part.config())
    trials = trials_of(entry, [0], changes=changes)
    assert len(trials) == len(entry.methods)
    assert missing_inputs(trial.config for trial in trials) == []
    outcomes = run_many(trials, toy.folder / "runs")  # entries share runs
    assert [outcome.error for outcome in outcomes] == [""] * len(trials)
    made = by_part(entry, outcomes)
    result = Result.of(entry, made)
    assert len(result.all_lines) == len(part.cells) * len(entry.methods)
    assert all(line.mean is not None for line in result.all_lines)
    assert all(path.is_file() for path in result.save(tmp_path))
    figures = draw(entry, made, tmp_path, changes)
    assert bool(figures) == (entry.drawing is not None)
    assert sorted(tmp_path.glob("*.png")) == sorted(figures)
