"""Private parameters of clients between rounds: one row per client, in memory or in a file.

In a file every client has two slots. A round writes the rows of its clients to their unused slots and syncs them to
disk; then the checkpoint, written atomically, records the valid slot of each client. So the rows of the last checkpoint
survive a crash at any time, the cost of a round depends on its clients only, and the file is sparse: a client that
never trained needs no space.
"""

import os
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._files import cannot_write, opened_at_once, opened_in_place
from fedotp.errors import FedotpError
from fedotp.federation._sampling import Ints
from fedotp.methods import Parameters


class KeptRows:
    """The private parameters of `n_clients` clients, which all start from `initial` (no client axis).

    `slot` (n,) is the valid slot of each client, -1 for the initial values; `checksum` (n,) is that of its row. After
    both have been saved, `commit` protects these rows until the next commit.
    """

    def __init__(self, initial: Parameters, n_clients: int, path: Path | None = None) -> None:
        """Store rows in memory, or in the file `path`, which is opened on first use."""
        self.n_clients = n_clients
        self.n_slots = 1 if path is None else 2
        self.slot = np.full(n_clients, -1, np.int8)
        self.checksum = np.zeros(n_clients, np.uint32)
        self._committed = self.slot.copy()
        self._layout = {name: (value.shape, value.dtype) for name, value in initial.items()}
        self._initial = _to_bytes(initial)
        self._path = path
        self._file: int | None = None
        self._writable = False
        self._held: NDArray[np.uint8] | None = None
        if path is None:
            self._held = np.zeros((n_clients, len(self._initial)), np.uint8)  # unwritten pages need no memory

    def read(self, clients: Ints, device: torch.device, *, initial: bool = False) -> Parameters:
        """Return the rows (C, ...) of `clients` (C,), or always the `initial` ones."""
        if not self._layout:
            return {}
        rows = [self._initial if initial else self._read(int(client)) for client in clients]
        return _from_bytes(b"".join(rows), len(rows), self._layout, device)

    def write(self, clients: Ints, rows: Parameters) -> None:
        """Write rows (C, ...) of `clients` (C,) to their unused slots, and sync them to disk."""
        if not self._layout:
            return
        if set(rows) != set(self._layout):
            raise ValueError(f"expected rows of {sorted(self._layout)}, got {sorted(rows)}")
        for i, client in enumerate(clients.tolist()):
            content = _to_bytes({name: rows[name][i] for name in self._layout})
            self.slot[client] = (self._committed[client] + 1) % self.n_slots
            self.checksum[client] = zlib.crc32(content)
            self._write(client, content)
        if self._path is not None:
            try:
                os.fsync(self._opened(writable=True))
            except OSError as error:
                raise cannot_write(self._path, error) from error

    def commit(self) -> None:
        """Protect the current rows until the next commit."""
        self._committed = self.slot.copy()

    @property
    def is_durable(self) -> bool:
        """True if the rows survive the end of the process."""
        return self._path is not None or not self._layout

    @property
    def layout(self) -> dict[str, str]:
        """Type and shape of a client's parameters by name."""
        return {name: f"{dtype} {tuple(shape)}" for name, (shape, dtype) in self._layout.items()}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _place(self, client: int) -> int:
        return (client * self.n_slots + int(self.slot[client])) * len(self._initial)

    def _read(self, client: int) -> bytes:
        if self.slot[client] < 0:
            return self._initial
        if self._held is not None:
            return self._held[client].tobytes()
        try:
            file = self._opened(writable=False)
            os.lseek(file, self._place(client), os.SEEK_SET)
            content = os.read(file, len(self._initial))
        except OSError as error:
            raise FedotpError(f"cannot read {self._path}: {error.strerror or error}") from error
        if len(content) != len(self._initial) or zlib.crc32(content) != self.checksum[client]:
            wrong = f"the row of client {client} is corrupt (wrong checksum)"
            raise FedotpError(f"{self._path}: {wrong}; restore a copy of the file or run again from the start")
        return content

    def _write(self, client: int, content: bytes) -> None:
        if self._held is not None:
            self._held[client] = np.frombuffer(content, np.uint8)
            return
        try:
            file = self._opened(writable=True)
            os.lseek(file, self._place(client), os.SEEK_SET)
            written = os.write(file, content)
        except OSError as error:
            assert self._path is not None
            raise cannot_write(self._path, error) from error
        if written != len(content):
            raise FedotpError(f"cannot write {self._path}: the disk is full; free disk space and resume")

    def _opened(self, *, writable: bool) -> int:
        """Return the open file; create it for writing if it does not exist."""
        assert self._path is not None
        if self._file is not None and (self._writable or not writable):
            return self._file
        self.close()
        try:
            if writable:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = opened_in_place(self._path, os.O_RDWR | os.O_CREAT, mode=0o600)
                os.ftruncate(self._file, self.n_clients * self.n_slots * len(self._initial))
            else:
                self._file = opened_at_once(self._path)
            self._writable = writable
        except OSError as error:
            what = "write" if writable else "read"
            raise FedotpError(f"cannot {what} {self._path}: {error.strerror or error}") from error
        return self._file


def _to_bytes(row: Parameters) -> bytes:
    return b"".join(value.detach().cpu().contiguous().numpy().tobytes() for value in row.values())


def _from_bytes(
    content: bytes, n_rows: int, layout: dict[str, tuple[torch.Size, torch.dtype]], device: torch.device
) -> Parameters:
    table = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(n_rows, -1)
    rows: dict[str, Tensor] = {}
    start = 0
    for name, (shape, dtype) in layout.items():
        n_bytes = shape.numel() * dtype.itemsize
        part = table[:, start : start + n_bytes].clone(memory_format=torch.contiguous_format)  # aligned
        rows[name] = part.view(dtype).view(n_rows, *shape).to(device)
        start += n_bytes
    return rows
