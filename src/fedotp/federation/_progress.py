"""How far a run has come, as its checkpoint says; read without torch, which whoever lists runs need not wait for."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import safetensors

from fedotp._files import parse_json
from fedotp.errors import FedotpError

FORMAT = "fedotp-checkpoint-1"
_LARGEST = 2**63 - 1


@dataclass
class Progress:
    """How far a run has come; together with the prompts all there is to know to go on.

    `metrics_bytes` is the length of the metrics file up to here, `metrics_digest` its SHA-256. Bytes and seconds are
    sums over the rounds; `since_best` counts evaluations since the best one.
    """

    round: int = 0
    metrics_bytes: int = 0
    metrics_digest: str = ""
    group_size: int = 0
    best_accuracy: float = -1.0
    best_round: int = 0
    since_best: int = 0
    stopped: bool = False
    bytes_up: int = 0
    bytes_down: int = 0
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0


def load_progress(path: Path) -> Progress:
    """How far the run had come when the checkpoint `path` was written."""
    try:
        require_file(path)
        with safetensors.safe_open(path, "np") as file:
            facts = file.metadata() or {}
        contents = {name: tensor["data"] for name, tensor in safetensors.deserialize(path.read_bytes())}
        require_sealed(path, facts, checksum(contents, facts))
        return parse_progress(facts["progress"])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise FedotpError(f"cannot read the checkpoint {path}: {error}") from error


def require_file(path: Path) -> None:
    """Refuse what is no file: one would wait for a pipe."""
    if not path.is_file():
        raise FedotpError(f"cannot read the checkpoint {path}: it is not a file")


def require_sealed(path: Path, facts: Mapping[str, str], found: int) -> None:
    """Refuse a file of another kind, or one whose checksum is not the one `found`."""
    if facts.get("format") != FORMAT:
        raise FedotpError(f"{path} is not a checkpoint of fedotp: it should say format {FORMAT!r}")
    if facts["checksum"] != str(found):
        raise FedotpError(
            f"the checkpoint {path} is damaged (its checksum does not match); "
            "restore it from a copy, or run again from the start"
        )


def checksum(contents: Mapping[str, bytes | memoryview], facts: Mapping[str, str]) -> int:
    """Over the names and bytes of tensors and over facts: safetensors has none of its own."""
    found = zlib.crc32(f"{facts['progress']} {facts['kept']}".encode())
    for name, content in sorted(contents.items()):
        found = zlib.crc32(content, zlib.crc32(name.encode(), found))
    return found


def parse_progress(text: str) -> Progress:
    """Progress from what a file says: the right keys, the right types, no count below zero."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("its progress is not a table")
    kinds = {item.name: type(item.default) for item in fields(Progress)}
    for name, value in values.items():
        kind = kinds.get(name)
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits or (kind is int and not 0 <= value <= _LARGEST):
            raise ValueError(f"its progress says {str(name)[:40]} = {str(value)[:40]}")
    return Progress(**values)
