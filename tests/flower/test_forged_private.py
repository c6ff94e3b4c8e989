"""A site's file of private prompts that does not hold what the method keeps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedotp.errors import FedotpError
from fedotp.federation import Settings
from fedotp.federation.clients import KeptRows
from fedotp.flower.site._site import _Work
from fedotp.flower.site._state import Ledger, PrivateFile


def _work(path: Path) -> _Work:
    clients: Any = SimpleNamespace(kept=KeptRows({"private": torch.zeros(2, 3)}, 1), device=torch.device("cpu"))
    return _Work(clients, PrivateFile(path), Ledger(path.with_name("releases.jsonl"), "a", Settings(), 3, None))


def _stored(path: Path, **params: torch.Tensor) -> Path:
    PrivateFile(path).keep(1, params)
    return path


def test_the_private_prompt_of_the_accepted_round_is_recalled(tmp_path: Path) -> None:
    work = _work(_stored(tmp_path / "private.safetensors", private=torch.ones(2, 3)))
    work.recall(1)
    kept = work.clients.kept.read(np.array([0]), torch.device("cpu"))
    assert kept["private"].tolist() == [[[1.0] * 3] * 2]


@pytest.mark.parametrize(
    "params",
    [
        {"other": torch.ones(2, 3)},
        {"private": torch.ones(3, 2)},
        {"private": torch.ones(2, 3).half()},
        {"private": torch.ones(2, 3), "more": torch.ones(1)},
        {"private": torch.tensor(1.0)},
    ],
)
def test_a_private_prompt_of_another_shape_is_refused(params: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = _stored(tmp_path / "private.safetensors", **params)
    with pytest.raises(FedotpError, match=r"the method keeps .*; restore it, or remove it"):
        _work(path).recall(1)
