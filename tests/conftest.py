"""Settings for the whole suite."""

import os

import pytest
import torch
from hypothesis import settings

import anchored  # noqa: F401  (a method of the tests' own, among those that generic tests go through)

if not torch.cuda.is_available():  # before anything imports Triton: its kernels then run on the CPU, slowly
    os.environ["TRITON_INTERPRET"] = "1"

# One thread per worker: the suite runs one worker per core, and tiny tensors gain nothing from more.
torch.set_num_threads(1)

settings.register_profile("fedotp", deadline=None, derandomize=True)
settings.load_profile("fedotp")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
