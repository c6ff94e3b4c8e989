"""A tower and a task in double precision."""

import pytest
import torch

from federation.toy_federation import SMALL, make_task
from fedotp.clip import CLIP
from fedotp.methods import Task


@pytest.fixture(scope="module")
def clip() -> CLIP:
    return CLIP.random(SMALL).double()


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task(torch.float64)
