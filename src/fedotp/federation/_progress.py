"""Report of a round and progress of a run; does not import torch, so that listing runs is fast."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from fedotp._files import parse_json
from fedotp.errors import FedotpError
from fedotp.federation._sampling import Ints

FORMAT = "fedotp-checkpoint-1"
_LARGEST = 2**63 - 1


@dataclass(frozen=True, eq=False)
class RoundReport:
    """Report of a round, counted from 1.

    `sampled` are the clients asked, `answered` those that sent an update; `loss` (answered,) are their mean objectives,
    `examples` their numbers of images. Bytes are those of all messages to and from the clients. `faults` maps the names
    of clients without an update to the reason, `shortened` names of clients to how their update was clipped; in
    simulations both are empty. `averaged` are the clients chosen by a robust rule that chooses; None under other rules.
    `epsilon` is the largest privacy loss of a client so far, with privacy. `known_loss` is the mean objective if those
    of single clients are unknown.
    """

    round: int
    sampled: Ints
    answered: Ints
    loss: np.ndarray
    examples: Ints
    lr: float
    bytes_down: int
    bytes_up: int
    n_images: int
    seconds: float
    faults: Mapping[str, str] = field(default_factory=dict)
    shortened: Mapping[str, str] = field(default_factory=dict)
    averaged: Ints | None = None
    epsilon: float | None = None
    known_loss: float | None = None

    @property
    def mean_loss(self) -> float:
        """Mean objective, clients weighted by examples; nan if unknown."""
        if self.known_loss is not None:
            return self.known_loss
        known = np.isfinite(self.loss)
        return float(np.average(self.loss[known], weights=self.examples[known])) if known.any() else float("nan")

    @property
    def spent(self) -> str:
        """Privacy spent so far, as the end of a line; "" without privacy."""
        return "" if self.epsilon is None else f", epsilon {self.epsilon:.2f}"

    @property
    def training_text(self) -> str:
        """Loss, if there is one, speed and privacy spent, for display."""
        loss = "" if np.isnan(self.mean_loss) else f"loss {self.mean_loss:.3f}, "
        return f"{loss}{self.n_images / max(self.seconds, 1e-9):,.0f} images/s{self.spent}"

    def as_dict(self) -> dict[str, Any]:
        """Return a line of metrics.jsonl; unknown values are None, inapplicable ones are omitted."""
        return {
            "round": self.round,
            "sampled": self.sampled.tolist(),
            "answered": self.answered.tolist(),
            "loss": None if np.isnan(self.mean_loss) else self.mean_loss,
            "client_loss": [None if np.isnan(loss) else float(loss) for loss in self.loss],
            "lr": self.lr,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "images": self.n_images,
            "seconds": round(self.seconds, 3),
            **({} if self.epsilon is None else {"epsilon": self.epsilon}),
            **({"faults": dict(self.faults)} if self.faults else {}),
            **({"shortened": dict(self.shortened)} if self.shortened else {}),
            **({"averaged": self.averaged.tolist()} if self.averaged is not None else {}),
        }


@dataclass
class Progress:
    """Progress of a run; with the parameters, the complete state needed to resume.

    `metrics_bytes` is the length of the metrics file so far, `metrics_digest` its SHA-256. Bytes and seconds are sums
    over the rounds.
    """

    round: int = 0
    metrics_bytes: int = 0
    metrics_digest: str = ""
    group_size: int = 0
    best_accuracy: float = -1.0
    best_round: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0

    @classmethod
    def load(cls, path: Path) -> "Progress":
        """Read the progress of a run from the checkpoint `path`."""
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
    """Require a regular file; reading a pipe would block."""
    if not path.is_file():
        raise FedotpError(f"cannot read the checkpoint {path}: not a file")


def require_sealed(path: Path, facts: Mapping[str, str], found: int) -> None:
    """Require the format of checkpoints and the checksum `found`."""
    if facts.get("format") != FORMAT:
        raise FedotpError(f"{path} is not a checkpoint of fedotp: its format must be {FORMAT!r}")
    if facts["checksum"] != str(found):
        raise FedotpError(
            f"the checkpoint {path} is corrupt (wrong checksum); restore a copy or run again from the start"
        )


def checksum(contents: Mapping[str, bytes | memoryview], facts: Mapping[str, str]) -> int:
    """Compute a checksum of the names and bytes of tensors and of facts; safetensors has none."""
    found = zlib.crc32(f"{facts['progress']} {facts['kept']}".encode())
    for name, content in sorted(contents.items()):
        found = zlib.crc32(content, zlib.crc32(name.encode(), found))
    return found


def parse_progress(text: str) -> Progress:
    """Parse progress and check its keys and types, and that counts are not negative."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("its progress is not a table")
    kinds = {item.name: type(item.default) for item in fields(Progress)}
    for name, value in values.items():
        kind = kinds.get(name)
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits or (kind is int and not 0 <= value <= _LARGEST):
            raise ValueError(f"invalid progress: {str(name)[:40]} = {str(value)[:40]}")
    return Progress(**values)
