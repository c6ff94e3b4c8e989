"""Settings for the whole suite."""

import pytest
import torch
from hypothesis import settings

# One thread per worker: the suite runs one worker per core, and tiny tensors gain nothing from more.
torch.set_num_threads(1)

settings.register_profile("fedotp", deadline=None, derandomize=True)
settings.load_profile("fedotp")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
