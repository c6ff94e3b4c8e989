"""What happens on a node of a cluster: a process there does the same as one of this machine.

It is given plain values only: classes of the user's own files are not known there before these are imported.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedotp import __version__
from fedotp._imports import import_named
from fedotp._system import share_gpu
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many._together import run_group
from fedotp.runs.many._trials import Trial, Update, why
from fedotp.runs.one import prepare
from fedotp.runs.watch import Observer

_UNTIL_FREE = 180.0  # seconds: file systems between machines take a while to give back what a dead one held


class Lost(Exception):  # noqa: N818  (nothing is wrong with what was to be done)
    """A node, or a process on it, is gone."""


class Cancelled(Exception):  # noqa: N818  (it was wanted)
    """It was not begun, or stopped at once."""


class Failed(Exception):  # noqa: N818  (an end of a task, as the others)
    """It could not be done, and could not be elsewhere."""


@dataclass(frozen=True)
class Place:
    """What a node must have: this version of fedotp, and the `folder` in which the command was given.

    `mark` is a file that is only there where the folder of the runs is the same. Of the GPUs that Ray chose, `gpus` are
    the process's: none, a share of one, or all.
    """

    version: str
    folder: str
    mark: str
    threads: int
    gpus: float

    def enter(self) -> None:
        """Be as a process where the command was given."""
        node = socket.gethostname()
        if self.version != __version__:
            raise FedotpError(f"node {node} has fedotp {__version__}, not {self.version}: install the same")
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise FedotpError(f"node {node} has no {self.folder}: give the command in a folder that all see") from error
        if self.mark and not os.path.exists(self.mark):
            raise FedotpError(f"node {node} does not see the runs in {Path(self.mark).parent}: choose a shared --out")
        if self.gpus == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        elif self.gpus < 1:
            share_gpu(int(1 / self.gpus))
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a cluster started in the background
            signal.signal(signal.SIGINT, signal.default_int_handler)  # by which Ray interrupts
        torch.set_num_threads(self.threads)
        import_named()


@dataclass(frozen=True)
class Ended:
    """A run has ended, and what went wrong; where nothing did, it is complete or was interrupted."""

    name: str
    error: str
    is_complete: bool = False


def prepare_there(place: Place, config: dict[str, Any], send: Callable[[object], object]) -> str:
    """Encode what is not encoded yet; return what is wrong with the input, in one line."""
    try:
        place.enter()
        prepare(Config.from_dict(config), _Sending(send))
    except FedotpError as error:
        return str(error)
    return ""


def run_there(
    place: Place, work: Sequence[tuple[str, dict[str, Any], str]], again: bool, send: Callable[[object], object]
) -> list[Ended]:
    """Run or resume a group: the name, configuration and directory of each run; `send` an `Update` or `Ended`.

    `again`: the process that had these runs was lost.
    """
    ended: list[Ended] = []
    try:
        place.enter()
        group = [(Trial(name, {}, Config.from_dict(config)), Path(path)) for name, config, path in work]
        for _, path in group if again else ():
            _wait_until_free(RunDirectory(path))
        paths = {trial.name: path for trial, path in group}
        for trial, error in run_group(group, send, lambda: None):
            ended.append(Ended(trial.name, error, RunDirectory(paths[trial.name]).is_complete))
            send(ended[-1])
    except FedotpError as error:
        known = {end.name for end in ended}
        ended += [Ended(name, why(error)) for name, _, _ in work if name not in known]
    return ended


@dataclass(frozen=True)
class Encoded:
    """So much of what all runs need is encoded."""

    what: str
    done: int
    total: int


class _Sending(Observer):
    def __init__(self, send: Callable[[object], object]) -> None:
        self.send = send

    def on_encoding(self, what: str, done: int, total: int) -> None:
        self.send(Encoded(what, done, total))


Message = Update | Ended | Encoded


def _wait_until_free(run: RunDirectory) -> None:
    """Wait for a lock that may still be that of a process which is gone."""
    deadline = time.monotonic() + _UNTIL_FREE
    while run.is_running and time.monotonic() < deadline:
        time.sleep(1)
