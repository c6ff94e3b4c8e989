"""A first round on made-up images, for what a GPU needs once."""

from pathlib import Path

import numpy as np
import pytest
from toy_run import COLOURS, make_config

from anchored import STRUCTURES
from fedotp.clip import CLIP, TINY
from fedotp.methods import Task
from fedotp.runs.one._warm import first_round


@pytest.mark.parametrize("method", STRUCTURES)
def test_every_method_makes_a_round_of_it(method: str) -> None:
    config = make_config(Path("nowhere"), method={"name": method}, evaluation={"views": ["personal", "global"]})
    predictions = first_round(config, Task(CLIP.random(TINY), tuple(COLOURS), config.prompt), 3)
    assert len(predictions.predicted) == 3 * 8
    assert np.isfinite(predictions.loss).all()
