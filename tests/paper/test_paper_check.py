"""Entries at toy size: each with its first data set and last method here, whole by `fedotp paper check`."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedotp.paper import ENTRIES, Entry, Part, check
from fedotp.paper import _toy as checking


def few(entry: Entry) -> Entry:
    return replace(entry, parts=entry.parts[:1]).only([*entry.methods][-1:])


def test_every_entry_runs(tmp_path: Path) -> None:
    wanted = [few(entry) for entry in ENTRIES.values()]
    found = list(check(wanted, tmp_path))
    assert [checked.entry for checked in found] == wanted
    for checked in found:
        entry = checked.entry
        assert not checked.error
        assert checked.runs == len(entry.methods)
        assert checked.cells == sum(len(part.cells) for part in entry.parts) * len(entry.methods)
        assert bool(checked.figures) == (entry.drawing is not None)
        assert len(list(tmp_path.glob(f"{entry.name}-*.png"))) == checked.figures
        assert (tmp_path / f"{entry.name}.csv").is_file()


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"parts": (Part("Office-Caltech10", "office", cells={"Mars": "accuracy_mars"}),)}, "no number for FedOTP"),
        (
            {"parts": (Part("Office-Caltech10", "office", ("partition.n_clients=5",)),)},
            "5 clients do not divide evenly",
        ),
        ({"methods": {"FedOTP (Ours)": "fedotp:mass=2"}}, "--methods fedotp:mass=2: method.mass = 2"),
    ],
)
def test_what_does_not_work_is_told(tmp_path: Path, broken: dict[str, object], why: str) -> None:
    """And the next entry is run nevertheless."""
    entry = few(ENTRIES["tableA3"])
    first, second = check([replace(entry, **broken), few(ENTRIES["figureA2"])], tmp_path)
    assert why in first.error
    assert not second.error


def test_a_figure_that_is_not_drawn_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "draw", lambda *_: [])
    (found,) = check([few(ENTRIES["figureA2"])], tmp_path)
    assert found.error == "nothing was drawn"
