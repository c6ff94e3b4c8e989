"""Federations side by side, whose training and prediction are one batched computation.

Every federation runs in its own thread: sampling, averaging, writing files. For training and prediction it submits a
job and waits. When all running federations wait, those in the earliest round are joined into one group of clients with
their own seeds, learning rates and prompts. So federations synchronise even if they start in different rounds.
"""

import gc
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import torch

from fedotp._system import leave_out
from fedotp.federation._data import OnImages
from fedotp.federation._hardware import Cores
from fedotp.federation._sampling import Ints
from fedotp.federation.clients import Clients, LocalResult, LocalWork
from fedotp.federation.testing import Predictions
from fedotp.federation.together._joined import Answer, Job, Joined, Stopped, can_join
from fedotp.methods import Parameters

_PATIENCE = 0.2  # seconds between two checks for the end
_CPU_BYTES = 2**25  # of features in a step: larger tensors are allocated by the system each time (measured)


class Together:
    """Scheduler of federations that run side by side.

    Examples:
        >>> for number, error in Together().go([(one, one.run_round), (other, other.run_round)]):  # doctest: +SKIP
        ...     print(number, error or "is done")
    """

    def __init__(self) -> None:
        self._inbox: _Inbox = SimpleQueue()
        self._groups: dict[tuple[str, tuple[Clients, ...]], Joined] = {}
        self._most = 1
        self._n_fitting = 1

    def go(self, works: Sequence[tuple[Clients, Callable[[], object]]]) -> Generator[tuple[int, BaseException | None]]:
        """Run the work of every federation in a thread; yield its index in `works` and any error when it ends.

        Joint computations run in the iterating thread (on a CPU with one core for each part). If the iteration ends
        early, so do the threads.
        """
        self._most = min(federation.group_size for federation, _ in works)
        self._n_fitting = min(federation.n_fitting for federation, _ in works)
        closed, cores = threading.Event(), Cores()
        threads = []
        for number, (federation, work) in enumerate(works):
            federation.executor = executor = _Executor(number, federation, self._inbox, closed)
            threads.append(threading.Thread(target=executor.live, args=(work,), daemon=True))
        waiting: list[Job] = []
        going = len(works)
        try:
            for thread in threads:
                thread.start()
            while going:
                ended = self._all_wait(waiting, going)
                going -= len(ended)
                if going:
                    gone = {works[end.number][0] for end in ended}
                    self._groups = {key: group for key, group in self._groups.items() if gone.isdisjoint(key[1])}
                for end in sorted(ended, key=lambda end: end.number):
                    yield end.number, end.error
                self._serve(waiting, cores)
        finally:
            closed.set()
            cores.close()
            for thread in threads:
                thread.join()

    def call(self, what: Callable[[], object]) -> None:
        """Call `what` in the thread of `go`, from any thread."""
        self._inbox.put(what)

    def _all_wait(self, waiting: list[Job], going: int) -> "list[_End]":
        """Receive messages until all `going` federations are `waiting` or have ended; return the latter."""
        ended: list[_End] = []
        while len(waiting) + len(ended) < going:
            message = self._inbox.get()
            if isinstance(message, Job):
                waiting.append(message)
            elif isinstance(message, _End):
                ended.append(message)
            else:
                message()
        return ended

    def _serve(self, waiting: list[Job], cores: Cores) -> None:
        """Process the jobs in the earliest round and remove them from the list."""
        if not waiting:
            return
        first = min(job.turn for job in waiting)
        now = sorted((job for job in waiting if job.turn == first), key=lambda job: job.number)
        waiting[:] = [job for job in waiting if job.turn != first]
        on_cpu = now[0].federation.task.device.type == "cpu"
        largest = max(len(job.clients) for job in now)
        at_once = min(cores.n, max(1, max(self._n_fitting, self._most) // largest)) if on_cpu else 1
        parts = self._parts(now, at_once, largest)
        n = len(parts) if at_once == cores.n else at_once
        for start in range(0, len(parts), n):
            cores.do([partial(self._answer, part) for part in parts[start : start + n]])

    def _parts(self, jobs: list[Job], at_once: int, largest: int) -> list[list[Job]]:
        """Divide `jobs` into equal parts of jobs that can be joined and fit into memory.

        `at_once` parts run at a time; `largest` is the number of clients of the largest job.
        """
        on_cpu = jobs[0].federation.task.device.type == "cpu"
        fit = max(1, self._most // at_once // largest)
        if on_cpu:
            fit = min(fit, max(1, _CPU_BYTES // max(job.image_bytes for job in jobs)))
        parts = []
        while jobs:
            alike = [job for job in jobs if can_join(jobs[0], job)]
            jobs = [job for job in jobs if job not in alike]
            n_parts = -(-len(alike) // fit)
            n_parts = min(-(-n_parts // at_once) * at_once, len(alike))
            per_part = -(-len(alike) // n_parts)
            parts += [alike[start : start + per_part] for start in range(0, len(alike), per_part)]
        return parts

    def _answer(self, jobs: list[Job]) -> None:
        """Process `jobs` as one; after an error in halves, to isolate the jobs that cause it."""
        start = time.perf_counter()
        failure: Exception | None = None
        try:
            answers = self._group(jobs).do(jobs) if len(jobs) > 1 else [jobs[0].alone()]
        except Stopped:
            raise
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answers.put(error)
                return
            failure = error.with_traceback(None)  # the traceback references all tensors
        if failure is None:
            seconds = time.perf_counter() - start
            total = sum(len(job.clients) for job in jobs)
            for job, answer in zip(jobs, answers, strict=True):
                job.seconds = seconds * len(job.clients) / max(total, 1)
                job.answers.put(answer)
            return
        if isinstance(failure, torch.OutOfMemoryError):
            self._most = max(1, sum(len(job.clients) for job in jobs) // 2)  # the estimate was too high
            self._n_fitting = self._most
            self._groups.clear()
            gc.collect()
            torch.cuda.empty_cache()
        for half in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
            self._answer(half)

    def _group(self, jobs: Sequence[Job]) -> Joined:
        """Return the joined federations of `jobs`, in their order."""
        key = jobs[0].test, tuple(job.federation for job in jobs)
        if key not in self._groups:
            self._groups[key] = Joined(jobs)
        return self._groups[key]


@dataclass(frozen=True)
class _End:
    """Message that federation `number` has finished or failed."""

    number: int
    error: BaseException | None


_Inbox = SimpleQueue[Job | _End | Callable[[], object]]


class _Executor:
    """Executor of one federation, which submits jobs and waits for results until `closed`."""

    def __init__(self, number: int, federation: Clients, inbox: _Inbox, closed: threading.Event) -> None:
        self.number = number
        self.federation = federation
        self._inbox = inbox
        self._closed = closed

    def live(self, work: Callable[[], object]) -> None:
        """Run the federation's work in its thread."""
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # `go` reports it
            error = raised
        finally:
            self.federation.executor = None
            self._inbox.put(_End(self.number, error))

    def train(
        self,
        work: LocalWork,
        received: Parameters,
        private: Parameters,
        optimizer: Parameters | None,
        on_images: OnImages | None,
    ) -> LocalResult:
        """Train side by side with other federations."""
        job = Job(self.number, self.federation, self._closed, work.clients, received, "", work, private, optimizer)
        result = self._ask(job)
        assert isinstance(result, LocalResult)
        if on_images:
            on_images(result.n_images)
        return result

    def predict(self, clients: Ints, params: Parameters, test: str = "") -> Predictions:
        """Predict side by side with other federations."""
        predictions = self._ask(Job(self.number, self.federation, self._closed, clients, params, test))
        assert isinstance(predictions, Predictions)
        return predictions

    def _ask(self, job: Job) -> Answer:
        start = time.perf_counter()
        self._inbox.put(job)
        answer = self._answer(job)
        leave_out(time.perf_counter() - start - job.seconds)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _answer(self, job: Job) -> Answer | BaseException:
        while not self._closed.is_set():
            with suppress(Empty):
                return job.answers.get(timeout=_PATIENCE)
        return Stopped()
