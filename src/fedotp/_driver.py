"""What a GPU needs before anything is computed, begun in the background: it takes as long as importing torch does."""

import ctypes
import threading
from collections.abc import Sequence
from contextlib import suppress


def open_driver(changes: Sequence[str] = ()) -> None:
    """Have CUDA's driver open the first GPU, if there is one, and Triton find out what it is, while the caller goes on.

    Whoever calls it before `import torch` finds the GPU open afterwards: torch uses the same context of the process.
    Triton hashes hundreds of megabytes of itself before it loads a kernel that it has compiled earlier. Nothing is done
    where one of `changes` to a configuration says where to compute.
    """
    if any(change.startswith("compute.device=") for change in changes):
        return
    threading.Thread(target=_open, name="driver", daemon=True).start()


def _open() -> None:
    with suppress(Exception):  # no driver here, or no Triton: what is needed is asked for again, and missed then
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
            from triton.runtime.cache import triton_key

            triton_key()
