"""Use of the hardware: clients side by side in memory, threads, and parallel computations on one core each.

The operations of prompt learning are too small for efficient multithreading; running independent computations on one
core each is faster.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import torch

from fedotp._system import available_memory, free_gpu_bytes, memory_left
from fedotp.federation._settings import ComputeSettings, Settings
from fedotp.methods import Method, Need, Prompt, Task

_SHARE = 0.5  # of the memory that is free now
_SHARE_OF_GPU = 0.3  # a captured graph keeps its memory while the next one warms up with as much again
_TEXT_FLOATS = 40  # stored for the backward pass per token, layer and unit of width: attention, norms, the MLP's 4x
_SIMILARITY_FLOATS = 8  # per similarity: value, plan, solver scratch, gradients
_CLASS_FLOATS = 4  # per component of a class feature: raw, normalised, and derived values, twice
_COPIES = 8  # of learned parameters: received, trained, gradients, the optimizer's moments, and a graph's buffers
_ASSUMED = 4 << 30  # bytes, if the system does not report free memory (macOS, Windows)
_CPU_GROUP = 16  # larger groups need more memory and are no faster on a CPU: one client already fills the caches

_SMALL = 384  # a narrower text tower gains almost nothing from a second thread (`python -m bench threads`)


def group_size(method: Method, task: Task, settings: Settings) -> int:
    """Return the number of clients to train side by side: as set, or as many as fit into memory."""
    compute = settings.compute
    if compute.group_size:
        return compute.group_size
    fits = n_fitting(method, task, settings)
    return fits if task.device.type == "cuda" else min(fits, _CPU_GROUP)


def n_fitting(method: Method, task: Task, settings: Settings) -> int:
    """Return the number of clients that fit into memory, at least one."""
    device = task.clip.device
    share = _SHARE_OF_GPU if device.type == "cuda" else _SHARE
    return max(1, int(share * _free_bytes(device) / client_bytes(method, task, settings)))


def client_bytes(method: Method, task: Task, settings: Settings) -> float:
    """Return an upper estimate of the bytes that one client needs in training or evaluation."""
    config = task.clip.config
    n_classes = len(task.classes)
    small = _of_one_class(task)
    params = method.initial(small)
    params |= method.derived(small, params, None)
    lengths = _lengths(small, method.training_prompts(small, params))
    text = sum(task.encoder_for(n_ctx).n_units for n_ctx in lengths)
    n_images = max(settings.federation.batch_size, settings.evaluation.batch_size)
    features = 3 * n_images * (config.n_patches + 1) * config.embed_dim
    n_prompts = max(len(lengths), len(prompt_lengths(method, task)))
    classes = _CLASS_FLOATS * n_prompts * n_classes * config.embed_dim
    similarities = _SIMILARITY_FLOATS * n_images * n_classes * n_prompts
    similarities *= config.n_patches if Need.TOKENS in method.needs else 1
    learned = _COPIES * sum(value.numel() for value in params.values())
    floats = _TEXT_FLOATS * text + features + classes + similarities + learned
    return floats * task.clip.dtype.itemsize


def prompt_lengths(method: Method, task: Task) -> list[int]:
    """Return the number of vectors of each of a client's N prompts, computed for one class to save memory.

    A caption counts as a prompt of the task's length.
    """
    small = _of_one_class(task)
    return _lengths(small, method.prompts(small, method.untrained(small)))


def _of_one_class(task: Task) -> Task:
    return replace(task, classes=task.classes[:1], prompt=replace(task.prompt, per_class=False))


def _lengths(task: Task, prompts: tuple[Prompt, ...]) -> list[int]:
    return [
        task.encoder.n_ctx if prompt.context is None else prompt.context.shape[-2]
        for prompt in prompts
        for _ in range(prompt.n_prompts)
    ]


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return free_gpu_bytes(device)
    if (available := available_memory()) is not None:
        left = memory_left()
        return available if left is None else min(available, left)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError):
        return _ASSUMED


def n_threads(compute: ComputeSettings, task: Task) -> int:
    """Return the number of threads: as set, or one if the text tower of `task` is too small for more."""
    if compute.threads:
        return compute.threads
    is_small = task.device.type == "cpu" and task.encoder.width < _SMALL
    return 1 if is_small else torch.get_num_threads()


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """Make PyTorch compute with `n` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Cores:
    """The cores that PyTorch may use; `close` restores its number of threads."""

    def __init__(self) -> None:
        self.n = torch.get_num_threads()
        self._pool: ThreadPoolExecutor | None = None

    def do(self, works: Sequence[Callable[[], None]]) -> None:
        """Run all of `works`: a single one with all cores, several in parallel with one core each."""
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
        """Wait for running work and restore the number of threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self.n)


def _on_one(work: Callable[[], None]) -> None:
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)  # for this thread; the matrix library has one setting for all threads
    work()
