"""The cores of a CPU: how many threads compute, and several computations at once, each on a core of its own.

The operations of prompt learning are too small for several cores to share well, and some cannot be shared at all; where
there are independent computations, a core for each is the better division.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from fedotp.federation._settings import ComputeSettings
from fedotp.methods import Task

_SMALL = 384  # a text tower less wide than this gains next to nothing by a second thread (`python -m bench threads`)


def n_threads(compute: ComputeSettings, task: Task) -> int:
    """How many threads train and predict: what the settings say, or what the towers of `task` gain by."""
    if compute.threads:
        return compute.threads
    is_small = task.device.type == "cpu" and task.clip.config.text.width < _SMALL
    return 1 if is_small else torch.get_num_threads()


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """Have PyTorch compute with `n` threads, and afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Cores:
    """The cores that PyTorch may use; to be closed, so that it has them as before."""

    def __init__(self) -> None:
        self.n = torch.get_num_threads()
        self._pool: ThreadPoolExecutor | None = None

    def do(self, works: Sequence[Callable[[], None]]) -> None:
        """Do all of `works`: one alone with all cores, several with one each, as many at a time as there are."""
        if self.n == 1 or len(works) == 1:
            if self._pool is not None:
                torch.set_num_threads(self.n)
            for work in works:
                work()
            return
        self._pool = self._pool or ThreadPoolExecutor(self.n)
        for done in [self._pool.submit(_on_one, work) for work in works]:
            done.result()

    def close(self) -> None:
        """Wait for what is being done, and let everything use all cores again."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self.n)


def _on_one(work: Callable[[], None]) -> None:
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)  # of this thread; only the matrix library knows but one number for all
    work()
