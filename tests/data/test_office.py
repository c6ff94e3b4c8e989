"""The real Office-Caltech10, where its archive is at hand."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from data_made import assert_sound
from store_made import tiny_clip

from fedotp.data import Dataset, check_dataset, load_dataset
from fedotp.data.partition import PartitionSettings, make_partition
from fedotp.data.store import encode

_NEARBY = Path(__file__).resolve().parents[3] / "shared" / "data" / "office_caltech10_224.tar"
_TAR = Path(os.environ.get("FEDOTP_OFFICE_TAR", _NEARBY))

pytestmark = pytest.mark.skipif(
    not _TAR.is_file(), reason="set FEDOTP_OFFICE_TAR to a tar of office_caltech10/<domain>/<class>/*.jpg"
)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("office")
    with tarfile.open(_TAR) as tar:
        tar.extractall(root, filter="data")
    return load_dataset("office_caltech10", root=root)


def test_counts_are_the_published_ones(office: Dataset) -> None:
    sizes = sum(np.bincount(split.domains) for split in (office.train, office.test))
    assert dict(zip(office.domains, sizes.tolist(), strict=True)) == {
        "amazon": 958,
        "caltech": 1123,
        "dslr": 157,
        "webcam": 295,
    }
    assert (len(office.train), len(office.test)) == (2025, 508)


def test_every_image_decodes(office: Dataset) -> None:
    report = check_dataset(office)
    assert report.n_images == 2533
    assert report.broken == ()
    for train, test in report.duplicates:  # the archive repeats some product photos
        assert office.split(train.split).read(train.index) == office.split(test.split).read(test.index)


def test_domain_partition(office: Dataset) -> None:
    partition = make_partition(office, PartitionSettings("domain"))
    assert_sound(partition, office)
    drawn = make_partition(office, PartitionSettings("domain-dirichlet", 12, alpha=0.1))
    assert_sound(drawn, office)
    assert drawn.counts(office, "train").reshape(4, 3, 10).sum(axis=(1, 2)).tolist() == [766, 898, 125, 236]
    assert [(c.name, len(c.train), len(c.test)) for c in partition.clients] == [
        ("amazon", 766, 192),
        ("caltech", 898, 225),
        ("dslr", 125, 32),
        ("webcam", 236, 59),
    ]


def test_every_image_becomes_tokens_once(office: Dataset, tmp_path: Path) -> None:
    clip = tiny_clip()
    encoded = encode(office, clip, root=tmp_path)
    assert (len(encoded.train), len(encoded.test)) == (2025, 508)
    n_different = len({split.read(i) for split in (office.train, office.test) for i in range(len(split))})
    assert clip.n_images == encoded.n_encoded == n_different
    again = encode(office, clip, root=tmp_path)
    assert (again.n_encoded, again.n_repaired) == (0, 0)
    assert encoded.train.read(np.arange(2025).reshape(25, 81)).tokens.shape == (25, 81, 16, 32)
