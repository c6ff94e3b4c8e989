"""Settings for the whole suite."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

import anchored  # noqa: F401  (a method of the tests' own, among those that generic tests go through)
from fedotp.federation import METRICS, Metric
from fedotp.federation._metrics import Tested
from small_box import write_small_box

if not torch.cuda.is_available():  # before anything imports Triton: its kernels then run on the CPU, slowly
    os.environ["TRITON_INTERPRET"] = "1"

# One thread per worker: the suite runs one worker per core, and tiny tensors gain nothing from more.
torch.set_num_threads(1)

settings.register_profile("fedotp", deadline=None, derandomize=True)
settings.load_profile("fedotp")


@pytest.fixture
def worst_recall(monkeypatch: pytest.MonkeyPatch) -> Metric:
    """One more metric, added as any other is: by one entry."""

    def least(tested: Tested) -> np.ndarray:
        hits, all_ = tested.hits(), tested.count(tested.label)
        return np.nanmin(np.divide(hits, all_, out=np.full_like(hits, np.nan), where=all_ > 0), 1)

    metric = Metric("worst_recall", "worst recall", least)
    monkeypatch.setitem(METRICS, metric.key, metric)
    return metric


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """Nothing waits for the disk: what is whole after a kill does not depend on it, and nobody pulls the plug here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all workers of this session: what one has made, the others need not make again."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def small_box(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a few images that come with fedotp; they are encoded once for all who run on them."""
    write_small_box(shared_folder / "box")
    monkeypatch.setenv("FEDOTP_CACHE", str(shared_folder / "cache"))
    return shared_folder / "box"
