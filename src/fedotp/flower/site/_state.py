"""A site's state: its private prompt in each run, and the ledger of the privacy that its updates have spent.

The private prompt is in a file that is replaced atomically and never sent. It contains two rounds: the last one, and
the accepted one from which the last one started. If the server did not receive the site's answer, or was killed before
it saved the round, the site must restart from the accepted one.
"""

import json
import logging
import math
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from fedotp._files import cannot_write, write_atomically
from fedotp.errors import FedotpError
from fedotp.federation import Settings
from fedotp.flower._agreement import DisagreementError
from fedotp.flower.site._policy import Policy, refusal, require_between
from fedotp.methods import Parameters
from fedotp.privacy import PrivacySettings, Releases, composed_epsilon

log = logging.getLogger("fedotp.site")

_OWNERS = 0o700
_UNPROMISED = PrivacySettings()


def make_private(folder: Path) -> None:
    """Make `folder` with mode 0700, or change the mode of an existing one."""
    try:
        folder.mkdir(mode=_OWNERS, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.geteuid():
            raise FedotpError(
                f"{folder} belongs to another user (uid {status.st_uid}), who could read this site's private files; "
                "choose a folder that you own"
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(_OWNERS)
            log.warning("%s was accessible to other users of this machine; changed its mode to 0700", folder)
    except OSError as error:
        raise cannot_write(folder, error) from error


class PrivateFile:
    """The private parameters of one site in one run, after its last rounds."""

    def __init__(self, path: Path, privacy: PrivacySettings = _UNPROMISED) -> None:
        """Read the file if it exists; refuse one that was written with other `privacy` settings.

        Otherwise a server could train the parameters without noise, and then request updates that depend on them.
        """
        self.path = path
        self._privacy = json.dumps(asdict(privacy), sort_keys=True)
        self._rounds = self._read() if path.is_file() else {}

    @property
    def rounds(self) -> list[int]:
        """The rounds in the file, counted from 1, in ascending order."""
        return sorted(self._rounds)

    def after(self, round_: int) -> Parameters | None:
        """Return the parameters (...) after a round; None if they are unknown."""
        return self._rounds.get(round_)

    def keep(self, round_: int, params: Parameters, accepted: int = 0) -> None:
        """Save the parameters (...) after a round that started from those after round `accepted`."""
        rounds = {number: row for number, row in self._rounds.items() if number == accepted}
        rounds[round_] = {name: value.detach().cpu().clone() for name, value in params.items()}
        tensors = {f"{number}.{name}": value for number, row in rounds.items() for name, value in row.items()}
        make_private(self.path.parent)
        content = safetensors.torch.save(tensors, metadata={"privacy": self._privacy})
        write_atomically(self.path, content, mode=0o600)
        self._rounds = rounds

    def _read(self) -> dict[int, Parameters]:
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                facts = file.metadata() or {}
                tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if facts["privacy"] != self._privacy:
                raise DisagreementError("the settings in [privacy] differ from those at the start of the run")
            rounds: dict[int, Parameters] = {}
            for key, value in tensors.items():
                number, _, name = key.partition(".")
                rounds.setdefault(int(number), {})[name] = value
        except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
            raise FedotpError(f"cannot read {self.path}: {error}; restore it from a backup, or remove it") from error
        return rounds


_Line = Mapping[str, Any]


class Ledger:
    """A log of a site's updates: one line each, in one file for all runs, on disk before the update is sent.

    It is per site, not per run or folder of images: if the server renames the run, or images are added, copied or
    moved, all updates still count for all images. Noise is drawn anew each time, so a repeated round spends privacy
    again, for example if the server did not receive or save the answer.
    """

    def __init__(self, path: Path, run: str, settings: Settings, n_images: int, policy: Policy) -> None:
        """Make the ledger for `run` with `settings`, at a site with `n_images` training images."""
        self._releases = Releases(path, is_valid=_is_line)
        self._run = run
        self._privacy = settings.privacy
        self._policy = policy
        self._unit = policy.unit or settings.privacy.unit
        self._delta = policy.delta_for(n_images) or settings.privacy.delta
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
        """The number of noisy training steps in this run."""
        return sum(line["steps"] for line in self._of_run())

    def epsilon(self, rounds: int = 0) -> float:
        """Compute the epsilon of this run after `rounds` more rounds, for the run's unit and delta."""
        return _epsilon([*self._of_run(), *[self._once] * rounds], self._privacy.unit, self._privacy.delta)

    def total(self, rounds: int = 0) -> float:
        """Compute the epsilon of all runs after `rounds` more rounds, for the owner's (or the run's) unit and delta."""
        return _epsilon([*self._releases.records, *[self._once] * rounds], self._unit, self._delta)

    def require_room(self, name: str) -> None:
        """Raise DisagreementError if another round exceeds the run's budget, or the owner's policy."""
        budget = self._privacy.epsilon if self._privacy.of_steps else 0.0
        if budget and self.epsilon(1) > budget:
            raise DisagreementError(
                f"site {name} has spent epsilon {self.epsilon():.3g} in this run; another round would exceed "
                f"privacy.epsilon = {budget:g}"
            )
        require_between("updates in a run", len(self._of_run()) + 1, most=self._policy.rounds)
        if self._policy.epsilon is not None and (after := self.total(1)) > self._policy.epsilon:
            raise refusal(
                f"this site has spent epsilon {self.total():.3g} in all runs; another round would spend {after:.3g}, "
                f"more than {self._policy.epsilon:g}"
            )

    def add(self, round_: int) -> None:
        """Log an update before it is sent."""
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
    """Return noise and sampling rate of the steps of a line for the protected `unit`."""
    if line["unit"] == unit:
        return line["noise"], line["rate"]
    if (unit, line["unit"]) == ("example", "group"):
        # Without one of its images, a group's clipped gradient differs by up to 2 C if the group is drawn. Renyi
        # divergence is quasi-convex, so it is at most that of a group that is always drawn.
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
