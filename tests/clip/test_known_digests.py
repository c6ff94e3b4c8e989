"""Digests of weights that are remembered."""

from pathlib import Path

import pytest

from fedotp.clip import CLIP, TINY, load, save
from fedotp.clip import _model as model_module
from fedotp.clip._known_digests import _UNSETTLED_NS

LONG_AGO = 10 * _UNSETTLED_NS


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of weights, and an empty cache."""
    monkeypatch.setenv("FEDOTP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "weights.safetensors"
    save(CLIP.random(TINY), path)
    return path


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for every time that weights are hashed."""
    times: list[str] = []
    plain = model_module.tensors_digest

    def noted(tensors: object) -> str:
        times.append("hashed")
        return plain(tensors)

    monkeypatch.setattr(model_module, "tensors_digest", noted)
    return times


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all files had been written long ago."""
    monkeypatch.setattr("fedotp.clip._known_digests._UNSETTLED_NS", -LONG_AGO)


def memo(tmp_path: Path) -> Path:
    (only,) = (tmp_path / "cache" / "digests").iterdir()
    return only


@pytest.mark.usefixtures("settled")
def test_weights_are_hashed_once(weights: Path, hashed: list[str]) -> None:
    first, second = load(weights).digest, load(weights).digest
    assert first == second
    assert hashed == ["hashed"]
    changed = CLIP.random(TINY)
    changed.text_projection.data[0, 0] += 1
    save(changed, weights, overwrite=True)
    assert load(weights).digest == changed.digest != first


def test_a_file_that_was_just_written_is_not_remembered(weights: Path, hashed: list[str]) -> None:
    assert load(weights).digest == load(weights).digest
    assert len(hashed) == 2


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"file": 3, "digest": 4}', b"\xff" * 5000])
def test_a_damaged_memory_is_no_memory(weights: Path, hashed: list[str], tmp_path: Path, content: bytes) -> None:
    digest = load(weights).digest
    memo(tmp_path).write_bytes(content)
    assert load(weights).digest == digest
    assert len(hashed) == 2


@pytest.mark.usefixtures("settled")
def test_another_digest_in_it_is_one_of_another_file(weights: Path, tmp_path: Path, hashed: list[str]) -> None:
    """A copy in the same place has another inode and other times."""
    assert load(weights).digest
    content = weights.read_bytes()
    weights.unlink()
    (tmp_path / "other").write_bytes(b"takes the inode")
    weights.write_bytes(content)
    assert load(weights).digest
    assert len(hashed) == 2


@pytest.mark.usefixtures("settled")
def test_a_cache_that_cannot_be_written_does_no_harm(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert load(weights).digest == load(weights).digest
