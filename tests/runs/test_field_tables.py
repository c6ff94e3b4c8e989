"""The tables of all methods in five settings, from the directories of runs."""

import json
import shutil
from pathlib import Path

import pytest
from recipes.field.tables import SETTINGS, markdown, read, rows
from scipy import stats

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
    numbers, compared = SETTINGS["fifty"]
    made = rows(read(study / "fifty", numbers))
    assert [row["method"] for row in made if row["number"] == "accuracy"] == list(ACCURACY)
    row = next(row for row in made if row["method"] != "fedotp" and row["number"] == "accuracy")
    right = stats.ttest_rel(*ACCURACY.values())
    assert row["fedotp_minus_it"] == pytest.approx(0.02)
    assert [row["low"], row["high"]] == pytest.approx([*right.confidence_interval(0.95)])
    assert row["p_holm"] == pytest.approx(right.pvalue)
    assert row["fedotp_is"] == ("ahead" if right.pvalue < 0.05 else "not told apart")
    table = markdown(made, compared).splitlines()
    assert table[2].startswith("| FedOTP | 93.33 |")
    assert table[3].startswith("| CoOp (local) | 91.33 |")
    assert "+2.00" in table[3]


def test_vendors_left_out_in_turn_are_splits(study: Path) -> None:
    for vendor in ("noto", "twemoji"):
        shutil.copytree(study / "fifty", study / "left-out" / vendor)
    assert {*read(study / "left-out", SETTINGS["fifty"][0])["fedotp"]} == {(0, 4), (1, 4)}
