"""Differential privacy of the average that the sites see.

A round releases, of the prompts P_i that sites send back for the prompt P that they were sent,

    P + (sum_i clip(P_i - P, C) + z C N(0, 1)) / n,

clip() scaling what is longer than C down to C. n is fixed: the number of sites that are expected, not of those that
answer, so a site that sends nothing, or the prompt as it was, counts as 0. Hence whatever one site sends moves the sum
by C at most, compared with its sending nothing: the add-or-remove-one relation, of sites, with the sum's sensitivity C,
which is what is accounted for. Nothing is gained from drawing only some of the sites: who is drawn is known to all.
Who is connected, and who answers, is not hidden.

"adaptive" lets C follow the median length of the updates (Andrew et al., Differentially private learning with adaptive
clipping, 2021). The count of short updates gets noise of its own, and the sum so much more that both together spend
what z alone would.
"""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedotp._files import cannot_write, opened_in_place, parse_json
from fedotp.errors import FedotpError
from fedotp.flower._lengths import clipped_sum, length
from fedotp.flower.server._settings import ServerSettings
from fedotp.methods import Parameters

_QUANTILE, _RATE = 0.5, 0.2  # of "adaptive": the share of updates that is not clipped; how fast C follows


def gaussian(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers from the operating system's entropy: those of NumPy's generators can be foretold.

    Each is made of four by Box and Muller: of a single one, the gaps between floating-point numbers could tell what
    it was added to (Holohan and Braghin, Secure random sampling in differential privacy, 2021).
    """
    bits = np.frombuffer(os.urandom(8 * 8 * math.prod(shape)), np.uint64) >> 11
    uniform = ((bits + 0.5) * 2.0**-53).reshape(2, 4, *shape)  # never 0
    four = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return np.asarray(four.sum(0) / 2)


def epsilon(noise: float, n_releases: int, delta: float) -> float:
    """The privacy spent by so many releases with noise multiplier `noise`, one site added or removed."""
    try:
        from dp_accounting import GaussianDpEvent, NeighboringRelation, rdp
    except ImportError as error:
        raise FedotpError("accounting for privacy needs dp-accounting: pip install 'fedotp[privacy]'") from error
    if not n_releases:
        return 0.0
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(GaussianDpEvent(noise), n_releases)
    return float(accountant.get_epsilon(delta))


def require_budget(settings: ServerSettings) -> None:
    """Refuse a budget that not even one round fits in, and an account that nobody could keep."""
    if settings.delta:
        once = epsilon(settings.noise, 1, settings.delta)
        if settings.max_epsilon and once > settings.max_epsilon:
            raise FedotpError(
                f"max-epsilon = {settings.max_epsilon:g}: one round with noise {settings.noise:g} spends {once:.3g}; "
                "raise noise or max-epsilon"
            )


class Releases:
    """The averages that were published, each a line in a file, on disk *before* the average leaves.

    A server that is killed between a release and its checkpoint makes the round again: that is a second release.
    """

    def __init__(self, path: Path, least: int = 0) -> None:
        """What is in the file `path`, if it is there; `least` releases are known from elsewhere."""
        self._path = path
        self._records = _read(path)
        self.count = max(len(self._records), least)

    @property
    def last(self) -> dict[str, Any]:
        """The last one; empty if there was none."""
        return self._records[-1] if self._records else {}

    def add(self, record: dict[str, Any]) -> None:
        """Count one more. When this returns, a power failure cannot undo it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(opened_in_place(self._path, flags), "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the file may be new
            finally:
                os.close(folder)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._records.append(record)
        self.count += 1


def _read(path: Path) -> list[dict[str, Any]]:
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
    if not all(isinstance(record, dict) and isinstance(record.get("next_clip"), float) for record in records):
        raise FedotpError(f"{path} is damaged: it should be one JSON object per release; restore it from a copy")
    return records


class Mechanism:
    """What makes an average private, and knows what was spent on it."""

    def __init__(self, settings: ServerSettings, n_sites: int, releases: Releases) -> None:
        """Of `n_sites` sites in all; `releases` are those before."""
        self._settings = settings
        self._n_sites = n_sites
        self._releases = releases
        self.clip = float(releases.last.get("next_clip", settings.clip))

    @property
    def is_spent(self) -> bool:
        """Whether one more release would exceed the budget."""
        settings = self._settings
        return bool(settings.max_epsilon) and self._epsilon(1) > settings.max_epsilon

    def facts(self) -> dict[str, Any]:
        """What was done and, where it is accounted for, spent."""
        settings = self._settings
        facts: dict[str, Any] = {
            "where": settings.privacy,
            "noise": settings.noise,
            "clip": self.clip,
            "sites": self._n_sites,
            "releases": self._releases.count,
        }
        if settings.delta:
            facts |= {"epsilon": self._epsilon(), "delta": settings.delta, "neighbours": "add or remove one site"}
        if settings.max_epsilon:
            facts["max_epsilon"] = settings.max_epsilon
        return facts

    def release(self, server: Parameters, updates: Sequence[Parameters], share: float, round_: int) -> Parameters:
        """The next `server`, of the `updates` of a round in which `share` of all sites is expected."""
        n = max(1, round(share * self._n_sites))
        noise, next_clip = self._settings.noise, self.clip
        if self._settings.privacy == "adaptive":
            noise, next_clip = self._follow(server, updates, n)
        total = clipped_sum(updates, server, self.clip)
        released = {
            name: (value + (total[name] + noise * self.clip * torch.from_numpy(gaussian(tuple(value.shape)))) / n).to(
                value.dtype
            )
            for name, value in server.items()
        }
        self._releases.add({"round": round_, "noise": noise, "clip": self.clip, "next_clip": next_clip, "sites": n})
        self.clip = next_clip
        return released

    def _follow(self, server: Parameters, updates: Sequence[Parameters], n: int) -> tuple[float, float]:
        """Of "adaptive": the noise multiplier of the sum, and the next clipping norm."""
        noise = self._settings.noise
        of_count = max(n / 20, noise)  # the paper's n / 20 is less than the whole noise where sites are few
        short = sum(length(update, server) <= self.clip for update in updates)
        centred = short - len(updates) / 2  # one site moves it by 1/2
        if not noise:
            return 0.0, self._next_clip(0.5 + centred / n)
        of_sum = (noise**-2 - (2 * of_count) ** -2) ** -0.5
        return of_sum, self._next_clip(0.5 + (centred + of_count * float(gaussian(()))) / n)

    def _next_clip(self, fraction: float) -> float:
        return self.clip * math.exp(-_RATE * (min(max(fraction, 0.0), 1.0) - _QUANTILE))

    def _epsilon(self, more: int = 0) -> float:
        return epsilon(self._settings.noise, self._releases.count + more, self._settings.delta)
