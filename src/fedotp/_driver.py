"""CUDA's driver, opened in the background."""

import ctypes
import threading
from contextlib import suppress


def open_driver() -> None:
    """Have CUDA's driver open the first GPU, if there is one, while the caller goes on: it takes a quarter of a second.

    Whoever calls it before `import torch` finds the GPU open afterwards; torch uses the same context of the process.
    """
    threading.Thread(target=_open, name="driver", daemon=True).start()


def _open() -> None:
    with suppress(OSError, AttributeError):  # no driver here
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
