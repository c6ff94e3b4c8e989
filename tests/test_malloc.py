"""Freed memory is kept for the next tensors, where glibc manages it and nobody said otherwise."""

import os
import platform
import subprocess
import sys

import pytest

TAKE_AND_FREE = """
import resource, sys, threading
import numpy as np
from fedotp._malloc import keep_freed
if sys.argv[1] == "kept":
    keep_freed()
def work():
    for _ in range(20):
        np.ones(4_000_000)  # 32 MB
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults(how: str, **environment: str) -> int:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(
        [sys.executable, "-c", TAKE_AND_FREE, how],
        env={
            **kept,
            "NUMPY_MADVISE_HUGEPAGE": "0",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another library manages memory here")
def test_large_pieces_are_taken_from_the_system_once() -> None:
    plain = faults("plain", MALLOC_MMAP_THRESHOLD_="131072")
    assert faults("kept") < plain / 10
    assert faults("kept", MALLOC_MMAP_THRESHOLD_="131072") > plain / 2  # who says how it is to be done is obeyed
