"""Hugging Face data sets: read where the library is installed, refused clearly where it is not."""

import sys
from pathlib import Path

import numpy as np
import pytest
from layouts import write_tree

from fedotp.data import check_dataset, load_dataset
from fedotp.data._tables import from_hf
from fedotp.errors import FedotpError


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedotpError, match=r"pip install 'fedotp\[hf\]'"):
        load_dataset("hf:uoft-cs/cifar10")


def test_table_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'hf'")
    write_tree(
        tmp_path,
        [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in ("Big_Cat", "dog") for i in range(2)],
    )
    tables = datasets.load_dataset("imagefolder", data_dir=str(tmp_path), cache_dir=str(tmp_path / "cache"))
    dataset = from_hf(tables, name="mine")
    assert dataset.classes == ("big cat", "dog")
    assert dataset.train.labels.tolist() == [0, 0, 1, 1]
    assert check_dataset(dataset).broken == ()
    assert np.asarray(dataset.test.image(3)).shape == (12, 10, 3)
    with pytest.raises(FedotpError, match="it needs train and test"):
        from_hf(datasets.DatasetDict({"train": tables["train"]}), name="mine")
