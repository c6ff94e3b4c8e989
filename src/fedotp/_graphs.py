"""CUDA graphs: a sequence of kernels recorded once and launched as one.

A training step of prompts is over a thousand small kernels; launching them one by one takes several times as long as
they run.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import torch

T = TypeVar("T")
_WARM_UP = 2  # runs before the recording: libraries choose their kernels, Triton compiles its own
_sharing: "WeakSet[Recorded[Any]]" = WeakSet()  # recordings that use one pool of memory


class Recorded(Generic[T]):
    """What `work` does, recorded; to be launched again on the same tensors.

    `work` reads and writes tensors that stay where they are, and must not wait for the GPU. It is run a few times to
    begin with: set the values of its tensors afterwards.
    """

    def __init__(self, work: Callable[[], T], *, shared: bool = False) -> None:
        """Run and record; whatever cannot be recorded raises RuntimeError.

        All `shared` recordings use the same memory for intermediate values: a launch of one overwrites the results of
        others, so results are to be used or copied before the next launch, in one thread.
        """
        self._graph = torch.cuda.CUDAGraph()
        others = list(_sharing) if shared else []  # one that is in use keeps the pool in existence
        pool = others[0]._graph.pool() if others else torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                work()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            with _capture(self._graph, pool):
                self.result = work()
        if shared:
            _sharing.add(self)

    def __call__(self) -> T:
        """Launch it; the result is the one of the recording, with new values in it."""
        self._graph.replay()
        return self.result


@contextmanager
def _capture(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Record into `graph`, with memory of `pool`, what is launched on the current stream.

    Python's garbage collector waits meanwhile: an older graph that it deletes would end the recording. If something
    waits for the GPU, torch's `capture_end` raises before it has cleaned up: the random generator would refuse to draw
    for the rest of the process, and the allocator would keep the recording's memory. Both are restored here.
    """
    device = torch.cuda.current_device()
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

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._made: dict[object, Recorded[T] | None] = {}

    def get(self, key: object, work: Callable[[], T]) -> Recorded[T] | None:
        """The recording of `work`, by its `key`."""
        if key not in self._made:
            try:
                self._made[key] = Recorded(work, shared=self._shared)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # it waits for the GPU somewhere, which a recording cannot
                self._made[key] = None
        return self._made[key]
