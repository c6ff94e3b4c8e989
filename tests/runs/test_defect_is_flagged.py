"""Labels beside other images do not pass for a result: the table marks them, and is silent where all is well."""

import re
from pathlib import Path

import pytest
from recipes.defect import mispaired, write_folder

from fedotp.config import load_config
from fedotp.data.partition import make_partition
from fedotp.runs.many import by_method, run_many
from fedotp.runs.tables import Table
from small_box import small_box as load_small_box

SETTINGS = ["partition.scheme=dirichlet", "partition.n_clients=8", "partition.alpha=0.3", "federation.rounds=2"]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_mispaired_labels_are_marked(is_wrong: bool, small_box: Path, shared_folder: Path, tmp_path: Path) -> None:
    """A run on a small part of cifar10-mini, as it is and with labels beside other images of the same client."""
    store = shared_folder / "cache" / "tokens"
    config = load_config("demo").override([*SETTINGS, "evaluation.every=0", f"data.store={store}"])
    data = small_box
    if is_wrong:
        images, data = load_small_box(), tmp_path / "mispaired"
        write_folder(mispaired(images, make_partition(images, config.partition).clients, seed=0), data)
    trials = by_method(config.override([f"data.dataset={data}"]), ["fedotp"], [0])
    table = Table.of(run_many(trials, tmp_path / "runs"))
    flagged = {check.control for check in table.rows[0].flagged}
    assert ("majority" in flagged) == is_wrong
    assert bool(re.search(r"\(!\) FedOTP is .* than majority class", table.to_markdown())) == is_wrong
    accuracy = table.rows[0].cells["accuracy"].mean
    assert accuracy < 0.5 if is_wrong else accuracy > 0.7
