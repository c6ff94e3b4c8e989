"""The real Office-Caltech10 as tokens, where its archive is at hand."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from store_made import tiny_clip

from fedotp.data import load_dataset
from fedotp.data.store._encode import encode

_NEARBY = Path(__file__).resolve().parents[3] / "shared" / "data" / "office_caltech10_224.tar"
_TAR = Path(os.environ.get("FEDOTP_OFFICE_TAR", _NEARBY))


@pytest.mark.skipif(
    not _TAR.is_file(), reason="set FEDOTP_OFFICE_TAR to a tar of office_caltech10/<domain>/<class>/*.jpg"
)
def test_every_image_becomes_tokens_once(tmp_path: Path) -> None:
    with tarfile.open(_TAR) as tar:
        tar.extractall(tmp_path / "data", filter="data")
    office, clip = load_dataset("office_caltech10", root=tmp_path / "data"), tiny_clip()
    encoded = encode(office, clip, root=tmp_path / "store")
    assert (len(encoded.train), len(encoded.test)) == (2025, 508)
    n_different = len({split.read(i) for split in (office.train, office.test) for i in range(len(split))})
    assert clip.n_images == encoded.n_encoded == n_different
    by_domain = sum(
        np.bincount(s.domains[(e.records >= 0).all(axis=0)], minlength=4)
        for s, e in ((office.train, encoded.train), (office.test, encoded.test))
    )
    assert by_domain.tolist() == [958, 1123, 157, 295]
    again = encode(office, clip, root=tmp_path / "store")
    assert (again.n_encoded, again.n_repaired) == (0, 0)
    assert encoded.train.read(np.arange(2025).reshape(25, 81)).tokens.shape == (25, 81, 16, 32)
