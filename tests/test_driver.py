"""What a GPU needs, begun in the background."""

import ctypes
import sys
import threading

import pytest

from fedotp import _driver


class Driver:
    """A driver that says what it was asked; `cuInit` fails where there is no GPU."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked: list[str] = []

    def cuInit(self, flags: int) -> int:  # noqa: N802
        self.asked.append("cuInit")
        return self.status

    def cuDevicePrimaryCtxRetain(self, context: object, device: int) -> int:  # noqa: N802
        self.asked.append(f"context of {device}")
        return 0


def done() -> None:
    """Wait for the thread."""
    for thread in threading.enumerate():
        if thread.name == "driver":
            thread.join()


def test_the_first_gpu_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", None)  # as where there is no Triton
    _driver.open_driver()
    done()
    assert driver.asked == ["cuInit", "context of 0"]


def test_whoever_names_a_device_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    _driver.open_driver(["seed=1", "compute.device=cpu"])
    done()
    assert not driver.asked


def test_without_a_gpu_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(100)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    _driver.open_driver()
    done()
    assert driver.asked == ["cuInit"]


def test_without_a_driver_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    _driver.open_driver()
    done()
