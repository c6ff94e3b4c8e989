"""Labels beside other images do not pass for a result: the table marks them, and is silent where all is well."""

import re
from pathlib import Path

import pytest
from recipes.defect import mispaired, write_folder

from fedotp.config import load_config
from fedotp.data.partition import make_partition
from fedotp.runs.many import by_method, run_many
from fedotp.runs.tables import Table
from small_box import small_box, write_small_box

SEEDS = (0, 1)
SETTINGS = ["partition.scheme=dirichlet", "partition.n_clients=8", "partition.alpha=0.3", "federation.rounds=2"]


@pytest.fixture(scope="module")
def tables(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Table]]:
    """The tables of single runs on a small part of cifar10-mini, as it is and mispaired."""
    folder = tmp_path_factory.mktemp("defect")
    small, clean = small_box(), shared_folder / "box"
    write_small_box(clean)
    store = shared_folder / "cache" / "tokens"
    config = load_config("demo").override([*SETTINGS, "evaluation.every=0", f"data.store={store}"])
    found: dict[str, list[Table]] = {"clean": [], "mispaired": []}
    for seed in SEEDS:
        split = config.override([f"partition.seed={seed}", f"seed={seed}"])
        copy = folder / f"mispaired{seed}"
        write_folder(mispaired(small, make_partition(small, split.partition).clients, seed=seed), copy)
        for name, data in (("clean", clean), ("mispaired", copy)):
            trials = by_method(split.override([f"data.dataset={data}"]), ["fedotp"], [seed])
            found[name].append(Table.of(run_many(trials, folder / f"runs-{name}{seed}")))
    return found


def flagged(table: Table) -> set[str]:
    return {check.control for check in table.rows[0].flagged}


def test_mispaired_labels_are_marked(tables: dict[str, list[Table]]) -> None:
    for table in tables["mispaired"]:
        assert "majority" in flagged(table)
        assert table.rows[0].marked == ("FedOTP (!)",)
        assert re.search(r"\(!\) FedOTP is .* than majority class", table.to_markdown())
        zero_shot = next(row for row in table.controls if row.called == "zero-shot CLIP")
        assert zero_shot.cells["accuracy"].mean < 0.3


def test_where_all_is_well_the_majority_is_silent(tables: dict[str, list[Table]]) -> None:
    for table in tables["clean"]:
        assert "majority" not in flagged(table)
        assert table.rows[0].cells["accuracy"].mean > 0.7
