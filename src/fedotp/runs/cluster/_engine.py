"""The nodes of a Ray cluster, each with runs side by side."""

import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedotp import __version__
from fedotp._ranges import require
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.runs._together import Work, side_by_side
from fedotp.runs._trial_run import ManyObserver
from fedotp.runs._trials import Trial
from fedotp.runs.cluster._node import Encoded, Place, prepare_there

if TYPE_CHECKING:  # Ray is an extra, and slow to import
    from fedotp.runs.cluster._ray import Cluster, Mailbox, Need, Task


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

    def prepare(self, configs: Sequence[Config], observer: ManyObserver) -> list[FedotpError | None]:
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
        from fedotp.runs.cluster._ray import Failed, Lost

        task = cluster.start(need, prepare_there, self._place(need), config.to_dict(), mail.tell)
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

    def run(self, work: Sequence[Work], observer: ManyObserver) -> Generator[tuple[Trial, str]]:
        """Wherever there is room, as many groups at a time as there is room for."""
        from fedotp.runs.cluster._queue import Queue

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
    from fedotp.runs.cluster._ray import Cluster

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
