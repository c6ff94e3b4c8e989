"""A log of releases, written before each release, and the epsilon they spend (Renyi; Google's dp-accounting)."""

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedotp._files import cannot_write, opened_in_place, parse_json
from fedotp.errors import FedotpError

_FINEST, _COARSEST = 1e-2, 1e6  # range of noise multipliers to search


class Releases:
    """A log of released averages or updates, one line each, on disk *before* the release.

    A server that is killed between a release and its checkpoint repeats the round, which is a second release.
    """

    def __init__(
        self, path: Path, least: int = 0, is_valid: Callable[[dict[str, Any]], bool] = lambda line: "round" in line
    ) -> None:
        """Read the file `path` if it exists; raise FedotpError for invalid records. Count at least `least` releases."""
        self.path = path
        self._records = _read(path, is_valid)
        self.count = max(len(self._records), least)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The records in the file, oldest first."""
        return self._records

    def add(self, record: dict[str, Any]) -> None:
        """Append a record. On return it is on disk and survives a power failure."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(opened_in_place(self.path, flags), "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the file may be new
            finally:
                os.close(folder)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._records.append(record)
        self.count += 1


def _read(path: Path, is_valid: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Read a file's records. Discard an incomplete last line, left by a killed process: its release did not happen."""
    try:
        content = path.read_bytes() if path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with open(opened_in_place(path, os.O_WRONLY), "wb") as file:
                file.truncate(len(whole))
        records = [parse_json(line.decode()) for line in whole.splitlines()]
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        records = [None]
    if not all(isinstance(record, dict) and is_valid(record) for record in records):
        raise FedotpError(f"{path} is corrupt: expected one JSON object per line; restore it from a backup")
    return records


@lru_cache(maxsize=4096)
def epsilon(noise: float, n_releases: int, delta: float, rate: float = 1.0) -> float:
    """Compute the epsilon of `n_releases` Gaussian releases with noise multiplier `noise`, zeroing out one unit.

    Each release samples units independently with probability `rate` (Poisson sampling); 1 means all units.
    """
    return composed_epsilon([(noise, rate, n_releases)], delta)


def composed_epsilon(releases: Iterable[tuple[float, float, int]], delta: float) -> float:
    """Compose releases of several kinds, each kind as (noise, rate, number of releases), and return their epsilon."""
    total: Any = 0.0
    from_orders: Any = None
    for noise, rate, n in releases:
        from_orders, orders, once = _divergences(noise, rate)
        if n and not noise:
            return math.inf
        total = total + n * once if n else total
    return float(from_orders(orders, total, delta)[0]) if np.any(total) else 0.0


def noise_for(target: float, n_releases: int, delta: float, rate: float = 1.0) -> float:
    """Find the smallest noise multiplier, to three digits, for which `n_releases` spend an epsilon of at most `target`.

    Examples:
        >>> noise_for(2.0, n_releases=100, delta=1e-5)
        24.2
    """
    low, high = _FINEST, _COARSEST
    if epsilon(high, n_releases, delta, rate) > target:
        raise FedotpError(f"cannot reach epsilon = {target:g} with {n_releases} releases at delta = {delta:g}")
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle, n_releases, delta, rate) <= target else (middle, high)
    step = 10.0 ** (math.floor(math.log10(high)) - 2)
    return round(math.ceil(high / step) * step, 12)


@lru_cache(maxsize=4096)
def _divergences(noise: float, rate: float) -> tuple[Any, Any, Any]:
    """Return the conversion to epsilon, the Renyi orders, and the divergence of one release at each (additive)."""
    try:
        from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, rdp
    except ImportError as error:
        raise FedotpError("privacy accounting requires dp-accounting: pip install 'fedotp[privacy]'") from error
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)  # zero-out
    release = GaussianDpEvent(noise)
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True  # warnings about orders that it skips, which can only increase epsilon
    try:
        accountant.compose(release if rate >= 1 else PoissonSampledDpEvent(rate, release))
    finally:
        log.disabled = before
    return rdp.compute_epsilon, accountant._orders, accountant._rdp
