"""Several federations joined into one group of clients."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from queue import SimpleQueue
from threading import Event

import numpy as np
import torch

from fedotp.federation._data import FederatedData
from fedotp.federation._sampling import Ints
from fedotp.federation.clients import Clients, LocalResult, LocalTrainer, LocalWork
from fedotp.federation.testing import LocalTester, Predictions
from fedotp.methods import Need, Parameters

Answer = LocalResult | Predictions


class Stopped(Exception):  # noqa: N818  (not an error)
    """The results are not needed any more."""


@dataclass(eq=False)
class Job:
    """Training or, without `work`, prediction that federation `number` waits for until `closed`.

    Predictions of `clients` (C,) are for the images of a `test`, "" for the clients' own.
    """

    number: int
    federation: Clients
    closed: Event
    clients: Ints
    params: Parameters  # received in training, deployed in prediction: (C, ...)
    test: str = ""
    work: LocalWork | None = None
    private: Parameters = field(default_factory=dict)
    optimizer: Parameters | None = None
    seconds: float = 0.0  # its share of the time of the joint computation
    answers: "SimpleQueue[Answer | BaseException]" = field(default_factory=SimpleQueue)

    @cached_property
    def turn(self) -> tuple[int, bool, str, int, tuple[str, ...]]:
        """Sort key: the smallest is next, equal ones are joined; a round's evaluation precedes its training."""
        if self.work is None:
            return self.federation.round, False, self.test, 0, ()
        work = self.work
        return work.round, work.purpose == "batches", work.purpose, work.epochs, tuple(sorted(work.frozen))

    @property
    def tester(self) -> LocalTester:
        """Tester of the job's test."""
        return self.federation.testers[self.test]

    def alone(self) -> Answer:
        """Process the job without joining it with others."""
        if self.work is None:
            return self.tester.predict(self.clients, self.params)
        return self.federation.trainer.train(self.work, self.params, self.private, self.optimizer, self.go_on)

    def go_on(self, _n_images: int) -> None:
        """Raise `Stopped` after a step if the result is not needed any more."""
        if self.closed.is_set():
            raise Stopped

    @property
    def image_bytes(self) -> int:
        """Maximum bytes of the image features in a step."""
        its = self.tester
        images = its.data.test if self.work is None else its.data.train
        batch_size = its.batch_size if self.work is None else self.federation.settings.federation.batch_size
        n_images = min(batch_size, int(images.sizes(self.clients).max(initial=1)))
        config = its.task.clip.config
        n_tokens = config.n_patches if Need.TOKENS in its.method.needs else 1
        return len(self.clients) * n_images * n_tokens * config.embed_dim * its.task.dtype.itemsize


def can_join(first: Job, second: Job) -> bool:
    """True if the clients of two federations can train and predict as one group."""
    one, other = first.tester, second.tester
    return (
        first.test == second.test
        and one.task.clip is other.task.clip
        and (one.task.classes, one.task.prompt, one.task.template, one.task.authors)
        == (other.task.classes, other.task.prompt, other.task.template, other.task.authors)
        and one.data.has_the_images_of(other.data)
        and first.federation.settings.in_common() == second.federation.settings.in_common()
        and one.method == other.method
    )


class Joined:
    """The clients of the federations of `jobs`, joined into one; all jobs have the same test."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        testers = [job.tester for job in jobs]
        first = testers[0]
        self.method, self.task = first.method, first.task
        self.settings = jobs[0].federation.settings
        sizes = [len(tester.data) for tester in testers]
        self._starts = np.cumsum([0, *sizes[:-1]])
        self.data = FederatedData.side_by_side(
            [tester.data for tester in testers], [job.federation.settings.seed for job in jobs]
        )
        self._tested = first.settings
        self._tester = LocalTester(self.method, self.task, self.data, self._tested)

    @cached_property
    def _trainer(self) -> LocalTrainer:
        return LocalTrainer(self.method, self.task, self.data, self.settings)

    def do(self, jobs: Sequence[Job]) -> Sequence[Answer]:
        """Train or predict for all jobs; return a result for each."""
        clients = np.concatenate([start + job.clients for start, job in zip(self._starts, jobs, strict=True)])
        params = _cat([job.params for job in jobs])
        ends = np.cumsum([len(job.clients) for job in jobs])
        works = [job.work for job in jobs if job.work is not None]
        if not works:
            return self._predict(clients, params, [len(job.clients) for job in jobs])
        lr = works[0].lr
        if len({work.lr for work in works}) > 1:
            each = [work.lr for work in works for _ in work.clients]
            lr = torch.tensor(each, dtype=torch.float64, device=self.task.device)  # (C,)
        kept = [job.optimizer for job in jobs if job.optimizer is not None]
        result = self._trainer.train(
            replace(works[0], clients=clients, lr=lr),
            params,
            _cat([job.private for job in jobs]),
            _cat(kept) if kept else None,
            jobs[0].go_on,
        )
        rows = [slice(end - len(job.clients), end) for end, job in zip(ends, jobs, strict=True)]
        return [_part(result, part) for part in rows]

    def _predict(self, clients: Ints, params: Parameters, n_clients: Sequence[int]) -> list[Predictions]:
        tester = self._tester
        if self.task.device.type == "cpu":  # it would synchronise with a GPU
            tester = LocalTester(self.method, self.task.side_by_side(n_clients), self.data, self._tested)
        lines = tester.predict(clients, params)
        of = np.searchsorted(self._starts, lines.client, side="right") - 1
        columns = vars(lines)
        parts = []
        for number, start in enumerate(self._starts):
            mine = {name: values[of == number] for name, values in columns.items()}
            parts.append(Predictions(**{**mine, "client": mine["client"] - start}))
        return parts


def _part(result: LocalResult, rows: slice) -> LocalResult:
    """Return the result of some clients."""
    params, optimizer = ({name: value[rows] for name, value in of.items()} for of in (result.params, result.optimizer))
    return LocalResult(params, optimizer, result.loss[rows], result.images[rows])


def _cat(parts: Sequence[Parameters]) -> Parameters:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
