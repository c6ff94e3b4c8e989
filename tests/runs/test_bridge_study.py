"""The study of what the authors' code does otherwise: its trials, its effects, and the page they stand in."""

import csv
import re
from pathlib import Path

import pytest
import scipy
from recipes.bridge.settings import OURS as OURS_
from recipes.bridge.settings import SETTINGS, Change, Setting, trials
from recipes.bridge.study import FIELDS, main
from recipes.bridge.tables import EFFECTS, MARK, NOT_RUN, NUMBERS, PAGE, TEMPLATE, adjusted, effect, filled, read, shown

from fedotp.config import difference

OURS = [0.90, 0.92, 0.91, 0.95] * 3
HALF = [0.91, 0.92, 0.93, 0.95] * 3


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Twelve splits of one seed."""
    path = tmp_path / "bridge.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for change, values in {"ours": OURS, "half": HALF}.items():
            writer.writerows(["some", change, s, 7, value, value - 0.01, ""] for s, value in enumerate(values))
        writer.writerows(["classes", "ours", split, 0, 0.5 + split / 10, 0.5, ""] for split in range(12))
        writer.writerow(["split2023", "fixed", 2023, 0, 0.7, 0.7, ""])
    return path


def test_an_effect_is_the_paired_difference(numbers: Path) -> None:
    found = read(numbers)
    one = effect(found.accuracy, "some/half")
    right = scipy.stats.ttest_rel(HALF, OURS)
    assert one is not None
    assert one.mean == pytest.approx(0.0075)
    assert [one.low, one.high] == pytest.approx([*right.confidence_interval(0.95)])
    assert shown(one) == "+0.75 ±0.55"
    page = filled(
        "{{some/half}} {{mean some/ours}} {{reported some/ours}} {{some/leak}} {{last five some/half}}", found
    )
    told = shown(one, told_apart=True)
    assert page == f"{told} 92.00 −1.00 ±0.00 {NOT_RUN} {told}"
    smaller = scipy.stats.ttest_1samp([0.2 - split / 10 for split in range(12)], 0).pvalue  # of the other comparison
    assert smaller < right.pvalue < 2 * smaller
    assert adjusted(found.accuracy) == dict.fromkeys(["some/half", "split2023/fixed"], pytest.approx(2 * smaller))


def test_the_split_that_never_changes_stands_beside_all_others(numbers: Path) -> None:
    one = effect(read(numbers).accuracy, "split2023/fixed")
    assert one is not None
    assert (one.mean, one.groups) == (pytest.approx(0.2 - 0.55), 12)


def test_of_few_runs_nothing_is_told(numbers: Path) -> None:
    lines = numbers.read_text().splitlines(keepends=True)
    numbers.write_text("".join(lines[:1] + lines[2:]))  # one of them is missing
    assert shown(effect(read(numbers).accuracy, "some/half")).endswith(MARK)
    numbers.write_text("".join(lines[:1] + lines[8:]))  # five are left
    assert effect(read(numbers).accuracy, "some/half") is None


def test_the_page_is_what_the_numbers_make_of_it() -> None:
    assert PAGE.read_text() == filled(TEMPLATE.read_text(), read())
    assert EFFECTS.is_file() == NUMBERS.is_file()


def test_every_place_of_the_page_is_a_change_of_the_study_and_every_change_is_in_it() -> None:
    named = set(re.findall(r"\{\{(?:mean |last five |reported )?([\w/]+)\}\}", TEMPLATE.read_text()))
    known = {f"{setting}/{change}" for setting, it in SETTINGS.items() for change in it.changes}
    assert named <= known
    assert known - named <= {"some/promptfl", "some/fedprox", "some/coop", "some/reg", "some/mass1"}  # references


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_change_changes_something_on_the_same_splits_and_seeds(setting: str) -> None:
    made = trials(setting)
    by_change: dict[str, list[tuple[int, int]]] = {}
    configs = {}
    for trial in made:
        by_change.setdefault(trial.labels["change"], []).append((trial.config.partition.seed, trial.config.seed))
        configs[trial.labels["change"]] = trial.config
    assert len({tuple(pairs) for pairs in by_change.values()}) == 1
    assert len(made) == len({trial.name for trial in made})
    for change, what in SETTINGS[setting].changes.items():
        if change != what.against and what.against in configs:
            assert difference(configs[change], configs[what.against])


def test_it_runs_and_goes_on(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (f"data.dataset={inputs / 'data'}", f"data.store={inputs / 'store'}")
    rest = (f"backbone.name={inputs / 'tiny.safetensors'}", "partition.n_clients=2", "prompt.n_ctx=2")
    few = Setting("demo", (*data, *rest), {OURS_: Change(()), "all": Change(("bridge=authors",))}, splits=(0,))
    monkeypatch.setitem(SETTINGS, "few", few)
    words = ["study", str(tmp_path / "runs"), str(tmp_path / "out.csv"), "--settings", "few", "--toy"]
    monkeypatch.setattr("sys.argv", [*words, "--device", "cpu"])
    main()
    found = read(tmp_path / "out.csv").accuracy
    assert {name: list(series) for name, series in found.items()} == {"few/ours": [(0, 0)], "few/all": [(0, 0)]}
    monkeypatch.setattr("fedotp.runs.one._loop.Loop.go", lambda *_: pytest.fail("what is complete is kept"))
    main()
    assert read(tmp_path / "out.csv").accuracy == found


def test_at_least_twelve_runs_of_each() -> None:
    for name, setting in SETTINGS.items():
        assert len(setting.splits) * len(setting.seeds) >= 12 or name == "split2023"
