"""Partitions that somebody forged, digest and all."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from data_made import uniform_dataset

from fedotp.data.partition import Partition, PartitionSettings, make_partition
from fedotp.errors import FedotpError

DATASET = uniform_dataset(2, 6, 2)


def _forged(path: Path, **client: Any) -> Path:
    """A partition with the right digest whose first client has other values."""
    make_partition(DATASET, PartitionSettings("iid", n_clients=2)).save(path)
    content = json.loads(path.read_text())
    del content["digest"]
    content["clients"][0] |= client
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({"digest": hashlib.sha256(text.encode()).hexdigest(), **content}))
    return path


def test_a_forged_digest_is_right(tmp_path: Path) -> None:
    Partition.load(_forged(tmp_path / "partition.json")).require(DATASET)


@pytest.mark.parametrize(
    "client",
    [{"name": 7}, {"domain": ["x"]}, {"train": [0.5]}, {"train": [[0]]}, {"test": [True]}, {"test": "01"}],
)
def test_a_client_of_the_wrong_kind_is_refused(client: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match="not a complete partition"):
        Partition.load(_forged(tmp_path / "partition.json", **client))


@pytest.mark.parametrize("client", [{"train": [0, 12]}, {"test": [-1, 0]}, {"train": [2**63 - 1]}])
def test_a_client_with_images_that_are_not_there_is_refused(client: dict[str, Any], tmp_path: Path) -> None:
    partition = Partition.load(_forged(tmp_path / "partition.json", **client))
    with pytest.raises(FedotpError, match=r"images from -?\d+ to \d+ of \d+; make the partition again"):
        partition.require(DATASET)
