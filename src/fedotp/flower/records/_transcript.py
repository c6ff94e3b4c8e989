"""Transcripts of a run of real sites: chains of JSON lines (`_chain.py`) at the server and at each site.

The server's is `transcript.jsonl` in the directory of the run, with lines of these kinds:

    start   the server was started or resumed: agreement, completed rounds, digest of the parameters, limits
    round   the sites' statements and keys, faults, a robust rule's choice, digests of inputs and new parameters
    saved   a checkpoint was written: digests of the files that have changed
    end     the run is complete or was interrupted: digests of the files that have changed

The inputs of each aggregation are in `updates/ROUND.safetensors`: updates by site as received, "sum" the opened secure
sum, or "release" the private average, since noise cannot be repeated. A site's transcript is `transcripts/RUN.jsonl` in
its --state: a line for each update that it sent, and for each evaluation.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from fedotp._files import read_regular, write_atomically
from fedotp.errors import FedotpError
from fedotp.flower._agreement import Agreement
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.records._chain import MOST_BYTES, Chain

_LONGEST = 200  # bytes of a signature

Digest = tuple[int, str]
"""Length and SHA-256 of a file."""


@dataclass(frozen=True)
class Statement:
    """A site's statement about the update that it sends, which it signs.

    Attributes:
        run, round, agreement: the run's unique name, the round from 1, the digest of the agreement.
        site: the site's name.
        order: digest of the parameters that it received.
        update: digest of the update, or in a secure sum of the masked update.
        images: its weight in images.
    """

    run: str
    round: int
    agreement: str
    site: str
    order: str
    update: str
    images: int

    @property
    def content(self) -> bytes:
        """The signed bytes."""
        return b"fedotp update " + json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


class Transcript:
    """The server's transcript of a run in the directory `path`; `identity` checks the sites' signatures.

    Attributes:
        NAME, UPDATES: its file and the folder of inputs, in the run's directory.
        FILES: the other files of a run that the server writes.
    """

    NAME = "transcript.jsonl"
    UPDATES = "updates"
    FILES = (
        *("config.toml", "manifest.json", "metrics.jsonl", "predictions.npz", "summary.json"),
        *("state/checkpoint.safetensors", "state/releases.jsonl"),
    )

    def __init__(self, path: Path, agreement: Agreement, identity: KeyIdentity) -> None:
        self.path, self._agreement, self._identity = path, agreement, identity
        self._chain = Chain(path / self.NAME)
        self._files: dict[str, Digest] = {}

    def check(self, site: str, round_: int, order: str, update: str, images: int, signature: object) -> dict[str, Any]:
        """Check a site's signature; return its statement as an entry of the transcript."""
        statement = Statement(self._agreement.run, round_, self._agreement.digest, site, order, update, images)
        if not isinstance(signature, bytes) or len(signature) > _LONGEST:
            raise FedotpError("the answer contains no signature; install the same version of fedotp")
        key = self._identity.check(site, statement.content, signature)
        return {"order": order, "update": update, "images": images, "key": key, "signature": signature.hex()}

    def start(self, round_: int, **facts: Any) -> None:
        """Record that the server was started or resumed after `round_` rounds."""
        which = {"run": self._agreement.run, "agreement": self._agreement.digest, "round": round_}
        self._append("start", **which, **facts, files=self._changed())

    def round(self, round_: int, inputs: Mapping[str, torch.Tensor], **facts: Any) -> None:
        """Save the inputs of an aggregation, and record the round."""
        digest = ""
        if inputs:
            content = safetensors.torch.save({name: value.contiguous() for name, value in inputs.items()})
            write_atomically(self.inputs_file(self.path, round_), content, mode=0o600)
            digest = hashlib.sha256(content).hexdigest()
        self._append("round", round=round_, inputs=digest, **facts)

    def saved(self, round_: int, *, at_end: bool = False) -> None:
        """Record the files of the run after `round_` rounds."""
        self._append("end" if at_end else "saved", round=round_, files=self._changed())

    @classmethod
    def inputs_file(cls, path: Path, round_: int) -> Path:
        """Return the file of the inputs of a round's aggregation, of the run in `path`."""
        return path / cls.UPDATES / f"{round_:05}.safetensors"

    def _append(self, kind: str, **facts: Any) -> None:
        self._chain.append({"kind": kind, "time": datetime.now(UTC).isoformat(timespec="seconds"), **facts})

    def _changed(self) -> dict[str, Digest]:
        now = {name: found for name in self.FILES if (found := digest_of_file(self.path / name)) is not None}
        changed = {name: found for name, found in now.items() if self._files.get(name) != found}
        self._files = now
        return changed


class SiteTranscript:
    """The transcripts of the site `name`, in `folder`; `identity` signs its statements."""

    def __init__(self, folder: Path, name: str, identity: Callable[[], KeyIdentity]) -> None:
        self._folder, self._name, self._identity = folder, name, identity
        self._chains: dict[str, Chain] = {}

    def update(self, agreement: Agreement, round_: int, order: str, update: str, images: int) -> bytes:
        """Record an update before it is sent, and sign the statement about it."""
        statement = Statement(agreement.run, round_, agreement.digest, self._name, order, update, images)
        signature = self._identity().sign(statement.content)
        self._append(agreement.run, {"kind": "update", **asdict(statement), "signature": signature.hex()})
        return signature

    def evaluation(self, agreement: Agreement, round_: int, order: str) -> None:
        """Record the parameters that the site received for an evaluation."""
        facts = {"run": agreement.run, "round": round_, "agreement": agreement.digest, "site": self._name}
        self._append(agreement.run, {"kind": "evaluation", **facts, "order": order})

    def _append(self, run: str, content: dict[str, Any]) -> None:
        if run not in self._chains:
            self._chains[run] = Chain(self._folder / f"{run}.jsonl")
        chain = self._chains[run]
        if not chain.last[0]:
            chain.append({"kind": "start", "run": run, "site": self._name, "key": self._identity().public})
        chain.append(content)


def digest_of_file(path: Path) -> Digest | None:
    """Return length and SHA-256 of a file; None if it does not exist."""
    try:
        content = read_regular(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error
    return len(content), hashlib.sha256(content).hexdigest()
