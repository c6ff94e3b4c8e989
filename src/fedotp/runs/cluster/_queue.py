"""Groups of runs that wait for a place on a cluster, and groups that go.

Which runs are left is known here alone; Ray finds the place for a group. One whose node or process is lost goes on
elsewhere from the last checkpoints. Ctrl-C is passed on: every run ends its round.
"""

import os
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedotp._interrupt import listen
from fedotp.runs._directory import RunDirectory
from fedotp.runs._together import Work
from fedotp.runs._trial_run import ManyObserver, Update
from fedotp.runs._trials import Trial
from fedotp.runs.cluster._node import Ended, Message, Place, run_there
from fedotp.runs.cluster._ray import Cancelled, Cluster, Failed, Lost, Mailbox, Need, Task

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
        self, cluster: Cluster, mail: Mailbox, need: Need, place: Place, most: int, observer: ManyObserver
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
            self._busy[self._cluster.start(self._need, run_there, self._place, work, again, self._mail.tell)] = group

    def _hear(self, message: Message) -> Generator[tuple[Trial, str]]:
        """Of a run whose end is known already, nothing is news."""
        for group in self._busy.values():
            if isinstance(message, Update) and message.name in group.left:
                group.hear(message)
                self._observer.on_update(message)
            elif isinstance(message, Ended) and message.name in group.left:
                yield _ended(group, message)

    def _end(self, task: Task, *, interrupted: bool) -> Generator[tuple[Trial, str]]:
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
