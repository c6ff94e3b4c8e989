"""Clients trained side by side, in groups, one by one or beside others: the same results."""

import numpy as np
import pytest
import torch
from toy_federation import (
    CODE,
    SINGLE,
    TRAINED,
    in_order,
    make_settings,
    make_task,
    simulator,
    state_of,
    worst_difference,
)

from anchored import IN_FEATURE_SPACE
from fedotp.federation import Simulator

WAYS = {"together": {"group_size": 64}, "pairs": {"group_size": 2}, "one by one": {"group_size": 1}}
ADAMW = {"name": "adamw", "lr": 0.01}


def after(method: str, dtype: torch.dtype, compute: dict, *, space: str = "context", **optimizer: object) -> Simulator:
    precision = "float64" if dtype == torch.float64 else "float32"
    settings = make_settings(
        participation=0.8, optimizer={"lr": 0.02, **optimizer}, compute={"precision": precision, **compute}
    )
    federation = simulator(method, settings, task=make_task(dtype, space=space))
    for _ in range(3):
        federation.run_round()
    return federation


@pytest.mark.parametrize(
    ("method", "dtype", "tolerance", "settings"),
    [
        *((name, torch.float64, 1e-13, {}) for name in (*TRAINED, *CODE)),
        *((name, torch.float32, 5e-6, {}) for name in SINGLE),
        *((name, torch.float64, 1e-13, {"space": "features"}) for name in IN_FEATURE_SPACE),
        *(("fedotp", torch.float64, 1e-9, ADAMW | kept) for kept in ({}, {"reset": False})),  # divides by small numbers
    ],
)
def test_groups_change_nothing_beyond_rounding(
    method: str, dtype: torch.dtype, tolerance: float, settings: dict
) -> None:
    found = {way: after(method, dtype, compute, **settings) for way, compute in WAYS.items()}
    assert [found[way].group_size for way in WAYS] == [64, 2, 1]
    together = found["together"]
    start = simulator(method, together.settings, task=make_task(dtype, space=settings.get("space", "context")))
    assert worst_difference(state_of(together), state_of(start)) > 0.01
    predictions = in_order(together.predict())
    for way in ("pairs", "one by one"):
        assert worst_difference(state_of(together), state_of(found[way])) <= tolerance, way
        other = in_order(found[way].predict())
        np.testing.assert_array_equal(other.row, predictions.row)
        np.testing.assert_allclose(other.loss, predictions.loss, rtol=0, atol=1000 * tolerance)


def test_out_of_memory_halves_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = simulator("fedotp")
    expected.run_round()
    federation = simulator("fedotp")
    plain = type(federation.trainer).train

    def train(self, work, *args):  # type: ignore[no-untyped-def]
        if len(work.clients) > 2:
            raise torch.OutOfMemoryError("too many")
        return plain(self, work, *args)

    monkeypatch.setattr(type(federation.trainer), "train", train)
    report = federation.run_round()
    assert federation.group_size == 2
    assert report.answered.tolist() == [0, 1, 2, 3, 4]
    assert worst_difference(state_of(federation), state_of(expected)) <= 1e-5
