"""CUDA graphs: a sequence of kernels recorded once and launched as one.

A training step of prompts is over a thousand small kernels; launching them one by one takes several times as long as
they run.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
_WARM_UP = 2  # runs before the recording: libraries choose their kernels, Triton compiles its own


class Recorded(Generic[T]):
    """What `work` does, recorded; to be launched again on the same tensors.

    `work` reads and writes tensors that stay where they are, and must not wait for the GPU. It is run a few times to
    begin with: set the values of its tensors afterwards.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        """Run and record; whatever cannot be recorded raises RuntimeError."""
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                work()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            with _capture(self._graph):
                self.result = work()

    def __call__(self) -> T:
        """Launch it; the result is the one of the recording, with new values in it."""
        self._graph.replay()
        return self.result


@contextmanager
def _capture(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Record into `graph` what is launched on the current stream.

    Python's garbage collector waits meanwhile: an older graph that it deletes would end the recording. If something
    waits for the GPU, torch's `capture_end` raises before it has cleaned up: the random generator would refuse to draw
    for the rest of the process, and the allocator would keep the recording's memory. Both are restored here.
    """
    device, pool = torch.cuda.current_device(), torch.cuda.graph_pool_handle()
    generator = torch.cuda.default_generators[device]
    state, collects = generator.get_state(), gc.isenabled()
    gc.disable()
    graph.capture_begin(pool, capture_error_mode="thread_local")  # other threads may use the GPU
    try:
        yield
    finally:
        try:
            graph.capture_end()
        except RuntimeError:
            fresh = torch.Generator(f"cuda:{device}")
            fresh.set_state(state)
            generator.graphsafe_set_state(fresh)
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)
            torch.cuda.synchronize()
            raise
        finally:
            if collects:
                gc.enable()


class Recordings(Generic[T]):
    """Works by a key, each recorded when it is first asked for; None stands for one that cannot be."""

    def __init__(self) -> None:
        self._made: dict[object, Recorded[T] | None] = {}

    def get(self, key: object, work: Callable[[], T]) -> Recorded[T] | None:
        """The recording of `work`, by its `key`."""
        if key not in self._made:
            try:
                self._made[key] = Recorded(work)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # it waits for the GPU somewhere, which a recording cannot
                self._made[key] = None
        return self._made[key]
