"""The state of a federation on disk: one file that is replaced atomically, beside the rows clients keep."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import numpy as np
import safetensors
import safetensors.torch
import torch

from fedotp._files import parse_json, write_atomically
from fedotp.errors import FedotpError
from fedotp.federation._kept import KeptRows
from fedotp.federation._progress import (
    FORMAT,
    Progress,
    checksum,
    parse_progress,
    require_file,
    require_sealed,
)
from fedotp.federation._random import Ints
from fedotp.federation._server_step import ServerStep
from fedotp.methods import Parameters

_SERVER = "server."
_STEP = "step."


class Saved(Protocol):
    """What a checkpoint holds: a simulator's state, or that of a server of real sites."""

    server: Parameters
    step: ServerStep
    kept: KeptRows
    device: torch.device
    round: int
    group_size: int


def save_checkpoint(path: Path, simulator: Saved, progress: Progress) -> None:
    """Write the server's parameters, its step's state, the index of clients' rows and `progress` to `path`, atomically.

    The rows themselves must be in a file: give `Simulator` a `make_kept` that says where.
    """
    if not simulator.kept.is_durable:
        raise ValueError("what clients keep is in memory only, a checkpoint would not hold it; keep it in a file")
    parts = {_SERVER: simulator.server, _STEP: simulator.step.state}
    tensors = {
        f"{prefix}{name}": value.detach().cpu().contiguous()
        for prefix, part in parts.items()
        for name, value in part.items()
    }
    tensors["kept.slot"] = torch.from_numpy(simulator.kept.slot)
    tensors["kept.checksum"] = torch.from_numpy(simulator.kept.checksum.astype(np.int64))
    facts = {"progress": json.dumps(asdict(progress)), "kept": json.dumps(simulator.kept.layout)}
    sealed = {"format": FORMAT, "checksum": str(_checksum(tensors, facts)), **facts}
    write_atomically(path, safetensors.torch.save(tensors, metadata=sealed))
    simulator.kept.commit()


def load_server(path: Path) -> Parameters:
    """What the server held when the checkpoint `path` was written."""
    return _part(_SERVER, _read(path)[0])


def load_rows(path: Path, kept: Path) -> tuple[Ints, Parameters]:
    """What clients had in the file `kept` when the checkpoint `path` was written: their numbers (C,) and rows (C, ...).

    Clients that have trained nothing yet are left out: what they start from is in no file.
    """
    tensors, _, layout = _read(path)
    slot = tensors["kept.slot"].numpy()
    clients = np.flatnonzero(slot >= 0) if layout else np.empty(0, np.int64)
    if not len(clients):
        return clients, {}
    rows = KeptRows(_empty_row(layout, path, kept), len(slot), kept)
    rows.slot[:] = slot
    rows.checksum[:] = tensors["kept.checksum"].numpy().astype(np.uint32)
    try:
        return clients, rows.read(clients, torch.device("cpu"))
    finally:
        rows.close()


def state_digest(path: Path, kept: Path) -> str:
    """SHA-256 of all that had been learned when the checkpoint `path` was written, by the server and every client.

    Equal for equal numbers, wherever clients' rows lie in the file `kept`; times are not in it.
    """
    clients, rows = load_rows(path, kept)
    tensors = {name: value for name, value in _read(path)[0].items() if name.startswith((_SERVER, _STEP))}
    tensors |= {"clients": torch.from_numpy(clients), **{f"private.{name}": value for name, value in rows.items()}}
    sha = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():  # nothing cannot be seen as bytes
            sha.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def load_checkpoint(path: Path, simulator: Saved) -> Progress:
    """Put `simulator` where it was when `path` was written."""
    if not simulator.kept.is_durable:
        raise ValueError("this simulator's clients keep their own in memory, not in the file a checkpoint speaks of")
    tensors, progress, layout = _read(path)
    server, state = _part(_SERVER, tensors), _part(_STEP, tensors)
    shapes = {name: tuple(value.shape) for name, value in server.items()}
    expected = {name: tuple(value.shape) for name, value in simulator.server.items()}
    if shapes != expected or len(tensors["kept.slot"]) != simulator.kept.n_clients:
        raise FedotpError(
            f"{path} belongs to another federation: it holds {shapes} for {len(tensors['kept.slot'])} clients, "
            f"this one has {expected} for {simulator.kept.n_clients}"
        )
    if layout != simulator.kept.layout:
        raise FedotpError(
            f"{path} belongs to another federation: its clients keep {layout}, here they keep {simulator.kept.layout}"
        )
    if not simulator.step.fits(state, server):
        raise FedotpError(
            f"{path} belongs to another federation: its server's step remembers {sorted(state)}, "
            f"which is not for server.name = {simulator.step.settings.name!r} here"
        )
    simulator.server = {
        name: value.to(simulator.device, simulator.server[name].dtype) for name, value in server.items()
    }
    simulator.step.state = {name: value.to(simulator.device) for name, value in state.items()}
    simulator.kept.slot[:] = tensors["kept.slot"].numpy()
    simulator.kept.checksum[:] = tensors["kept.checksum"].numpy().astype(np.uint32)
    simulator.kept.commit()
    simulator.round = progress.round
    simulator.group_size = progress.group_size or simulator.group_size
    return progress


def _empty_row(layout: Mapping[str, str], path: Path, kept: Path) -> Parameters:
    """Zeros in the shapes and types that `KeptRows.layout` describes, no larger than the file of the rows."""
    kinds = {name: _kind(text, path) for name, text in layout.items()}
    n_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in kinds.values())
    try:
        n_there = kept.stat().st_size
    except OSError as error:
        raise FedotpError(f"cannot read {kept}: {error.strerror or error}") from error
    if n_bytes > n_there:
        raise FedotpError(f"{kept} has {n_there} bytes, and a client alone keeps {n_bytes} by {path}: one is damaged")
    return {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in kinds.items()}


def _kind(layout: str, path: Path) -> tuple[list[int], torch.dtype]:
    """Shape and type of a text as in "torch.float32 (1, 16, 512)"."""
    found = re.fullmatch(r"torch\.(float16|bfloat16|float32|float64) \(([\d, ]{0,200})\)", layout, re.ASCII)
    if not found:
        raise FedotpError(f"{path}: its clients keep {layout[:100]!r}, which this version does not know")
    return [int(size) for size in found[2].replace(",", " ").split()], getattr(torch, found[1])


def _part(prefix: str, tensors: Parameters) -> Parameters:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _read(path: Path) -> tuple[dict[str, torch.Tensor], Progress, dict[str, str]]:
    """Tensors, progress and the layout of the clients' rows, each of the kinds that `save_checkpoint` writes."""
    try:
        require_file(path)
        with safetensors.safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            # Copies: Windows does not replace a file that is still mapped into memory.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  (not a dict)
        require_sealed(path, facts, _checksum(tensors, facts))
        _require_slots(tensors)
        return tensors, parse_progress(facts["progress"]), _layout(parse_json(facts["kept"]))
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise FedotpError(f"cannot read the checkpoint {path}: {error}") from error


def _layout(values: object) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise ValueError("what its clients keep is not a table of shapes")
    return values


def _require_slots(tensors: Mapping[str, torch.Tensor]) -> None:
    """The index of the clients' rows: a slot and a checksum for every client."""
    slot, checksum = tensors["kept.slot"], tensors["kept.checksum"]
    if (slot.dtype, checksum.dtype) != (torch.int8, torch.int64) or slot.dim() != 1 or slot.shape != checksum.shape:
        raise ValueError("the index of its clients is of the wrong kind")
    if len(slot) and not -1 <= int(slot.min()) <= int(slot.max()) <= 1:
        raise ValueError("its clients have more than two slots")


def _checksum(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> int:
    """Over names, values and facts; values of any type, bfloat16 too."""
    contents = {name: value.contiguous().reshape(-1).view(torch.uint8).numpy().data for name, value in tensors.items()}
    return checksum(contents, facts)
