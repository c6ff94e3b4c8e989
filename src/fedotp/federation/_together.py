"""Federations side by side: what several train and predict at the same time is one batched computation.

Every federation goes its own way in a thread of its own: it samples, averages, writes its files. Only for what is
expensive it comes to one place and waits. When all that still go are waiting, those furthest behind are served as one:
their clients in a row are a group like any other, with seeds, learning rates and prompts of their own. So federations
that began in different rounds, or are evaluated in different rounds, find into step.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from queue import Empty, SimpleQueue

import numpy as np
import torch
from torch import Tensor

from fedotp._clock import leave_out
from fedotp.federation._clients import Clients
from fedotp.federation._data import FederatedData
from fedotp.federation._evaluate import Predictions, predict
from fedotp.federation._local import LocalResult, LocalTrainer, LocalWork, OnImages
from fedotp.federation._random import Ints
from fedotp.federation._settings import (
    EvaluationSettings,
    OptimizerSettings,
    RoundSettings,
    ServerStepSettings,
    Settings,
)
from fedotp.methods import Parameters

_PATIENCE = 0.2  # seconds after which somebody who waits looks whether he still should


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """Nobody serves any more."""


def in_common(settings: Settings) -> Settings:
    """What federations side by side must agree on; all else is each one's own, and is the default here."""
    rounds, optimizer = settings.federation, settings.optimizer
    return Settings(
        RoundSettings(local_epochs=rounds.local_epochs, batch_size=rounds.batch_size, drop_last=rounds.drop_last),
        replace(optimizer, lr=OptimizerSettings.lr, schedule=OptimizerSettings.schedule, warmup_rounds=0),
        ServerStepSettings(),
        EvaluationSettings(batch_size=settings.evaluation.batch_size),
        settings.compute,
    )


class Together:
    """Federations that go side by side.

    Example:
        >>> for number, error in Together().go([(one, one.run_round), (other, other.run_round)]):  # doctest: +SKIP
        ...     print(number, error or "is done")
    """

    def __init__(self) -> None:
        self._inbox: _Inbox = SimpleQueue()
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._most = 1

    def go(self, works: Sequence[tuple[Clients, Callable[[], object]]]) -> Generator[tuple[int, BaseException | None]]:
        """Do the work of every federation; yield its place among `works` when it has ended, with what went wrong.

        Each works in a thread of its own. What is expensive is done here, in the thread of whoever iterates; where
        that ends early, so do they.
        """
        self._most = min(federation.group_size for federation, _ in works)
        closed = threading.Event()
        threads = []
        for number, (federation, work) in enumerate(works):
            federation.place = place = _Place(number, federation, self._inbox, closed)
            threads.append(threading.Thread(target=place.live, args=(work,), daemon=True))
        waiting: list[_Job] = []
        going = len(works)
        try:
            for thread in threads:
                thread.start()
            while going:
                ended = self._all_wait(waiting, going)
                going -= len(ended)
                self._forget({end.number for end in ended})
                for end in sorted(ended, key=lambda end: end.number):
                    yield end.number, end.error
                self._serve(waiting)
        finally:
            closed.set()
            for thread in threads:
                thread.join()

    def call(self, what: Callable[[], object]) -> None:
        """Have `what` called in the thread of `go`; for those who are in another."""
        self._inbox.put(what)

    def _all_wait(self, waiting: "list[_Job]", going: int) -> "list[_End]":
        """Take messages until all federations that are `going` are `waiting`, or have ended; return the latter."""
        ended: list[_End] = []
        while len(waiting) + len(ended) < going:
            message = self._inbox.get()
            if isinstance(message, _Job):
                waiting.append(message)
            elif isinstance(message, _End):
                ended.append(message)
            else:
                message()
        return ended

    def _forget(self, gone: set[int]) -> None:
        """Let go of what was made for groups that will not come again."""
        self._groups = {numbers: group for numbers, group in self._groups.items() if gone.isdisjoint(numbers)}

    def _serve(self, waiting: "list[_Job]") -> None:
        """Do what those furthest behind wait for, and take it off the list."""
        first = min((job.turn for job in waiting), default=None)
        now = sorted((job for job in waiting if job.turn == first), key=lambda job: job.number)
        waiting[:] = [job for job in waiting if job.turn != first]
        while now:
            part = [now[0]]
            for job in now[1:]:
                n_clients = sum(len(other.clients) for other in part) + len(job.clients)
                if n_clients <= self._most and _can_join(part[0].federation, job.federation):
                    part.append(job)
            now = [job for job in now if job not in part]
            self._answer(part)

    def _answer(self, jobs: "list[_Job]") -> None:
        """Do `jobs` as one; where that fails, in halves, so that an error meets only those it is of."""
        start = time.perf_counter()
        failure: Exception | None = None
        try:
            answers = self._group(jobs).do(jobs) if len(jobs) > 1 else [jobs[0].alone()]
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answers.put(error)
                return
            failure = error.with_traceback(None)  # it holds all that was in memory
        if failure is None:
            seconds = time.perf_counter() - start
            total = sum(len(job.clients) for job in jobs)
            for job, answer in zip(jobs, answers, strict=True):
                job.seconds = seconds * len(job.clients) / max(total, 1)
                job.answers.put(answer)
            return
        if isinstance(failure, torch.OutOfMemoryError):
            self._most = max(1, sum(len(job.clients) for job in jobs) // 2)  # the estimate was too high
            self._groups.clear()
        for half in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
            self._answer(half)

    def _group(self, jobs: "Sequence[_Job]") -> "_Group":
        """The federations of `jobs`, in their order, as one."""
        numbers = tuple(job.number for job in jobs)
        if numbers not in self._groups:
            self._groups[numbers] = _Group([job.federation for job in jobs])
        return self._groups[numbers]


Answer = LocalResult | Predictions


@dataclass(eq=False)
class _Job:
    """What federation `number` waits for: the training, or without `work` the prediction, of `clients` (C,)."""

    number: int
    federation: Clients
    clients: Ints
    params: Parameters  # received in training, deployed in prediction: (C, ...)
    work: LocalWork | None = None
    private: Parameters = field(default_factory=dict)
    optimizer: Parameters | None = None
    seconds: float = 0.0  # what it took, its share of what was done for all
    answers: "SimpleQueue[Answer | BaseException]" = field(default_factory=SimpleQueue)

    @cached_property
    def turn(self) -> tuple[int, bool, str, int, tuple[str, ...]]:
        """The smallest turn is next, and equal ones are done as one. A round's evaluation comes before its training."""
        if self.work is None:
            return self.federation.round, False, "", 0, ()
        work = self.work
        return work.round, work.purpose == "batches", work.purpose, work.epochs, tuple(sorted(work.frozen))

    def alone(self) -> Answer:
        """Do it as if there were nobody else."""
        its = self.federation
        if self.work is None:
            return predict(its.method, its.task, its.data, self.clients, self.params, its.settings)
        return its.trainer.compute(self.work, self.params, self.private, self.optimizer)


@dataclass(frozen=True)
class _End:
    """Federation `number` has done its work, or failed."""

    number: int
    error: BaseException | None


_Inbox = SimpleQueue[_Job | _End | Callable[[], object]]


class _Place:
    """Where one federation waits until it is served, or all is `closed`."""

    def __init__(self, number: int, federation: Clients, inbox: _Inbox, closed: threading.Event) -> None:
        self.number = number
        self.federation = federation
        self._inbox = inbox
        self._closed = closed

    def live(self, work: Callable[[], object]) -> None:
        """In its thread: do the federation's work."""
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # whatever it is, somebody waits to hear of it
            error = raised
        finally:
            self.federation.place = None
            self._inbox.put(_End(self.number, error))

    def train(
        self,
        work: LocalWork,
        received: Parameters,
        private: Parameters,
        optimizer: Parameters | None,
        on_images: OnImages | None,
    ) -> LocalResult:
        """Train beside others; who diverges there is told alone."""
        job = _Job(self.number, self.federation, work.clients, received, work, private, optimizer)
        result = self._ask(job)
        assert isinstance(result, LocalResult)
        if on_images:
            on_images(result.n_images)
        self.federation.trainer.require_finite(result, work)
        return result

    def predict(self, clients: Ints, params: Parameters) -> Predictions:
        """Predict beside others."""
        predictions = self._ask(_Job(self.number, self.federation, clients, params))
        assert isinstance(predictions, Predictions)
        return predictions

    def _ask(self, job: _Job) -> Answer:
        start = time.perf_counter()
        self._inbox.put(job)
        answer = self._answer(job)
        leave_out(time.perf_counter() - start - job.seconds)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _answer(self, job: _Job) -> Answer | BaseException:
        while not self._closed.is_set():
            with suppress(Empty):
                return job.answers.get(timeout=_PATIENCE)
        return Stopped()


def _can_join(one: Clients, other: Clients) -> bool:
    """Whether the clients of two federations can be those of one while they train and predict."""
    return (
        one.task.clip is other.task.clip
        and (one.task.classes, one.task.prompt, one.task.template)
        == (other.task.classes, other.task.prompt, other.task.template)
        and one.data.has_the_images_of(other.data)
        and in_common(one.settings) == in_common(other.settings)
        and one.method.side_by_side([other.method]) is not None
        and (one.method == other.method or one.task.device.type == "cpu")  # the GPU's kernel knows one mass
    )


class _Group:
    """The clients of several federations in a row, as those of one."""

    def __init__(self, federations: Sequence[Clients]) -> None:
        first = federations[0]
        joined = first.method.side_by_side([other.method for other in federations[1:]])
        assert joined is not None
        self.method, self._added = joined
        self.task = first.task
        self.settings = first.settings
        sizes = [len(federation.data) for federation in federations]
        self._starts = np.cumsum([0, *sizes[:-1]])
        self.data = FederatedData.side_by_side(
            [federation.data for federation in federations], [federation.settings.seed for federation in federations]
        )
        self._trainer = LocalTrainer(self.method, self.task, self.data, self.settings)

    def do(self, jobs: Sequence[_Job]) -> Sequence[Answer]:
        """Train or predict for all; an answer for each."""
        clients = np.concatenate([start + job.clients for start, job in zip(self._starts, jobs, strict=True)])
        params = _cat([self._with_added(number, job) for number, job in enumerate(jobs)])
        ends = np.cumsum([len(job.clients) for job in jobs])
        works = [job.work for job in jobs if job.work is not None]
        if not works:
            return self._predict(clients, params, [len(job.clients) for job in jobs])
        kept = [job.optimizer for job in jobs if job.optimizer is not None]
        result = self._trainer.compute(
            replace(works[0], clients=clients, lr=self._learning_rates(works)),
            params,
            _cat([job.private for job in jobs]),
            _cat(kept) if kept else None,
        )
        rows = [slice(end - len(job.clients), end) for end, job in zip(ends, jobs, strict=True)]
        return [self._part(result, part, job) for part, job in zip(rows, jobs, strict=True)]

    def _with_added(self, number: int, job: _Job) -> Parameters:
        added = {
            name: value.to(self.task.device).expand(len(job.clients), *value.shape)
            for name, value in self._added[number].items()
        }
        return job.params | added

    def _learning_rates(self, works: Sequence[LocalWork]) -> float | Tensor:
        """One for all, or (C,) of each client."""
        if len({work.lr for work in works}) == 1:
            return works[0].lr
        each = [work.lr for work in works for _ in work.clients]
        return torch.tensor(each, dtype=torch.float64, device=self.task.device)

    def _part(self, result: LocalResult, rows: slice, job: _Job) -> LocalResult:
        """What is of one federation."""
        names = result.params.keys() - self._added[0].keys()
        return LocalResult(
            params={name: value[rows] for name, value in result.params.items() if name in names},
            optimizer={name: value[rows] for name, value in result.optimizer.items()},
            loss=result.loss[rows],
            images=result.images[rows],
        )

    def _predict(self, clients: Ints, params: Parameters, n_clients: Sequence[int]) -> list[Predictions]:
        task = self.task.side_by_side(n_clients)
        lines = predict(self.method, task, self.data, clients, params, self.settings)
        of = np.searchsorted(self._starts, lines.client, side="right") - 1
        columns = vars(lines)
        parts = []
        for number, start in enumerate(self._starts):
            mine = {name: values[of == number] for name, values in columns.items()}
            parts.append(Predictions(**{**mine, "client": mine["client"] - start}))
        return parts


def _cat(parts: Sequence[Parameters]) -> Parameters:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
