"""Whole runs on clients that no scheme of ours draws: sites of a table, a saved file, a scheme of the user's own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedotp.data import load_dataset
from fedotp.data.partition import Partition, PartitionSettings, make_partition
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import evaluate_run, resume, run
from runs.toy_run import COLOURS, make_config, make_inputs

EVERYONE = {"federation": {"rounds": 1, "holdout_clients": 0}, "evaluation": {"clients": 0}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hospitals, named in a table, with three patients of each class, two images of each patient."""
    inputs = make_inputs(tmp_path_factory.mktemp("inputs"))
    lines = [
        f"data/{folder}/{colour}/{i}.png,{colour},{'test' if i > 3 else 'train'},{site},{site}-{colour}-{i // 2}"
        for folder, site in (("day", "oslo"), ("night", "bergen"))
        for colour in COLOURS
        for i in range(6)
    ]
    (inputs / "scans.csv").write_text("\n".join(["path,label,split,site,group", *lines]) + "\n")
    return inputs / "scans.csv"


def require_whole(done: RunDirectory, names: list[str], n_test: int) -> None:
    """Complete, with these clients, and the same when it is looked at again."""
    assert done.is_complete
    assert done.manifest["clients"] == names
    assert [client["name"] for client in done.summary["clients"]] == names
    assert sum(client["test_images"] for client in done.summary["clients"]) == n_test
    assert resume(done.path).summary == done.summary
    assert evaluate_run(done.path).mean == pytest.approx(done.summary["final"]["accuracy"])


def test_the_sites_of_a_table(table: Path, tmp_path: Path) -> None:
    config = make_config(table.parent, data={"dataset": str(table)}, **EVERYONE)
    done = run(config.override(["partition.scheme=site"]), tmp_path / "run")
    require_whole(done, ["bergen", "oslo"], 12)
    assert set(done.summary["domains"]) == {"bergen", "oslo"}
    test = load_dataset(table).test
    for client in done.partition.clients:
        assert {test.name(row).split("/")[1] for row in client.test} == {"day" if client.name == "oslo" else "night"}


def test_what_was_divided_elsewhere_and_saved(table: Path, tmp_path: Path) -> None:
    dataset = load_dataset(table)
    drawn = make_partition(dataset, PartitionSettings("iid", 2))
    replace(drawn, settings=PartitionSettings("given", 2)).save(tmp_path / "theirs.json")
    config = make_config(table.parent, data={"dataset": str(table)}, **EVERYONE)
    done = run(config, tmp_path / "run", partition=Partition.load(tmp_path / "theirs.json"))
    require_whole(done, ["client-0", "client-1"], 12)
    assert done.config.partition == PartitionSettings("given", 2)
    for client, expected in zip(done.partition.clients, drawn.clients, strict=True):
        np.testing.assert_array_equal(client.train, expected.train)
    with pytest.raises(FedotpError, match=r"^given: needs the partition of scans as --partition FILE"):
        run(done.config, tmp_path / "without")
