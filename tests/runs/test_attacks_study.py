"""How attacks are told apart: `recipes.attacks`."""

import csv
from pathlib import Path

import numpy as np
import pytest
import scipy
from recipes.attacks.judge import Results, interval, judge
from recipes.attacks.page import main
from recipes.attacks.settings import AIMED, ATTACKS, METHODS, RULES, SHARES, SPLITS, STAGES, Asked, asked
from recipes.attacks.study import NUMBERS

ROOT = Path(__file__).parents[2]
LOSS = {"sign-flip": 0.5, "backdoor": 0.1}


def written(folder: Path) -> Path:
    """Lines of a study in which two attacks cost something, and only "median" helps."""
    rng = np.random.default_rng(0)
    rows = []
    cells = [("none", 0.0, rule) for rule in RULES]
    cells += [(attack, share, rule) for attack in ATTACKS for share in SHARES for rule in RULES]
    cells += [(attack, 0.0, "average") for attack in AIMED]
    for method in METHODS:
        for attack, share, rule in cells:
            for split in SPLITS:
                honest = 0.9 - 0.01 * np.arange(4) + 0.001 * split
                lost = 0.0 if rule == "median" else LOSS.get(attack, 0.0) * share
                own = [f"{value - lost + 1e-4 * rng.normal():.6f}" for value in honest]
                bad = [split % 4] if share else []
                kept = [float(value) for number, value in enumerate(own) if number not in bad]
                shown = ["-" if number in bad else value for number, value in enumerate(own)]
                success = f"{share + 0.01 * rng.normal():.6f}" if attack in AIMED else "nan"
                key = [method, attack, f"{share:g}", rule, split]
                rows.append([*key, f"{np.mean(kept):.6f}", success, " ".join(map(str, bad)), " ".join(shown)])
    path = folder / "attacks.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[*Asked.COLUMNS, *NUMBERS], *rows])
    return path


def test_the_runs_are_all_different_and_small_as_a_toy() -> None:
    whole = [run for shares in STAGES for run in asked(shares, device="cpu", toy=False)]
    n_cells = len(ATTACKS) * len(SHARES) * len(RULES) + len(RULES)
    assert len({run.key for run in whole}) == len({run.trial.name for run in whole}) == len(whole)
    assert len(whole) == len(METHODS) * len(SPLITS) * n_cells
    toy = [run for shares in STAGES for run in asked(shares, device="cpu", toy=True)]
    assert {run.key for run in toy} <= {run.key for run in whole}
    assert all(run.trial.config.federation.rounds == 2 for run in toy)


def test_what_nobody_attacked_is_of_the_clients_that_are_honest_under_an_attack(tmp_path: Path) -> None:
    results = Results(written(tmp_path))
    for split in SPLITS:
        expected = np.mean([0.9 - 0.01 * number + 0.001 * split for number in range(4) if number != split % 4])
        assert results.unharmed("fedotp", "scaled", 0.2)[split, 0] == pytest.approx(expected, abs=1e-3)
    assert len(results.accuracy("fedotp", "scaled", 0.2, "krum")) == len(SPLITS)


def test_intervals_are_students_and_families_are_holms() -> None:
    values = [0.1, 0.3, 0.2, 0.25]
    mean, half = interval({(split, 0): value for split, value in enumerate(values)})
    low, high = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high))
    ours = {(split, 0): value for split, value in enumerate([0.01, 0.03, 0.04, 0.02, 0.05])}
    zero = dict.fromkeys(ours, 0.0)
    p = scipy.stats.ttest_1samp(list(ours.values()), 0).pvalue
    assert 0.05 / 10 < p < 0.05
    assert judge([(ours, zero)])[0].apart
    assert not any(told.apart for told in judge([(ours, zero)] * 10))


def test_the_page_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "attacks.md"
    page.write_text((ROOT / "docs" / "attacks.md").read_text())
    monkeypatch.setattr("sys.argv", ["page", str(written(tmp_path)), str(page)])
    main()
    text = page.read_text()
    (harmed,) = [line for line in text.splitlines() if line.startswith("- **FedOTP without a rule**")]
    assert "8 of 20 attacks cost accuracy" in harmed
    assert "the worst, sign-flip from 40 %, costs 20.0 points" in harmed
    (helped,) = [line for line in text.splitlines() if line.startswith("| `median`")]
    assert [cell.strip() for cell in helped.split("|")][2:4] == ["8", "0"]
    assert [cell.strip() for cell in helped.split("|")][5:7] == ["8", "0"]
    _, row = (line for line in text.splitlines() if line.startswith("| FedOTP, sign-flip"))
    assert row.count("▲") == 1
    assert (tmp_path / "attacks-tables.csv").read_text().count("better") == 2 * 8
    main()
    assert page.read_text() == text
