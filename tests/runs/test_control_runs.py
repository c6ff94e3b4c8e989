"""Controls of runs: in every summary, as runs of their own, and in tables, where a method not above them is marked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from toy_run import make_config

import fedotp
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import Outcome, Trial, by_method, run_many
from fedotp.runs.one import prepare
from fedotp.runs.tables import Table, check_run, check_runs, open_checks
from invented_run import invent_run

QUICK = {"federation": {"rounds": 1, "holdout_clients": 0}, "evaluation": {"every": 0}}


def test_every_summary_has_them(inputs: Path, tmp_path: Path) -> None:
    run = fedotp.run(make_config(inputs, **QUICK), tmp_path / "run")
    summary = run.summary
    both = {f"{model}{prior}" for model in ("zero_shot", "global") for prior in ("", "_prior")}
    assert summary["controls"].keys() == {"majority", *both}
    for found in (summary["with_prior"], *summary["controls"].values()):
        assert len(found["clients"]) == len(summary["clients"])
        assert found["accuracy"] == pytest.approx(np.mean(found["clients"]))
    captions = fedotp.run(make_config(inputs, **QUICK, method={"name": "zeroshot"}), tmp_path / "captions").summary
    assert summary["controls"]["zero_shot"]["accuracy"] == captions["final"]["accuracy"]


def test_shuffled_labels_are_a_setting_that_stays(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, **QUICK, data={"labels": "shuffled"})
    assert config.title == "FedOTP, shuffled labels"
    run = fedotp.run(config, tmp_path / "run")
    assert 'labels = "shuffled"' in (run.path / "config.toml").read_text()
    assert run.summary["method"] == run.manifest["method"]["title"] == "FedOTP, shuffled labels"
    true, wrong = prepare(make_config(inputs, **QUICK)), prepare(run.config, like=RunDirectory.open(run.path))
    assert not np.array_equal(true.data.train.labels, wrong.data.train.labels)
    np.testing.assert_array_equal(true.data.test.labels, wrong.data.test.labels)
    with pytest.raises(FedotpError, match=r'data.labels = "wrong": must be true or shuffled'):
        make_config(inputs, data={"labels": "wrong"})


def summary_of(own: list[float], **controls: list[float]) -> dict[str, Any]:
    return {
        "clients": [{"name": f"client {i}", "accuracy": accuracy} for i, accuracy in enumerate(own)],
        "controls": {name: {"accuracy": float(np.mean(v)), "clients": v} for name, v in controls.items()},
    }


@pytest.mark.parametrize(
    ("control", "times", "above", "how"),
    [  # `above` is by how much four clients, each `times` over, are above the control on average
        ("zero_shot", 1, +0.025, None),
        ("majority", 1, +0.025, None),
        ("global", 1, -0.025, None),
        ("zero_shot", 2, +0.025, None),
        ("zero_shot", 2, -0.025, "no better"),
        ("majority", 2, +0.025, "not significantly better"),
        ("majority", 2, -0.025, "no better"),
        ("majority", 1, -0.8, "worse"),
    ],
)
def test_a_run_is_flagged_where_enough_clients_say_that_something_is_wrong(
    control: str, times: int, above: float, how: str | None
) -> None:
    own = [0.6, 0.7, 0.9, 0.5] * times
    theirs = [value - above - noise for value, noise in zip(own, [0.075, -0.125, 0.075, -0.025] * times, strict=True)]
    test = scipy.stats.ttest_rel(own, theirs)
    low, high = (100 * end for end in test.confidence_interval())
    ci = f"95 % CI {max(low, -100):+.2f} to {high:+.2f}"
    (check,) = check_run(summary_of(own, **{control: theirs}))
    assert (check.is_flagged, check.is_open) == (how is not None, how is None)
    called = {"majority": "majority class", "zero_shot": "zero-shot CLIP", "global": "its global part alone"}
    if how:
        line = f"(!) FedOTP is {how} than {called[control]}: {100 * above:+.2f} points ({ci}, {4 * times} clients)."
        assert check.sentence("FedOTP") == line
    else:
        over = "over" if above > 0 else "against"
        few = "4 clients are too few to be sure" if times == 1 else "not significant with 8 clients"
        line = f"FedOTP: {100 * above:+.2f} points {over} {called[control]} ({ci}); {few}."
        assert open_checks({"FedOTP": [check]}) == [line]


def test_a_few_clients_are_one_neutral_line_within_what_is_possible() -> None:
    """Two clients, one far better and one far worse: Student's interval is wider than accuracies can differ."""
    checks = check_run(summary_of([0.9, 0.5], majority=[0.3, 0.48], zero_shot=[0.8, 0.1], **{"global": [0.1, 0.2]}))
    assert checks[0].difference.low is not None
    assert checks[0].difference.low < -1
    (line,) = open_checks({"FedOTP": checks, "CoOp": checks[:1]})
    assert line == (
        "FedOTP: +31.00 points over majority class (95 % CI -100.00 to +100.00), +25.00 points over zero-shot CLIP "
        "(95 % CI -100.00 to +100.00), +55.00 points over its global part alone (95 % CI -100.00 to +100.00); "
        "CoOp: +31.00 points over majority class (95 % CI -100.00 to +100.00); 2 clients are too few to be sure."
    )
    alone = check_run(summary_of([0.6], majority=[0.5]))
    assert open_checks({"A": alone}) == ["A: +10.00 points over majority class; 1 client is too few to be sure."]
    above = check_run(summary_of([0.9, 0.8, 0.85], zero_shot=[0.3, 0.2, 0.26]))
    assert (above[0].is_flagged, above[0].is_open, open_checks({"A": above})) == (False, False, [])


def test_clients_of_several_splits_are_units_and_seeds_are_not() -> None:
    draws = np.random.default_rng(0).random((2, 3, 2, 4))  # whose, splits, seeds, clients
    runs = [
        ((split, seed), summary_of(draws[0, split, seed].tolist(), majority=draws[1, split, seed].tolist()))
        for split in range(3)
        for seed in range(2)
    ]
    (check,) = check_runs(runs)
    units = (draws[0] - draws[1]).mean(1).ravel()
    test = scipy.stats.ttest_1samp(units, 0)
    assert (check.difference.pairs, check.difference.groups) == (24, 12)
    assert check.difference.mean == pytest.approx(units.mean())
    assert (check.difference.low, check.difference.high) == pytest.approx(tuple(test.confidence_interval()))


def test_the_table_shows_controls_and_marks_who_is_not_above_them(inputs: Path, tmp_path: Path) -> None:
    """On labels that mean nothing no method can be above the majority; what is trained on them is its own control."""
    trials = by_method(make_config(inputs, **QUICK), ["fedotp", "zeroshot"], [0], controls=True)
    outcomes = run_many(trials, tmp_path)
    table = Table.of(outcomes)
    assert [row.labels for row in table.rows] == [("FedOTP",), ("Zero-shot CLIP",)]
    assert [row.labels[0] for row in table.controls] == [
        "majority class",  # zero-shot has a row already
        "global part of FedOTP",
        "FedOTP, shuffled labels",
    ]
    summary = outcomes[0].directory.summary
    accuracy = [row.cells["accuracy"].mean for row in table.controls[:2]]
    assert accuracy == [summary["controls"][name]["accuracy"] for name in ("majority", "global")]
    checks = {check.control: check for check in table.rows[0].checks}
    assert checks.keys() == {"majority", "zero_shot", "global", "zero_shot_prior", "global_prior", "shuffled"}
    assert [check.control for check in table.rows[1].checks] == ["majority"]
    csv, markdown = (path.read_text() for path in table.save(tmp_path))
    for row in table.rows:
        for check in row.flagged:
            assert check.sentence(row.called) in table.warnings
            assert check.sentence(row.called) in markdown
        assert (f"| {row.called} (!) |" in markdown) == bool(row.flagged)
    assert all(sentence in markdown for sentence in table.notes)
    not_above = [check.control for check in table.rows[0].checks if not check.difference.is_above]
    assert not_above  # a random tower
    assert csv.splitlines()[1].endswith(" ".join(not_above))
    assert csv.splitlines()[3].startswith("control: majority class,1,")


def test_runs_of_real_sites_and_simulated_ones_are_no_pairs(tmp_path: Path) -> None:
    simulated = [invent_run(tmp_path / f"s{split}", split=split) for split in range(2)]
    sites = [invent_run(tmp_path / f"r{split}", split=split, method="coop", share="scores") for split in range(2)]
    alike = [invent_run(tmp_path / f"c{split}", split=split, method="coop") for split in range(2)]
    for others, n in ((sites, 0), (alike, 1)):
        outcomes = [Outcome(Trial(run.path.name, {"method": run.config.title}, run.config), run) for run in simulated]
        outcomes += [Outcome(Trial(run.path.name, {"method": "other"}, run.config), run) for run in others]
        assert len(Table.of(outcomes).differences.lines()) == n
