"""What a site keeps of a run: its private prompt, in a file that is replaced atomically and never sent.

Two rounds are kept: the last one, and the one it began from, the last that the server has accepted. If the server did
not get a site's answer, or was killed before it wrote it down, the site must start again from where it stood before.
"""

import json
import logging
import os
import stat
from dataclasses import asdict
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from fedotp._files import cannot_write, write_atomically
from fedotp.errors import FedotpError
from fedotp.flower._agreement import DisagreementError
from fedotp.methods import Parameters
from fedotp.privacy import PrivacySettings

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
