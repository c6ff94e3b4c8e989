"""Memory that runs out: one line, the status of what may pass by itself, and a run that goes on."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_made import Fedotp

from fedotp.federation import RoundReport, Simulator

HUGE = 1 << 60


def raised(error: Exception) -> Callable[[], object]:
    def ask() -> object:
        raise error

    return ask


ASKS: dict[str, Callable[[], object]] = {
    "Python": lambda: bytearray(HUGE),
    "NumPy": lambda: np.empty(HUGE, np.uint8),
    "torch": lambda: torch.empty(HUGE, dtype=torch.uint8),
    "a GPU": raised(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has ...")),
    "a thread": raised(RuntimeError("can't start new thread")),
    "the system": raised(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))),
}


@pytest.mark.parametrize("who", ASKS)
def test_memory_that_runs_out_is_one_line_and_the_run_goes_on(
    who: str, place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_round = Simulator.run_round

    def hungry(self: Simulator, *rest: object) -> RoundReport:
        if self.round == 1:
            ASKS[who]()
        return run_round(self, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Simulator, "run_round", hungry)
        done = fedotp("run", "tiny.toml", "--out", "here", "--quiet")
    assert done.status == 75
    assert done.err.startswith("error: not enough memory")
    assert done.err.count("\n") == 1
    assert fedotp("run", "--resume", "here", "--quiet").status == 0


def test_another_bug_is_shown_as_one(place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "run_round", lambda *_: raised(RuntimeError("a bug"))())
    with pytest.raises(RuntimeError, match="a bug"):
        fedotp("run", "tiny.toml", "--out", "here", "--quiet")
