"""Checkpoint of a federation: one file that is replaced atomically, next to the file of the clients' rows."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray

from fedotp._files import parse_json, write_atomically
from fedotp.errors import FedotpError
from fedotp.federation._progress import FORMAT, Progress, checksum, parse_progress, require_file, require_sealed
from fedotp.federation._sampling import Ints
from fedotp.federation.clients import KeptRows
from fedotp.federation.server import Server
from fedotp.methods import Parameters

_SERVER = "server."
_STEP = "step."


class Saved(Protocol):
    """State that a checkpoint saves: of a simulator, or of a server of real sites."""

    server: Server
    kept: KeptRows
    device: torch.device
    round: int
    group_size: int


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a federation in the file `path`.

    `server` contains the shared parameters, `step` the state of the server's optimizer; `slot` and `checksum` (n,) are
    the index of the clients' rows, and `layout` their shapes and types.
    """

    path: Path
    server: Parameters
    step: Parameters
    slot: NDArray[np.int8]
    checksum: NDArray[np.uint32]
    layout: dict[str, str]
    progress: Progress

    @staticmethod
    def write(path: Path, federation: Saved, progress: Progress) -> None:
        """Write the server's state, the index of clients' rows and `progress` to `path`, atomically.

        The rows must be in a file: give it to `Simulator` as `kept_in`.
        """
        kept = federation.kept
        if not kept.is_durable:
            raise ValueError("a checkpoint needs the clients' rows in a file: give kept_in to Simulator")
        parts = {_SERVER: federation.server.params, _STEP: federation.server.step.state}
        tensors = {
            f"{prefix}{name}": value.detach().cpu().contiguous()
            for prefix, part in parts.items()
            for name, value in part.items()
        }
        tensors["kept.slot"] = torch.from_numpy(kept.slot)
        tensors["kept.checksum"] = torch.from_numpy(kept.checksum.astype(np.int64))
        facts = {"progress": json.dumps(asdict(progress)), "kept": json.dumps(kept.layout)}
        sealed = {"format": FORMAT, "checksum": str(_checksum(tensors, facts)), **facts}
        write_atomically(path, safetensors.torch.save(tensors, metadata=sealed))
        kept.commit()

    @classmethod
    def read(cls, path: Path) -> "Checkpoint":
        """Read and check a checkpoint."""
        try:
            require_file(path)
            with safetensors.safe_open(path, "pt") as file:
                facts = file.metadata() or {}
                # Copies: Windows cannot replace a file that is mapped into memory.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  (not a dict)
            require_sealed(path, facts, _checksum(tensors, facts))
            _require_slots(tensors)
            server, step = (
                {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
                for prefix in (_SERVER, _STEP)
            )
            slot, checksum = tensors["kept.slot"].numpy(), tensors["kept.checksum"].numpy().astype(np.uint32)
            layout = _layout(parse_json(facts["kept"]))
            return cls(path, server, step, slot, checksum, layout, parse_progress(facts["progress"]))
        except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
            raise FedotpError(f"cannot read the checkpoint {path}: {error}") from error

    def rows(self, kept: Path) -> tuple[Ints, Parameters]:
        """Return the numbers (C,) and rows (C, ...) of the clients in the file `kept` that have trained."""
        clients = np.flatnonzero(self.slot >= 0) if self.layout else np.empty(0, np.int64)
        if not len(clients):
            return clients, {}
        rows = KeptRows(_empty_row(self.layout, self.path, kept), len(self.slot), kept)
        rows.slot[:], rows.checksum[:] = self.slot, self.checksum
        try:
            return clients, rows.read(clients, torch.device("cpu"))
        finally:
            rows.close()

    def digest(self, kept: Path) -> str:
        """Return the SHA-256 of the parameters of the server and every client.

        It does not depend on times or on the positions of the clients' rows in the file `kept`.
        """
        clients, rows = self.rows(kept)
        tensors = {f"{_SERVER}{name}": value for name, value in self.server.items()}
        tensors |= {f"{_STEP}{name}": value for name, value in self.step.items()}
        tensors |= {"clients": torch.from_numpy(clients), **{f"private.{name}": value for name, value in rows.items()}}
        sha = hashlib.sha256()
        for name, value in sorted(tensors.items()):
            sha.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            if value.numel():  # an empty tensor cannot be viewed as bytes
                sha.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return sha.hexdigest()

    def restore(self, federation: Saved) -> Progress:
        """Restore the state of `federation` from the checkpoint."""
        server, kept = federation.server, federation.kept
        if not kept.is_durable:
            raise ValueError("a checkpoint needs the clients' rows in a file: give kept_in to Simulator")
        shapes = {name: tuple(value.shape) for name, value in self.server.items()}
        expected = {name: tuple(value.shape) for name, value in server.params.items()}
        another = f"{self.path} belongs to another federation:"
        if shapes != expected or len(self.slot) != kept.n_clients:
            there, here = f"{shapes} of {len(self.slot)} clients", f"{expected} of {kept.n_clients}"
            raise FedotpError(f"{another} it contains {there}, expected {here}")
        if self.layout != kept.layout:
            raise FedotpError(f"{another} its clients store {self.layout}, expected {kept.layout}")
        if not server.step.fits(self.step, self.server):
            wrong = f"its server state {sorted(self.step)} does not fit server.name = {server.step.settings.name!r}"
            raise FedotpError(f"{another} {wrong}")
        server.load(self.server)
        server.step.state = {name: value.to(federation.device) for name, value in self.step.items()}
        kept.slot[:], kept.checksum[:] = self.slot, self.checksum
        kept.commit()
        federation.round = self.progress.round
        federation.group_size = self.progress.group_size or federation.group_size
        return self.progress


def _empty_row(layout: Mapping[str, str], path: Path, kept: Path) -> Parameters:
    """Return zeros in the shapes and types of a `KeptRows.layout`, at most as large as the file of the rows."""
    kinds = {name: _kind(text, path) for name, text in layout.items()}
    n_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in kinds.values())
    try:
        n_there = kept.stat().st_size
    except OSError as error:
        raise FedotpError(f"cannot read {kept}: {error.strerror or error}") from error
    if n_bytes > n_there:
        raise FedotpError(f"{kept} has {n_there} bytes, but {path} has {n_bytes} for each client: one is corrupt")
    return {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in kinds.items()}


def _kind(layout: str, path: Path) -> tuple[list[int], torch.dtype]:
    """Parse a shape and type such as "torch.float32 (1, 16, 512)"."""
    found = re.fullmatch(r"torch\.(float16|bfloat16|float32|float64) \(([\d, ]{0,200})\)", layout, re.ASCII)
    if not found:
        raise FedotpError(f"{path}: unknown layout of clients' rows {layout[:100]!r}")
    return [int(size) for size in found[2].replace(",", " ").split()], getattr(torch, found[1])


def _layout(values: object) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise ValueError("the layout of clients' rows is not a table of shapes")
    return values


def _require_slots(tensors: Mapping[str, torch.Tensor]) -> None:
    """Check the index of the clients' rows: a slot and a checksum for every client."""
    slot, checksum = tensors["kept.slot"], tensors["kept.checksum"]
    if (slot.dtype, checksum.dtype) != (torch.int8, torch.int64) or slot.dim() != 1 or slot.shape != checksum.shape:
        raise ValueError("the index of clients' rows has wrong types or shapes")
    if len(slot) and not -1 <= int(slot.min()) <= int(slot.max()) <= 1:
        raise ValueError("the slots of clients' rows must be -1, 0 or 1")


def _checksum(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> int:
    """Compute the checksum of names, values of any type, and facts."""
    contents = {name: value.contiguous().reshape(-1).view(torch.uint8).numpy().data for name, value in tensors.items()}
    return checksum(contents, facts)
