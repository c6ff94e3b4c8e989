"""What was released, written down before it leaves, and the privacy that it spends (Renyi; Google's dp-accounting)."""

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedotp._files import cannot_write, opened_in_place, parse_json
from fedotp.errors import FedotpError

_FINEST, _COARSEST = 1e-2, 1e6  # noise multipliers that are tried


class Releases:
    """What was published, averages or updates, each a line in a file, on disk *before* it leaves.

    A server that is killed between a release and its checkpoint makes the round again: that is a second release.
    """

    def __init__(
        self, path: Path, least: int = 0, is_right: Callable[[dict[str, Any]], bool] = lambda line: "round" in line
    ) -> None:
        """What is in the file `path`, if it is there; `least` releases are known from elsewhere.

        A file with a record that is not right is refused.
        """
        self.path = path
        self._records = _read(path, is_right)
        self.count = max(len(self._records), least)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Those in the file, the oldest first."""
        return self._records

    def add(self, record: dict[str, Any]) -> None:
        """Count one more. When this returns, a power failure cannot undo it."""
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


def _read(path: Path, is_right: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The records of a file. A last line that a kill cut short is taken away: what it speaks of did not leave."""
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
    if not all(isinstance(record, dict) and is_right(record) for record in records):
        raise FedotpError(f"{path} is damaged: it should be one JSON object per release; restore it from a copy")
    return records


@lru_cache(maxsize=4096)
def epsilon(noise: float, n_releases: int, delta: float, rate: float = 1.0) -> float:
    """The epsilon of so many Gaussian releases with noise multiplier `noise`, one unit zeroed out.

    Each is made of units that take part with probability `rate`, independently and unknown to the reader (Poisson
    sampling); at 1 all do.
    """
    return composed_epsilon([(noise, rate, n_releases)], delta)


def composed_epsilon(releases: Iterable[tuple[float, float, int]], delta: float) -> float:
    """The epsilon of releases of several kinds together, each kind as (noise, rate, how many)."""
    total: Any = 0.0
    from_orders: Any = None
    for noise, rate, n in releases:
        from_orders, orders, once = _of_one_release(noise, rate)
        if n and not noise:
            return math.inf
        total = total + n * once if n else total
    return float(from_orders(orders, total, delta)[0]) if np.any(total) else 0.0


def noise_for(target: float, n_releases: int, delta: float, rate: float = 1.0) -> float:
    """The least noise multiplier, to three digits, with which so many releases spend no more than `target`.

    Examples:
        >>> noise_for(2.0, n_releases=100, delta=1e-5)
        24.2
    """
    low, high = _FINEST, _COARSEST
    if epsilon(high, n_releases, delta, rate) > target:
        raise FedotpError(f"epsilon = {target:g} cannot be had in {n_releases} releases at delta = {delta:g}")
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle, n_releases, delta, rate) <= target else (middle, high)
    step = 10.0 ** (math.floor(math.log10(high)) - 2)
    return round(math.ceil(high / step) * step, 12)


@lru_cache(maxsize=4096)
def _of_one_release(noise: float, rate: float) -> tuple[Any, Any, Any]:
    """From Renyi to epsilon; orders, and the divergence of one release at each: of several it is their sum."""
    try:
        from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, rdp
    except ImportError as error:
        raise FedotpError("accounting for privacy needs dp-accounting: pip install 'fedotp[privacy]'") from error
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)  # by nothing
    release = GaussianDpEvent(noise)
    with _without_warnings():
        accountant.compose(release if rate >= 1 else PoissonSampledDpEvent(rate, release))
    return rdp.compute_epsilon, accountant._orders, accountant._rdp


@contextmanager
def _without_warnings() -> Iterator[None]:
    """An order that is too hard to compute is left out, which makes epsilon larger at most: no warning."""
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
