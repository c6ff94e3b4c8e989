"""What a site keeps: its private prompt in each run, and the ledger of the privacy that its updates have spent.

The private prompt is in a file that is replaced atomically and never sent. Two rounds are kept: the last one, and the
last that the server has accepted, from which the last one started. If the server did not receive the site's answer, or
was killed before it saved the round, the site must start again from there.
"""

import json
import logging
import math
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from fedotp._files import cannot_write, write_atomically
from fedotp._values import show
from fedotp.errors import FedotpError
from fedotp.federation import Settings
from fedotp.flower._agreement import DisagreementError
from fedotp.flower.site._site_settings import Hidden
from fedotp.methods import Parameters
from fedotp.privacy import PrivacySettings, Releases, composed_epsilon

log = logging.getLogger("fedotp.site")

_OWNERS = 0o700
_FORMAT = "fedotp-private-1"
_UNPROMISED = PrivacySettings()


def make_private(folder: Path) -> None:
    """Make `folder`, for its owner only; one that is there and open to others is closed to them."""
    try:
        folder.mkdir(mode=_OWNERS, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.geteuid():
            raise FedotpError(
                f"{folder} belongs to another user (uid {status.st_uid}), who could read what this site keeps in it; "
                "give a folder of your own"
            )
        if stat.S_IMODE(status.st_mode) & ~_OWNERS:
            folder.chmod(_OWNERS)
            log.warning("%s was open to other users of this machine; it is its owner's only from now on", folder)
    except OSError as error:
        raise cannot_write(folder, error) from error


class PrivateFile:
    """The private parameters of one site in one run, after each of the last rounds it trained in."""

    def __init__(self, path: Path, privacy: PrivacySettings = _UNPROMISED) -> None:
        """A file that need not exist yet; one that was written under other `privacy` settings is refused.

        Otherwise a server could have it trained without noise, and then order what is sent to depend on it.
        """
        self.path = path
        self._privacy = json.dumps(asdict(privacy), sort_keys=True)
        self._rounds = self._read() if path.is_file() else {}

    @property
    def rounds(self) -> list[int]:
        """Rounds whose parameters are there, counted from 1, in ascending order."""
        return sorted(self._rounds)

    def after(self, round_: int) -> Parameters | None:
        """The parameters (...) as they were after a round; None where they are not known."""
        return self._rounds.get(round_)

    def keep(self, round_: int, params: Parameters, accepted: int = 0) -> None:
        """Write down the parameters (...) after a round that began from those after round `accepted`."""
        rounds = {number: row for number, row in self._rounds.items() if number == accepted}
        rounds[round_] = {name: value.detach().cpu().clone() for name, value in params.items()}
        tensors = {f"{number}.{name}": value for number, row in rounds.items() for name, value in row.items()}
        metadata = {"format": _FORMAT, "rounds": " ".join(map(str, sorted(rounds))), "privacy": self._privacy}
        make_private(self.path.parent)
        write_atomically(self.path, safetensors.torch.save(tensors, metadata=metadata), mode=0o600)
        self._rounds = rounds

    def _read(self) -> dict[int, Parameters]:
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                facts = file.metadata() or {}
                tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if facts.get("format") != _FORMAT:
                raise FedotpError(f"{self.path} is not a site's private prompt; it should say format {_FORMAT!r}")
            if facts["privacy"] != self._privacy:
                raise DisagreementError("the run began with other settings of [privacy] at this site")
            rounds: dict[int, Parameters] = {int(number): {} for number in facts["rounds"].split()}
            for key, value in tensors.items():
                number, _, name = key.partition(".")
                rounds[int(number)][name] = value
        except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
            raise FedotpError(f"cannot read {self.path}: {error}; restore it from a copy, or remove it") from error
        return rounds


_Line = Mapping[str, Any]


@dataclass(frozen=True)
class Required:
    """What must hold of everything that leaves a site, in all runs together.

    Attributes:
        epsilon, delta: the privacy that may be spent; delta is also no more than 1 / (training images).
        unit: what is hidden.
        noise: the least noise multiplier.
    """

    epsilon: float
    unit: Hidden
    delta: float
    noise: float

    def require(self, privacy: PrivacySettings, name: str, n_images: int = 1) -> None:
        """Refuse an order that promises less, at the site `name` with so many training images."""
        delta = min(self.delta, 1 / max(n_images, 1))
        wrong = {
            "unit": (privacy.unit not in (self.unit, "group"), show(self.unit)),
            "noise": (privacy.noise < self.noise, f"at least {self.noise:g}"),
            "delta": (privacy.delta > delta, f"at most {delta:g}"),
        }
        for key, (is_wrong, right) in wrong.items():
            if is_wrong:
                given = show(getattr(privacy, key))
                raise DisagreementError(f"site {name} requires privacy.{key} {right}; the server orders {given}")


class Ledger:
    """The updates that left a site, each a line in one file for all runs, on disk before the update leaves.

    It belongs to the site, not to a run or a folder of images: if the server renames the run, or images are added,
    copied or moved, all updates still count for all images. Noise is never the same twice: a round that is
    made again, because the server did not get or did not write down the answer, is paid for again.
    """

    def __init__(self, path: Path, run: str, settings: Settings, n_images: int, required: Required | None) -> None:
        """As `settings` order it in `run`, at a site with so many training images whose owner has `required` it."""
        self._releases = Releases(path, is_valid=_is_line)
        self._run = run
        self._privacy = settings.privacy
        self._required = required
        self._delta = min(required.delta, 1 / max(n_images, 1)) if required else settings.privacy.delta
        self._once: _Line = {"unit": "none", "noise": 0.0, "rate": 1.0, "steps": 1}
        if settings.privacy.of_steps:
            self._once = {
                "unit": settings.privacy.unit,
                "noise": settings.privacy.noise,
                "rate": settings.sampling_rate(n_images),
                "steps": settings.noisy_steps(n_images),
            }

    @property
    def steps(self) -> int:
        """The training steps behind what left in this run."""
        return sum(line["steps"] for line in self._of_run())

    def epsilon(self, rounds: int = 0) -> float:
        """What this run has spent, and would have after so many rounds more; for what it promises."""
        return _epsilon([*self._of_run(), *[self._once] * rounds], self._privacy.unit, self._privacy.delta)

    def total(self, rounds: int = 0) -> float:
        """The same of all runs, for what the owner requires (or, where nothing is, for what the run promises)."""
        unit = self._required.unit if self._required else self._privacy.unit
        return _epsilon([*self._releases.records, *[self._once] * rounds], unit, self._delta)

    def require_room(self, name: str) -> None:
        """Refuse a round that the run's budget, or the owner's for all runs, does not have room for."""
        budget = self._privacy.epsilon if self._privacy.of_steps else 0.0
        if budget and self.epsilon(1) > budget:
            raise DisagreementError(
                f"site {name} has spent epsilon {self.epsilon():.3g} of its images' privacy in this run, and another "
                f"round would exceed privacy.epsilon = {budget:g}"
            )
        if self._required and self.total(1) > self._required.epsilon:
            raise DisagreementError(
                f"site {name} has spent epsilon {self.total():.3g} of its images' privacy in all runs, and another "
                f"round, {self.total(1):.3g} with it, would exceed the {self._required.epsilon:g} that its owner allows"
            )

    def add(self, round_: int) -> None:
        """An update is about to leave."""
        self._releases.add({"run": self._run, "round": round_, **self._once})

    def _of_run(self) -> list[_Line]:
        return [line for line in self._releases.records if line["run"] == self._run]


def _epsilon(lines: Iterable[_Line], unit: str, delta: float) -> float:
    kinds: dict[tuple[float, float], int] = {}
    for line in lines:
        kind = _as_seen_by(unit, line)
        kinds[kind] = kinds.get(kind, 0) + line["steps"]
    return composed_epsilon([(*kind, steps) for kind, steps in kinds.items()], delta)


def _as_seen_by(unit: str, line: _Line) -> tuple[float, float]:
    """Noise and sampling rate of the steps of a line, for a `unit` to be hidden."""
    if line["unit"] == unit:
        return line["noise"], line["rate"]
    if (unit, line["unit"]) == ("example", "group"):
        # Without one of its images a group's clipped gradient is another one: up to 2 C away, wherever the group is
        # drawn. Renyi divergence is quasi-convex: it is no more than if the group always was.
        return line["noise"] / 2, 1.0
    return 0.0, 1.0


def _is_line(line: _Line) -> bool:
    numbers = [line.get(key) for key in ("noise", "rate", "steps", "round")]
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        return False
    return (
        isinstance(line.get("run"), str)
        and line.get("unit") in ("none", "example", "group")
        and line["noise"] >= 0
        and 0 < line["rate"] <= 1
        and type(line["steps"]) is int
        and line["steps"] >= 0
    )
