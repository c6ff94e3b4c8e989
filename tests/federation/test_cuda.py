"""The same federation on a GPU."""

import copy

import numpy as np
import pytest
import torch
from toy_federation import in_order, make_data, make_settings, make_task, simulator, small_clip, state_of

from fedotp.federation import Simulator
from fedotp.methods import METHODS, PromptSettings, Task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trained(method: str, device: str, dtype: torch.dtype, **compute: object) -> Simulator:
    task = make_task(dtype)
    task = Task(copy.deepcopy(small_clip(dtype)).to(device), task.classes, PromptSettings(n_ctx=3, std=0.1))
    federation = simulator(method, make_settings(compute=compute), task=task, data=make_data())
    for _ in range(3):
        federation.run_round()
    return federation


def on_cpu(federation: Simulator) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in state_of(federation).items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-4)])
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_trains_what_the_cpu_trains(method: str, dtype: torch.dtype, tolerance: float) -> None:
    precision = str(dtype).removeprefix("torch.")
    here, there = (trained(method, device, dtype, precision=precision) for device in ("cpu", "cuda"))
    assert there.device.type == "cuda"
    for name, value in on_cpu(here).items():
        torch.testing.assert_close(on_cpu(there)[name], value, rtol=0, atol=tolerance)
    losses = [in_order(federation.predict()).loss for federation in (here, there)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=0, atol=100 * tolerance)


def test_bfloat16_stays_near_float32() -> None:
    exact, rough = (on_cpu(trained("fedotp", "cuda", torch.float32, precision=p)) for p in ("float32", "bfloat16"))
    for name, value in exact.items():
        assert (rough[name] - value).norm() < 0.1 * value.norm()
        assert not torch.equal(rough[name], value)
