"""CUDA graphs: a sequence of kernels recorded once and launched as one.

A training step of prompts is over a thousand small kernels; launching them one by one takes several times as long as
they run.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
_WARM_UP = 2  # runs before the recording: libraries choose their kernels, Triton compiles its own


class Recorded(Generic[T]):
    """What `work` does, recorded; to be launched again on the same tensors.

    `work` reads and writes tensors that stay where they are, and must not wait for the GPU. It is run a few times to
    begin with: whoever cares what is in its tensors puts it there afterwards.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        """Run and record; whatever cannot be recorded raises RuntimeError."""
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may use the GPU
            self.result = work()

    def __call__(self) -> T:
        """Launch it; the result is the one of the recording, with new values in it."""
        self._graph.replay()
        return self.result


class Recordings(Generic[T]):
    """Works by a key, each recorded when it is first asked for; None stands for one that cannot be."""

    def __init__(self) -> None:
        self._made: dict[object, Recorded[T] | None] = {}

    def get(self, key: object, work: Callable[[], T]) -> Recorded[T] | None:
        """The recording of `work`, which `key` tells from others."""
        if key not in self._made:
            try:
                self._made[key] = Recorded(work)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # it waits for the GPU somewhere, which a recording cannot
                torch.cuda.synchronize()
                self._made[key] = None
        return self._made[key]
