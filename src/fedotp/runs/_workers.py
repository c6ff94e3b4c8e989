"""Several runs at a time, each in a process of its own.

Processes are spawned, and each takes one run after the other. One that dies takes only its run with it. Ctrl-C reaches
this process alone, which passes it on: every run ends its round. If this process is killed, so are they.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from fedotp._interrupt import listen
from fedotp._processes import die_with_parent
from fedotp.runs._trial_run import ManyObserver, Update, run_one
from fedotp.runs._trials import Trial

Work = tuple[Trial, Path]

_HAS_SESSIONS = hasattr(os, "setsid")  # on Windows Ctrl-C reaches every process, and SIGTERM kills at once
_PATIENCE = 10.0  # seconds to wait for a process that was asked to end


@dataclass
class _Worker:
    """A process, the parent's end of its pipe, and what it works on."""

    process: SpawnProcess
    connection: Connection
    trial: Trial

    def give(self, work: Work) -> None:
        """Hand over the next trial."""
        self.trial = work[0]
        with suppress(BrokenPipeError):  # it died: the end of its pipe will tell
            self.connection.send(work)

    def stop(self) -> None:
        """End the process now."""
        self.process.terminate()
        self.process.join(_PATIENCE)
        self.process.kill()
        self.connection.close()

    def last_words(self) -> str:
        """Why the process is gone."""
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended with status {code}"
        by = signal.Signals(-code).name
        return f"its process was ended by {by}" + (" (was there enough memory?)" if by == "SIGKILL" else "")


def run_in_processes(work: list[Work], jobs: int, observer: ManyObserver) -> Generator[tuple[Trial, str]]:
    """Run all `work` in `jobs` processes; yield each trial when it ends, with what went wrong."""
    waiting = deque(work)
    busy: list[_Worker] = []
    threads = max(1, torch.get_num_threads() // jobs)

    def stop() -> None:
        observer.on_interrupt()
        if _HAS_SESSIONS:
            for worker in busy:
                worker.process.terminate()

    with listen(stop) as interrupt:
        try:
            while True:
                while waiting and len(busy) < jobs and not interrupt.wanted:
                    with _ctrl_c_ignored():
                        busy.append(_start(waiting.popleft(), threads))
                if not busy:
                    return
                ready = wait([worker.connection for worker in busy])
                for worker in [worker for worker in busy if worker.connection in ready]:
                    try:
                        message: Update | str = worker.connection.recv()
                    except (EOFError, OSError):
                        busy.remove(worker)
                        yield worker.trial, "" if interrupt.wanted else worker.last_words()
                        continue
                    if isinstance(message, Update):
                        observer.on_update(message)
                        continue
                    ended = worker.trial
                    if waiting and not interrupt.wanted:
                        worker.give(waiting.popleft())
                    else:
                        busy.remove(worker)
                        worker.stop()
                    yield ended, message
        finally:
            for worker in busy:
                worker.stop()


def _start(work: Work, threads: int) -> _Worker:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve, args=(theirs, threads, os.getpid()), daemon=True)
    process.start()
    theirs.close()
    worker = _Worker(process, ours, work[0])
    worker.give(work)
    return worker


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """What is started within inherits that it ignores Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, threads: int, parent: int) -> None:
    """In the process: run what comes through the pipe until it is closed, or the parent is gone."""
    if _HAS_SESSIONS:
        os.setsid()  # Ctrl-C is for the parent, which passes it on as SIGTERM
    die_with_parent(at_once=True)  # the round is lost, as the parent's own would be
    if os.getppid() != parent:  # it died before the kernel was told
        return
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):  # the parent is gone, or wants an end at once
        while True:
            trial, path = connection.recv()
            connection.send(run_one(trial, path, connection.send, lambda: None))
