"""Worker processes, each with runs side by side and, if there are several, its own GPU.

Processes are spawned, and each takes one group of runs after the other. If one dies, only its current runs fail. Ctrl-C
reaches only this process, which forwards it: every run finishes its round. If this process is killed, so are they.
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

import torch

from fedotp._imports import import_named
from fedotp._system import die_with_parent, listen, share_gpu
from fedotp.runs.many._together import Work, run_group
from fedotp.runs.many._trials import ManyObserver, Trial, Update

_HAS_SESSIONS = hasattr(os, "setsid")  # on Windows Ctrl-C reaches every process, and SIGTERM kills at once
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_CUDA_ERROR = "CUDA error:"  # torch's prefix of fatal errors; running out of memory is not one
_PATIENCE = 10.0  # seconds to wait for a process to end


@dataclass
class _Worker:
    """A process, its GPU, the parent's end of its pipe, and its unfinished trials, by name."""

    process: SpawnProcess
    gpu: str | None
    connection: Connection
    trials: dict[str, Trial]

    def give(self, group: list[Work]) -> None:
        """Send the next trials."""
        self.trials = {trial.name: trial for trial, _ in group}
        with suppress(BrokenPipeError):  # it died: its pipe ends
            self.connection.send(group)

    def stop(self) -> None:
        """Terminate the process."""
        self.process.terminate()
        self.process.join(_PATIENCE)
        self.process.kill()
        self.connection.close()

    def last_words(self) -> str:
        """Return why the process ended."""
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended with status {code}"
        by = signal.Signals(-code).name
        return f"its process was killed by {by}" + (" (possibly out of memory)" if by == "SIGKILL" else "")


def run_in_processes(groups: list[list[Work]], jobs: int, observer: ManyObserver) -> Generator[tuple[Trial, str]]:
    """Run all `groups` in `jobs` processes; yield each finished trial with its error or ""."""
    waiting = deque(groups)
    busy: list[_Worker] = []
    threads = max(1, torch.get_num_threads() // jobs)
    gpus = _gpus_to_share(groups)

    def stop() -> None:
        observer.on_interrupt()
        if _HAS_SESSIONS:
            for worker in busy:
                worker.process.terminate()

    with listen(stop) as interrupt:
        try:
            while True:
                while waiting and len(busy) < jobs and not interrupt.wanted:
                    least_used = min(gpus, key=[worker.gpu for worker in busy].count)
                    with _ctrl_c_ignored():
                        busy.append(_start(waiting.popleft(), threads, least_used, -(-jobs // len(gpus))))
                if not busy:
                    return
                ready = wait([worker.connection for worker in busy])
                for worker in [worker for worker in busy if worker.connection in ready]:
                    try:
                        message: Update | tuple[str, str] | None = worker.connection.recv()
                    except (EOFError, OSError):
                        busy.remove(worker)
                        last_words = "" if interrupt.wanted else worker.last_words()
                        yield from ((trial, last_words) for trial in worker.trials.values())
                        continue
                    if isinstance(message, Update):
                        observer.on_update(message)
                    elif message is not None:  # the name of a run that has ended, and its error or ""
                        name, error = message
                        yield worker.trials.pop(name), error
                    elif waiting and not interrupt.wanted:
                        worker.give(waiting.popleft())
                    else:
                        busy.remove(worker)
                        worker.stop()
        finally:
            for worker in busy:
                worker.stop()


def _gpus_to_share(groups: list[list[Work]]) -> list[str | None]:
    """Return the GPUs to assign to processes, as in CUDA_VISIBLE_DEVICES; [None] to leave the variable unchanged.

    It stays unchanged if a run names its GPU, such as cuda:1.
    """
    devices = {trial.config.compute.device for group in groups for trial, _ in group}
    n = torch.cuda.device_count() if devices <= {"auto", "cuda"} else 0
    listed = [name.strip() for name in os.environ.get(_VISIBLE, "").split(",") if name.strip()]
    return [*(listed or map(str, range(n)))][:n] if n > 1 else [None]


def _start(group: list[Work], threads: int, gpu: str | None, sharing: int) -> _Worker:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(
        target=_serve, args=(theirs, threads, gpu, sharing, os.getpid()), daemon=True
    )
    process.start()
    theirs.close()
    worker = _Worker(process, gpu, ours, {})
    worker.give(group)
    return worker


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Ignore Ctrl-C, also in processes started meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, threads: int, gpu: str | None, sharing: int, parent: int) -> None:
    """Run groups from the pipe, in the worker process, until the pipe is closed or the parent has ended."""
    if _HAS_SESSIONS:
        os.setsid()  # the parent receives Ctrl-C and forwards it as SIGTERM
    die_with_parent(at_once=True)  # the round in progress is lost
    if os.getppid() != parent:  # it died before `die_with_parent`
        return
    if gpu is not None:
        os.environ[_VISIBLE] = gpu  # CUDA reads it at first use, in the first run
    share_gpu(sharing)
    torch.set_num_threads(threads)
    import_named()  # before unpickling messages, which may contain these classes
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):  # the parent has ended or stops immediately
        while _served(connection):
            connection.send(None)


def _served(connection: Connection) -> bool:
    """Run the next group; return False after a CUDA error, since the process cannot run another one."""
    usable = True
    for trial, error in run_group(connection.recv(), connection.send, lambda: None):
        usable &= _CUDA_ERROR not in error
        connection.send((trial.name, error))
    return usable
