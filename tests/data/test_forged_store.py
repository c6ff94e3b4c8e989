"""A forged store of tokens."""

import json
from pathlib import Path

import pytest

from fedotp.data.store._shard import Encoding
from fedotp.data.store._store import list_stores
from fedotp.errors import FedotpError

GOOD = {
    "format": 1,
    "backbone": "0" * 64,
    "tower": '{"vision": {"image_size": 32, "patch_size": 8}}',
    "transform": "none",
    "precision": "float32",
    "storage": "float16",
    "n_patches": 16,
    "width": 8,
}


def test_a_description_is_read_back() -> None:
    assert Encoding.from_json(json.dumps(GOOD)).width == 8


@pytest.mark.parametrize(
    "change",
    [
        {"width": -1},
        {"width": "8"},
        {"width": True},
        {"n_patches": 1 << 62},
        {"n_patches": 1 << 20, "width": 1 << 20},
        {"backbone": None},
        {"tower": []},
        {"more": 1},
    ],
)
def test_a_description_with_a_value_it_cannot_have_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(FedotpError, match="not the description of a token store"):
        Encoding.from_json(json.dumps({**GOOD, **change}))


def test_brackets_without_end_are_no_description() -> None:
    with pytest.raises(FedotpError, match="not the description of a token store"):
        Encoding.from_json("[" * 100_000)


@pytest.mark.parametrize("tower", ["x", "[]", '{"vision": 1}', "[" * 100_000])
def test_a_store_of_an_unknown_tower_is_listed(tower: str, tmp_path: Path) -> None:
    encoding = Encoding.from_json(json.dumps({**GOOD, "tower": tower}))
    (tmp_path / encoding.fingerprint).mkdir()
    (tmp_path / encoding.fingerprint / "encoding.json").write_text(encoding.to_json())
    (info,) = list_stores(tmp_path)
    assert info.tower == "unknown, 16 patches"
