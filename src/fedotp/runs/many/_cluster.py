"""The nodes of a Ray cluster, each with groups of runs side by side.

The queue of groups is kept in this process; Ray places each group on a node. If its node or process is lost, the group
continues elsewhere from the last checkpoints. Ctrl-C is passed on: every run ends its round.
"""

import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedotp import __version__
from fedotp._values import require
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.runs.many._node import Encoded, Place, prepare_there
from fedotp.runs.many._together import Work, side_by_side
from fedotp.runs.many._trials import ManyObserver, Trial
from fedotp.runs.one import Preparation

if TYPE_CHECKING:  # Ray is an extra, and slow to import
    from fedotp.runs.many._ray import Cluster, Mailbox, Need, Task

import time
from collections import deque
from dataclasses import field

from fedotp._system import listen
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many._node import Cancelled, Ended, Failed, Lost, Message, run_there
from fedotp.runs.many._trials import Update


@dataclass(frozen=True)
class RayCluster:
    """The cluster that `ray start` made, or the one at $RAY_ADDRESS; an `Engine`.

    Its nodes have the same fedotp, and see the folder in which the command is given as well as that of the runs.

    Attributes:
        jobs: groups of runs at a time; None: as many as there is room for.
        cpus: cores of each, and threads: with another number, results differ by rounding.
        gpus: GPUs of each, or a share of one; None: one, unless the runs or the nodes have no use for it.
    """

    jobs: int | None = None
    cpus: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        require(self.jobs is None or self.jobs >= 1, "jobs", self.jobs, "1 or more")
        require(self.cpus >= 1, "cpus", self.cpus, "1 or more")
        gpus = self.gpus or 0.0
        require(0 <= gpus <= 1 or (gpus > 1 and gpus % 1 == 0), "gpus", gpus, "a whole number, or a share such as 0.5")

    def prepare(self, configs: Sequence[Config], observer: ManyObserver) -> list[FedotpError | Preparation | None]:
        """On nodes, with as much of them as a group of runs has; one after the other, for they share images."""
        if not configs:
            return []
        cluster = _connected()
        need = self._need(cluster, configs)
        with cluster.mailbox() as mail:
            return [self._prepare(cluster, mail, need, config, observer) for config in configs]

    def _prepare(
        self, cluster: "Cluster", mail: "Mailbox", need: "Need", config: Config, observer: ManyObserver, left: int = 3
    ) -> FedotpError | None:
        """Of one; where its node is lost, on another: `left` is how often it is tried."""
        task = cluster.start(need, prepare_there, self._place(need), config.to_dict(), mail.send)
        try:
            ready: list[Task] = []
            while not ready:
                messages, ready = mail.wait([task])
                for message in messages:
                    if isinstance(message, Encoded):
                        observer.on_encoding(message.what, message.done, message.total)
            error = cluster.result(task)
        except Lost as lost:
            if left > 1:
                return self._prepare(cluster, mail, need, config, observer, left - 1)
            error = f"images could not be encoded: {lost}"
        except Failed as failure:
            error = str(failure)
        finally:
            cluster.cancel([task], force=True)
        return FedotpError(error) if error else None

    def run(
        self, work: Sequence[Work], observer: ManyObserver, ready: Preparation | None
    ) -> Generator[tuple[Trial, str]]:
        """Wherever there is room, as many groups at a time as there is room for."""
        if not work:
            return
        cluster = _connected()
        need = self._need(cluster, [trial.config for trial, _ in work])
        groups = side_by_side(work, self.jobs or cluster.room(need))
        with cluster.mailbox() as mail, _mark(work[0][1].parent) as mark:
            place = self._place(need, mark)
            yield from Queue(cluster, mail, need, place, self.jobs or len(groups), observer).go(groups)

    def _need(self, cluster: "Cluster", configs: Sequence[Config]) -> "Need":
        """What a group takes of a node; refused if no node has it."""
        gpus = self.gpus
        if gpus is None:
            devices = {config.compute.device for config in configs}
            named = any(device.startswith("cuda") for device in devices)
            gpus = float(named or ("auto" in devices and cluster.room((self.cpus, 1.0)) > 0))
        need = (self.cpus, gpus)
        if not cluster.room(need):
            what = f"{self.cpus} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
            raise FedotpError(f"no node of the Ray cluster has {what}: lower --cpus or --gpus (see `ray status`)")
        return need

    def _place(self, need: "Need", mark: str = "") -> Place:
        cpus, gpus = need
        return Place(__version__, os.getcwd(), mark, cpus, gpus)


def _connected() -> "Cluster":
    if find_spec("ray") is None:
        raise FedotpError("--engine ray needs Ray: pip install 'fedotp[ray]'")
    from fedotp.runs.many._ray import Cluster

    return Cluster()


@contextmanager
def _mark(folder: Path) -> Iterator[str]:
    """A file in the folder of the runs, by which nodes know that it is the same folder there."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.NamedTemporaryFile(dir=folder.absolute(), prefix=".cluster-") as file:
            yield file.name
    finally:
        if is_new:
            with suppress(OSError):  # there are runs in it
                folder.rmdir()


_LOSSES = 3  # of one group without a round between them: it is the group that is too much for a node
_PAUSE = 2.0  # seconds, times losses: a cluster takes a while to see that a node is gone
_UNTIL_SEEN = 90.0  # seconds that a shared file system may take to show what another machine wrote


@dataclass(eq=False)
class _Group:
    """Runs side by side: those that have not ended, by name."""

    left: dict[str, Work]
    losses: int = 0
    not_before: float = 0.0
    began: dict[str, int] = field(default_factory=dict)  # in which round each began or went on

    def hear(self, update: Update) -> None:
        """A group that gets on is not to blame for losses before."""
        if update.round > self.began.setdefault(update.name, update.round):
            self.losses = 0


class Queue:
    """At most `most` groups at a time are given to the cluster."""

    def __init__(
        self, cluster: "Cluster", mail: "Mailbox", need: "Need", place: Place, most: int, observer: ManyObserver
    ) -> None:
        self._cluster = cluster
        self._mail = mail
        self._need = need
        self._place = place
        self._most = most
        self._observer = observer
        self._waiting: deque[_Group] = deque()
        self._busy: dict[Task, _Group] = {}

    def go(self, groups: Sequence[Sequence[Work]]) -> Generator[tuple[Trial, str]]:
        """Run or resume all groups; yield each trial when it ends, with what went wrong."""
        self._waiting.extend(_Group({trial.name: (trial, path) for trial, path in group}) for group in groups)
        passed_on = False
        with listen(self._observer.on_interrupt) as interrupt:
            try:
                while self._busy or (self._waiting and not interrupt.wanted):
                    if not interrupt.wanted:
                        self._start()
                    elif not passed_on:
                        self._cluster.cancel(self._busy, force=False)
                        passed_on = True
                    messages, ready = self._mail.wait([*self._busy])
                    for message in messages:
                        yield from self._hear(message)
                    for task in ready:
                        yield from self._end(task, interrupted=interrupt.wanted)
            finally:
                self._cluster.cancel(self._busy, force=True)

    def _start(self) -> None:
        now = time.monotonic()
        for group in [group for group in self._waiting if group.not_before <= now]:
            if len(self._busy) == self._most:
                return
            self._waiting.remove(group)
            group.began.clear()
            work = [(name, trial.config.to_dict(), str(path.absolute())) for name, (trial, path) in group.left.items()]
            again = group.losses > 0
            self._busy[self._cluster.start(self._need, run_there, self._place, work, again, self._mail.send)] = group

    def _hear(self, message: Message) -> Generator[tuple[Trial, str]]:
        """Of a run whose end is known already, nothing is news."""
        for group in self._busy.values():
            if isinstance(message, Update) and message.name in group.left:
                group.hear(message)
                self._observer.on_update(message)
            elif isinstance(message, Ended) and message.name in group.left:
                yield _ended(group, message)

    def _end(self, task: "Task", *, interrupted: bool) -> Generator[tuple[Trial, str]]:
        """A group has ended, or is lost."""
        group, error = self._busy.pop(task), ""
        try:
            for end in self._cluster.result(task):
                if end.name in group.left:
                    yield _ended(group, end)
        except Cancelled:
            if not group.began:
                return
        except Lost as lost:
            group.losses += 1
            if group.losses < _LOSSES and not interrupted:
                group.not_before = time.monotonic() + _PAUSE * group.losses
                self._waiting.appendleft(group)
                for name in group.left:
                    self._observer.on_lost(name, str(lost))
                return
            error = "" if interrupted else f"lost {group.losses} times without a round between: {lost}"
        except Failed as failure:
            error = "" if interrupted else str(failure)  # Ray may not manage to interrupt a task cleanly
        yield from ((trial, error) for trial, _ in group.left.values())


def _ended(group: _Group, end: Ended) -> tuple[Trial, str]:
    trial, path = group.left.pop(end.name)
    if end.is_complete:
        _wait_until_seen(path)
    return trial, end.error


def _wait_until_seen(path: Path) -> None:
    """Until the last file of a run that is complete is seen on this machine, too."""
    deadline = time.monotonic() + _UNTIL_SEEN
    while not RunDirectory(path).is_complete and time.monotonic() < deadline:
        os.listdir(path)  # looks again at what a shared file system remembers
        time.sleep(1)
