"""Checkpoints that somebody forged, checksum and all: one line, whatever they say."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress

Forge = Callable[[dict[str, torch.Tensor], dict[str, Any], Any], object]


def _write(path: Path, tensors: dict[str, torch.Tensor], progress: object, kept: object) -> None:
    """A checkpoint with these values and the checksum of them."""
    facts = {"progress": json.dumps(progress), "kept": json.dumps(kept)}
    checksum = zlib.crc32(f"{facts['progress']} {facts['kept']}".encode())
    for name, value in sorted(tensors.items()):
        content = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        checksum = zlib.crc32(content, zlib.crc32(name.encode(), checksum))
    facts |= {"format": "fedotp-checkpoint-1", "checksum": str(checksum)}
    path.write_bytes(safetensors.torch.save(tensors, facts))


@pytest.fixture
def forged(tmp_path: Path) -> Callable[[Forge], Path]:
    """Two clients, of which the second has a row of three numbers, changed as a test likes."""

    def make(change: Forge) -> Path:
        row = np.arange(3, dtype=np.float32).tobytes()
        (tmp_path / "private.bin").write_bytes(bytes(24) + row + bytes(12))
        tensors = {
            "server.shared": torch.zeros(2, 3),
            "kept.slot": torch.tensor([-1, 0], dtype=torch.int8),
            "kept.checksum": torch.tensor([0, zlib.crc32(row)]),
        }
        progress: dict[str, Any] = {"round": 2, "metrics_bytes": 10, "best_accuracy": 0.5}
        kept = {"prompt": "torch.float32 (3,)"}
        _write(tmp_path / "checkpoint.safetensors", tensors, progress, change(tensors, progress, kept) or kept)
        return tmp_path / "checkpoint.safetensors"

    return make


def _read_all(path: Path) -> None:
    Progress.load(path)
    Checkpoint.read(path).rows(path.with_name("private.bin"))


def test_a_checkpoint_that_is_right_is_read(forged: Callable[[Forge], Path]) -> None:
    path = forged(lambda tensors, progress, kept: None)
    clients, rows = Checkpoint.read(path).rows(path.with_name("private.bin"))
    assert Progress.load(path).round == 2
    assert clients.tolist() == [1]
    assert rows["prompt"].tolist() == [[0.0, 1.0, 2.0]]


FORGERIES: dict[str, tuple[Forge, str]] = {
    "progress of another type": (lambda t, p, k: p.update(round="2"), "invalid progress: round = 2"),
    "progress below zero": (lambda t, p, k: p.update(metrics_bytes=-1), "invalid progress: metrics_bytes = -1"),
    "progress beyond all numbers": (lambda t, p, k: p.update(round=1 << 70), "invalid progress: round"),
    "progress of unknown names": (lambda t, p, k: p.update(__class__=1), "invalid progress: __class__"),
    "a number as truth": (lambda t, p, k: p.update(round=True), "invalid progress: round = True"),
    "rows that are no table": (lambda t, p, k: ["prompt"], "not a table of shapes"),
    "rows without a shape": (lambda t, p, k: {"prompt": 3}, "not a table of shapes"),
    "rows of an unknown type": (lambda t, p, k: {"prompt": "torch.quint8 (3,)"}, "unknown layout of clients' rows"),
    "rows larger than their file": (lambda t, p, k: {"prompt": "torch.float32 (99999999999,)"}, "one is corrupt"),
    "rows of other digits": (lambda t, p, k: {"prompt": "torch.float32 (٣,)"}, "unknown layout of clients' rows"),
    "no slots": (lambda t, p, k: t.__delitem__("kept.slot"), "kept.slot"),
    "slots of another type": (lambda t, p, k: t.update({"kept.slot": torch.zeros(2)}), "wrong types or shapes"),
    "slots as a table": (lambda t, p, k: t.update({"kept.slot": torch.zeros(2, 2).to(torch.int8)}), "wrong types"),
    "more checksums than slots": (lambda t, p, k: t.update({"kept.checksum": torch.zeros(9).long()}), "wrong types"),
    "a third slot": (lambda t, p, k: t.update({"kept.slot": torch.tensor([0, 2]).to(torch.int8)}), "-1, 0 or 1"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_checkpoint_is_refused_in_one_line(case: str, forged: Callable[[Forge], Path]) -> None:
    change, complaint = FORGERIES[case]
    path = forged(change)
    with pytest.raises(FedotpError, match=complaint) as caught:
        _read_all(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_any_number_format_has_a_checksum(forged: Callable[[Forge], Path]) -> None:
    path = forged(lambda t, p, k: t.update({"server.shared": torch.zeros(2, 3, dtype=torch.bfloat16)}))
    assert Checkpoint.read(path).server["shared"].dtype == torch.bfloat16


def test_a_folder_in_place_of_the_clients_rows_is_refused(forged: Callable[[Forge], Path]) -> None:
    path = forged(lambda tensors, progress, kept: None)
    path.with_name("private.bin").unlink()
    path.with_name("private.bin").mkdir()
    with pytest.raises(FedotpError, match=r"cannot read .*private.bin: Is a directory"):
        Checkpoint.read(path).rows(path.with_name("private.bin"))
