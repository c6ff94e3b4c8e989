"""Settings for the whole suite."""

import os

import numpy as np
import pytest
import torch
from hypothesis import settings

import anchored  # noqa: F401  (a method of the tests' own, among those that generic tests go through)
from fedotp.federation import METRICS, Metric
from fedotp.federation._metrics import Tested

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


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
