"""Every byte that a server holds, and a search in it for what a site has sent."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from flwr.app import Message
from near_sites import NearGrid

from fedotp.flower.secure._fixed_point import FixedPoint


def folder_bytes(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def process_bytes(pid: int) -> list[bytes]:
    """What another process has written to its memory; of a process of this user."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            place, rights, _, _, inode, *_ = line.split()
            if rights.startswith("rw") and inode == "0":
                start, end = (int(edge, 16) for edge in place.split("-"))
                try:
                    memory.seek(start)
                    found.append(memory.read(end - start))
                except OSError:  # gone since
                    continue
    return found


def n_found(patterns: Iterable[bytes], held: Iterable[bytes]) -> int:
    """How many of the patterns are anywhere in what is held."""
    left = set(patterns)
    for part in held:
        left -= {pattern for pattern in left if pattern in part}
    return len(set(patterns)) - len(left)


@dataclass(frozen=True)
class Sent:
    """What a site would send in a round of a plain federation, and what it had got."""

    round: int
    node: int
    update: dict[str, torch.Tensor]
    start: dict[str, torch.Tensor]
    weight: int

    def patterns(self, fixed: FixedPoint) -> list[bytes]:
        """What it could look like: itself or how far it moved, in float32, float64 and, weighted, fixed point.

        Of the first and the last context vector one half, as it lies in memory: enough to be unique, short enough not
        to be cut.
        """
        found = []
        for name, value in self.update.items():
            for values in (value, value - self.start[name]):
                rows = values.flatten(0, -2).double().numpy()
                for row in (rows[0], rows[-1]):
                    half = row[: len(row) // 2]
                    found += [half.astype(np.float32).tobytes(), half.tobytes()]
                    found.append(fixed.encode(half, self.weight).tobytes())
        return found


def sent_in(grid: NearGrid) -> list[Sent]:
    """All updates of a plain federation in this process."""
    return [
        Sent(
            int(message.metadata.group_id),
            message.metadata.dst_node_id,
            _tensors(reply),
            _tensors(message),
            int(reply.content.metric_records["metrics"]["num-examples"]),  # type: ignore[arg-type]
        )
        for message, reply in grid.exchanged("train")
    ]


def _tensors(message: Message) -> dict[str, torch.Tensor]:
    record = message.content.array_records["arrays"]
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}
