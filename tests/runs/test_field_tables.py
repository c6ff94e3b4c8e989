"""The tables of all methods in five settings, from the directories of runs."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy
from recipes.field.tables import SETTINGS, clients, markdown, read, recomputed, rows
from toy_run import make_config

import fedotp

ACCURACY = {"fedotp": [0.93, 0.92, 0.95], "coop,optimizer.lr=0.01": [0.91, 0.91, 0.92]}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Three splits of one seed each."""
    for method, values in ACCURACY.items():
        for split, accuracy in enumerate(values):
            folder = tmp_path / "fifty" / f"{method}{f',split={split}' if split else ''},seed=4"
            folder.mkdir(parents=True)
            (folder / "config.toml").write_text(f"seed = 4\n[partition]\nseed = {split}\n")
            final = {"accuracy": accuracy, "accuracy_worst_decile": accuracy - 0.1}
            (folder / "summary.json").write_text(
                json.dumps({"final": final, "best": {"accuracy": accuracy}, "last_five": {"accuracy": accuracy}})
            )
    return tmp_path


def test_differences_are_those_of_the_paired_test(study: Path) -> None:
    numbers, _ = SETTINGS["fifty"]
    made = rows(read(study / "fifty", numbers))
    assert [row["method"] for row in made if row["number"] == "accuracy"] == list(ACCURACY)
    row = next(row for row in made if row["method"] != "fedotp" and row["number"] == "accuracy")
    right = scipy.stats.ttest_rel(*ACCURACY.values())
    assert row["fedotp_minus_it"] == pytest.approx(0.02)
    assert [row["low"], row["high"]] == pytest.approx([*right.confidence_interval(0.95)])
    assert row["p_holm"] == pytest.approx(right.pvalue)
    assert row["fedotp_is"] == ("ahead" if right.pvalue < 0.05 else "not told apart")


def test_the_page_of_results_has_the_table_of_the_csv_files() -> None:
    table = markdown(ROOT / "docs/results/field")
    assert table in (ROOT / "docs/results.md").read_text()
    assert "| CoOp (local) | 91.88 ▽ | 98.29 |" in table  # 0.96 (0.51 to 1.42) below FedOTP; 0.19 (-0.09 to 0.47)


def test_vendors_left_out_in_turn_are_splits(study: Path) -> None:
    for vendor in ("noto", "twemoji"):
        shutil.copytree(study / "fifty", study / "left-out" / vendor)
    assert {*read(study / "left-out", SETTINGS["fifty"][0])["fedotp"]} == {(0, 4), (1, 4)}


def test_what_clients_have_right_gives_the_numbers_of_the_run(inputs: Path, tmp_path: Path) -> None:
    done = fedotp.run(make_config(inputs, federation={"rounds": 1}), tmp_path / "fifty" / "fedotp,seed=0")
    made = clients(tmp_path / "fifty")
    own = next(row for row in made if row["view"] == "own")
    assert [own["method"], own["seed"]] == ["fedotp", done.config.seed]
    final = done.summary["final"]
    assert recomputed(own["clients"]) == pytest.approx(
        {"accuracy": final["accuracy"], "worst decile": final["accuracy_worst_decile"]}
    )


ROOT = Path(__file__).parents[2]
DEMO = {
    "zeroshot": "zero-shot CLIP",
    "promptfl": "PromptFL: one prompt for all",
    "coop": "CoOp: everyone alone",
    "fedotp": "**FedOTP: a global and a local prompt**",
}


def test_the_table_of_the_readme_is_what_the_clients_of_the_demo_give() -> None:
    with (ROOT / "docs/results/demo.csv").open(newline="") as file:
        found = {(row["method"], int(row["split"])): row["clients"] for row in csv.DictReader(file)}
    assert len(found) == len(DEMO) * 6
    shares = {
        key: np.sort([int(r) / int(n) for r, n in (cell.split("/") for cell in text.split())])
        for key, text in found.items()
    }
    assert {len(each) for each in shares.values()} == {50}
    text = (ROOT / "README.md").read_text()
    ours = [shares["fedotp", split].mean() for split in range(6, 12)]
    for method, name in DEMO.items():
        own = [shares[method, split] for split in range(6, 12)]
        accuracy, worst = (100 * np.mean([each[:k].mean() for each in own]) for k in (50, 5))
        ahead = ""
        if method != "fedotp":
            test = scipy.stats.ttest_rel(ours, [each.mean() for each in own])
            low, high = test.confidence_interval(0.95)
            assert low > 0
            ahead = f"{100 * (np.mean(ours) - accuracy / 100):+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
        assert f"| {name} | {accuracy:.1f} % | {worst:.1f} % | {ahead} |" in text
