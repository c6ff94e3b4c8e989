"""Which runs a comparison or a sweep is made of, and the table they end in."""

import csv
from pathlib import Path

import pytest
import scipy

from fedotp.config import Config, DataSettings, load_config
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import Outcome, Trial, by_grid, by_method
from fedotp.runs.tables import Table

CONFIG = Config(DataSettings("oxford_pets")).override(["method.reg=0.01", "partition.seed=7", "seed=5"])


def test_methods_are_named_by_what_they_change() -> None:
    trials = by_method(CONFIG, ["fedotp", "fedotp:rule=classical:mass=0.50", "coop:optimizer.lr=1e-2"], [0, 3])
    assert [trial.name for trial in trials] == [
        "fedotp,seed=0",
        "fedotp,seed=3",
        "fedotp,rule=classical,mass=0.5,seed=0",
        "fedotp,rule=classical,mass=0.5,seed=3",
        "coop,optimizer.lr=0.01,seed=0",
        "coop,optimizer.lr=0.01,seed=3",
    ]
    assert trials[2].labels == {"method": "FedOTP, rule=classical, mass=0.5"}
    assert trials[3].config == CONFIG.override(["method.rule=classical", "method.mass=0.5", "seed=3"])
    assert {trial.config.partition.seed for trial in trials} == {7}  # one split
    assert [trial.config.seed for trial in trials] == [0, 3] * 3


def test_every_method_has_its_own_rate_unless_one_is_given() -> None:
    methods = ["fedotp", "pfedmoap", "fedclip", "fedpha:optimizer.lr=0.02"]
    expected = {
        "demo": [("sgd", 0.1), ("sgd", 0.003), ("adam", 0.01), ("sgd", 0.02)],
        "demo-sites": [("sgd", 0.5), ("sgd", 0.003), ("adam", 0.01), ("sgd", 0.02)],
        "fewshot-pets": [("sgd", 0.001), ("sgd", 0.002), ("adam", 5e-5), ("sgd", 0.02)],
        "novel-flip": [("sgd", 0.002), ("sgd", 0.002), ("adam", 0.002), ("sgd", 0.02)],
    }
    for preset, optimizers in expected.items():
        used = [trial.config.settings.optimizer for trial in by_method(load_config(preset), methods, [0])]
        assert [(each.name, each.lr) for each in used] == optimizers
    changes = ["optimizer.lr=0.1", "optimizer.name=sgd"]
    for trial in by_method(load_config("demo"), methods[:3], [0], changes=changes):
        assert (trial.config.settings.optimizer.name, trial.config.settings.optimizer.lr) == ("sgd", 0.1)


def test_a_grid_is_all_combinations() -> None:
    trials = by_grid(CONFIG, ["method.mass=0.5,1", "data.template=none of {}"], [5])
    assert [trial.labels for trial in trials] == [
        {"method.mass": mass, "data.template": "none of {}"} for mass in ("0.5", "1.0")
    ]
    assert [trial.config.method for trial in trials] == [
        CONFIG.override([f"method.mass={mass}"]).method for mass in (0.5, 1)
    ]


def test_directories_have_names_that_file_systems_take_and_that_differ() -> None:
    names = [trial.name for trial in by_grid(CONFIG, ["backbone.name=ViT-B/16,ViT-B:16,ViT-B-16"], [0])]
    assert len(set(names)) == 3
    assert names[2] == "backbone.name=ViT-B-16,seed=0"
    assert all(name.startswith("backbone.name=ViT-B-16") and "/" not in name and ":" not in name for name in names)
    (long,) = by_grid(CONFIG, [f"data.root={'x' * 1000}"], [0])
    assert len(long.name) < 150


def test_splits_are_runs_of_their_own(tmp_path: Path) -> None:
    trials = by_method(CONFIG, ["fedotp", "coop"], [0, 1], [7, 8])
    assert [trial.name for trial in trials[:4]] == [
        "fedotp,seed=0",  # on the configuration's own split: the runs of a table without other splits
        "fedotp,seed=1",
        "fedotp,split=8,seed=0",
        "fedotp,split=8,seed=1",
    ]
    assert trials[:2] == by_method(CONFIG, ["fedotp"], [0, 1])
    assert [(trial.config.partition.seed, trial.config.seed) for trial in trials[4:]] == [
        (7, 0),
        (7, 1),
        (8, 0),
        (8, 1),
    ]
    swept = by_grid(CONFIG, ["method.mass=0.5"], [5], [8])
    assert [(trial.name, trial.config.partition.seed) for trial in swept] == [("method.mass=0.5,split=8,seed=5", 8)]
    with pytest.raises(FedotpError, match="cannot be combined with --splits"):
        by_grid(CONFIG, ["partition.seed=0,1"], [5], [8])


def test_the_authors_settings_are_each_methods_own() -> None:
    """As if each had been asked for alone; settings beside the word win for methods that have them."""
    methods = {"coop": [], "fedotp": [], "promptfl-fedprox": ["optimizer.momentum=0.5"]}
    beside = ["bridge=authors", "authors.leaked_momentum=false"]
    for base in (CONFIG, CONFIG.override(["method.name=promptfl-fedprox"])):
        trials = by_method(base, [":".join([name, *own]) for name, own in methods.items()], [5], changes=beside)
        for trial, (name, own) in zip(trials, methods.items(), strict=True):
            assert trial.config == base.override([f"method.name={name}", *own, *beside])
    assert [trial.config.authors.evaluate_sampled for trial in trials] == [True, False, True]
    assert {trial.config.authors.leaked_momentum for trial in trials} == {False}
    assert {trial.config.authors.partition for trial in trials} == {True}


def test_the_authors_settings_are_no_axis_of_a_grid() -> None:
    trials = by_grid(CONFIG, ["method.name=fedotp,coop"], [5], changes=["bridge=authors"])
    assert [trial.config for trial in trials] == [
        CONFIG.override([f"method.name={name}", "bridge=authors"]) for name in ("fedotp", "coop")
    ]
    with pytest.raises(FedotpError, match=r"^--grid bridge=authors: unknown key bridge"):
        by_grid(CONFIG, ["bridge=authors"], [0])
    with pytest.raises(FedotpError, match=r'^--set: bridge = "author": must be authors'):
        by_grid(CONFIG, ["method.mass=0.5"], [0], changes=["bridge=author"])


def outcome(folder: Path, label: str, seed: int, accuracy: float | None, changes: tuple[str, ...] = ()) -> Outcome:
    path = folder / f"{label.replace('|', '')}{seed}{','.join(changes)}"
    path.mkdir()
    if accuracy is not None:
        summary = {
            "best": {"accuracy": 0.875},
            "last_five": {"accuracy": 0.75},
            "final": {"accuracy": accuracy, "accuracy_worst_decile": 0.25, "macro_f1": 0.5},
            "optimizer": {"name": "sgd", "lr": 0.1},
            "communication": {"bytes_up": 1024, "bytes_down": 1024},
            "seconds": {"train": 2.0, "evaluate": 1.0},
            "clients": [{"name": "one", "accuracy": accuracy}],
            "domains": {"clip_art": {"accuracy": accuracy}},
            "joined": {"accuracy": 0.125},
        }
        RunDirectory(path).save_summary(summary)
    config = CONFIG.override([f"seed={seed}", *changes])
    return Outcome(Trial(path.name, {"method": label}, config), RunDirectory(path))


def test_the_table_has_a_row_for_all_runs_of_a_method(tmp_path: Path) -> None:
    outcomes = [outcome(tmp_path, "A|B", seed, accuracy) for seed, accuracy in enumerate((0.25, 0.5, 0.75, None))]
    table = Table.of([*outcomes, outcome(tmp_path, "C", 0, None), outcome(tmp_path, "D", 0, 1.0)])
    csv, markdown = (path.read_text() for path in table.save(tmp_path))
    assert csv == (
        "method,runs,accuracy_mean,accuracy_std,balanced_accuracy_mean,balanced_accuracy_std,with_prior_mean,"
        "with_prior_std,best_mean,best_std,last_five_mean,last_five_std,worst_decile_mean,worst_decile_std,"
        "macro_f1_mean,macro_f1_std,"
        "lr_mean,lr_std,bytes_mean,bytes_std,seconds_mean,seconds_std,joined_accuracy_mean,joined_accuracy_std,"
        "accuracy_clip_art_mean,accuracy_clip_art_std,personal_last_mean,personal_last_std,"
        "personal_best_mean,personal_best_std,personal_last_five_mean,personal_last_five_std,"
        "against,difference,difference_low,difference_high,difference_p,difference_p_holm,pairs,splits,"
        "not_above\n"
        "A|B,3,0.5,0.25,,,,,0.875,0.0,0.75,0.0,0.25,0.0,0.5,0.0,0.1,0.0,2048.0,0.0,2.0,0.0,0.125,0.0,0.5,0.25,"
        "0.5,0.25,0.875,0.0,0.75,0.0,,,,,,,,,\n"
        "C,0,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n"
        "D,1,1.0,,,,,,0.875,,0.75,,0.25,,0.5,,0.1,,2048.0,,2.0,,0.125,,1.0,,1.0,,0.875,,0.75,,A|B,0.75,,,,,1,1,\n"
        "control: majority class,0,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n"
        "control: zero-shot CLIP,0,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n"
    )
    assert markdown.splitlines()[2:5] == [
        "| A\\|B | 3 of 4 | 50.00 ± 25.00 | - | - | 87.50 | 75.00 | 25.00 | 50.00 | 0.1 | 2.0 KiB | 2.0 | 12.50 ± 0.00 "
        "| 50.00 ± 25.00 |",
        "| C | 0 of 1 | - | - | - | - | - | - | - | - | - | - | - | - |",
        "| D | 1 | 100.00 | - | - | 87.50 | 75.00 | 25.00 | 50.00 | 0.1 | 2.0 KiB | 2.0 | 12.50 | 100.00 |",
    ]
    assert markdown.splitlines()[-3:] == [
        "| D | +75.00 | - | 1 | inconclusive: only one pair |",
        "",
        "One pair of runs is not enough for an interval: use several splits (--splits).",
    ]


def test_views_are_lines_of_last_best_and_mean_of_five(tmp_path: Path) -> None:
    def viewed(seed: int, by: float) -> Outcome:
        made = outcome(tmp_path, "A", seed, 0.5 + by)
        over_rounds = {"last": 0.25 + by, "best": 0.5 + by, "last_five": 0.375 + by}
        more = {
            "best": {"accuracy": 0.75 + by, "round": 3},
            "last_five": {"accuracy": 0.625 + by, "evaluations": 5},
            "views": [
                {"view": "base", "model": "personal", **over_rounds},
                {"view": "novel", "model": "global", **over_rounds},
            ],
            "base_to_novel": {"personal": dict.fromkeys(("local", "base", "novel", "hm", "hm3", "cm"), over_rounds)},
        }
        made.directory.save_summary({**made.directory.summary, **more})
        return made

    table = Table.of([viewed(0, 0.0), viewed(1, 0.125), outcome(tmp_path, "B", 0, 0.5)])
    assert table.views == ("personal", "base", "novel, global part", "HM", "HM3", "CM")
    personal, of_global_part = table.view_tables()
    assert [line[:4] for line in personal.lines] == [
        ["A", "last", "56.25 ± 8.84", "31.25 ± 8.84"],
        ["A", "best", "81.25 ± 8.84", "56.25 ± 8.84"],
        ["A", "last 5", "68.75 ± 8.84", "43.75 ± 8.84"],
        ["B", "last", "50.00", "-"],
        ["B", "best", "87.50", "-"],
        ["B", "last 5", "75.00", "-"],
    ]
    assert personal.titles == ["personal %", "base %", "HM %", "HM3 %", "CM %"]
    assert (of_global_part.titles, of_global_part.lines[0]) == (["novel %"], ["A", "last", "31.25 ± 8.84"])
    assert table.view_tables(with_std=False)[0].lines[0][:3] == ["A", "last", "56.25"]
    assert not any(column.key.startswith("view") for column in table.columns)
    header, first, *_ = csv.reader(table.to_csv().splitlines())
    assert float(first[header.index("novel_global_part_last_five_mean")]) == 0.4375
    assert "| method | round | personal % | base % | HM % | HM3 % | CM % |" in table.to_markdown()


def test_differences_between_rows_are_put_in_words(tmp_path: Path) -> None:
    def row(label: str, *accuracies: float) -> list[Outcome]:
        return [
            outcome(tmp_path, label, seed, accuracy, (f"partition.seed={split}",))
            for split, accuracy in enumerate(accuracies)
            for seed in (0,)
        ]

    reference = row("R", 0.50, 0.60, 0.70, 0.80)
    others = row("up", 0.60, 0.71, 0.80, 0.91), row("same", 0.51, 0.59, 0.71, 0.79), row("near", 0.51, 0.63, 0.72, 0.84)
    table = Table.of([outcome for group in (others[0], reference, *others[1:]) for outcome in group], against=1)
    assert [(line[0], line[1], line[-1]) for line in table.differences.lines()] == [
        ("up", "+10.50", "above R"),
        ("same", "+0.00", "difference not significant"),
        ("near", "+2.50", "difference not significant after correcting for 3 comparisons"),
    ]
    near = table.differences.of[3]
    assert near is not None
    assert near.is_above  # alone it would be
    assert near.p == pytest.approx(scipy.stats.ttest_1samp([0.01, 0.03, 0.02, 0.04], 0).pvalue)
    assert "over 4 splits" in table.differences.note
    assert "for 3 (Holm)" in table.differences.note


def test_runs_on_other_data_are_no_pairs(tmp_path: Path) -> None:
    one = outcome(tmp_path, "A", 0, 0.5, ("partition.n_clients=5",))
    table = Table.of([one, outcome(tmp_path, "B", 0, 0.6), outcome(tmp_path, "C", 1, 0.6, ("partition.n_clients=5",))])
    assert table.differences.lines() == []
    assert "difference" in table.to_csv()
    assert "minus" not in table.to_markdown()
