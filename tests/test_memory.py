"""How much of a GPU a process may take."""

import pytest
import torch

from fedotp import _memory
from fedotp._memory import free_gpu_bytes, share_gpu


@pytest.mark.parametrize(
    ("sharing", "free", "reserved", "expected"),
    [(1, 900, 0, 900), (4, 900, 0, 250), (4, 100, 0, 100), (4, 900, 200, 50), (4, 900, 300, 0)],
)
def test_processes_on_one_gpu_share_its_memory(
    sharing: int, free: int, reserved: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_memory, "_sharing", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved)
    share_gpu(sharing)
    assert free_gpu_bytes(torch.device("cuda")) == expected
