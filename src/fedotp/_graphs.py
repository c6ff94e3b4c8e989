"""CUDA graphs: a sequence of kernels, captured once and launched as one.

A training step of prompts has over a thousand small kernels; launching each takes several times as long as running it.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
_WARM_UP = 2  # runs before the capture, in which libraries select kernels and Triton compiles


class Recorded(Generic[T]):
    """The kernels of `work`, captured; a call launches them again on the same tensors.

    `work` must use the same memory every time and must not synchronise with the GPU. Construction runs it a few times:
    set the values of its tensors afterwards.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        """Run and capture `work`; raise `RuntimeError` if it cannot be captured."""
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
        """Launch the kernels; the result is the captured one, with new values."""
        self._graph.replay()
        return self.result


@contextmanager
def _capture(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture into `graph` the kernels launched on the current stream.

    Every capture has a pool of memory of its own: torch refuses further captures into the pool of a failed one.
    Garbage collection is paused: deleting an older graph would end the capture. If `work` synchronises with the GPU,
    torch's `capture_end` raises before it has cleaned up. The random generator would then fail for the rest of the
    process, and the allocator would keep the memory of the capture; both are restored here.
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
    """Captured work by key, captured on first use; None if it cannot be captured."""

    def __init__(self) -> None:
        self._made: dict[object, Recorded[T] | None] = {}

    def get(self, key: object, work: Callable[[], T]) -> Recorded[T] | None:
        """Return the captured `work` of this `key`."""
        if key not in self._made:
            try:
                self._made[key] = Recorded(work)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # it synchronises with the GPU, which cannot be captured
                self._made[key] = None
        return self._made[key]
