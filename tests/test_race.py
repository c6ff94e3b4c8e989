"""The engines of `bench.race` learn the same prompts in three rounds of a toy federation."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.race.loop import train
from bench.race.one import race
from bench.race.work import PromptModel, Work
from numpy.testing import assert_allclose

from own_process import python

WORK: dict[str, Any] = {
    "backbone": "toy",
    "clients": 6,
    "sampled": 5,
    "images": 7,
    "epochs": 2,
    "batch": 4,
    "rounds": 3,
}
FLOWER = pytest.param("flower", "cached", marks=pytest.mark.processes)


@pytest.mark.parametrize("method", ["promptfl", "fedotp"])
@pytest.mark.parametrize(("engine", "way"), [("loop", "cached"), ("loop", "tutorial"), ("pfllib", "cached"), FLOWER])
def test_an_engine_learns_fedotps_prompts(engine: str, way: Any, method: Any, tmp_path: Path) -> None:
    work = Work(method, way, **WORK)
    ours = race("ours", work)
    assert ours["moved"] > 1e-3
    if engine == "flower":
        command = ("-m", "bench.race.one", engine, json.dumps(asdict(work)), tmp_path / "found.json")
        python(*command, cwd=Path(__file__).parents[1])
        found = json.loads((tmp_path / "found.json").read_text())
    else:
        found = race(engine, work)
    assert_allclose(found["prompt"], ours["prompt"], rtol=0, atol=1e-7)  # measured: 5e-8


def test_an_engine_that_loses_private_prompts_learns_other_shared_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(model: PromptModel, work: Work, *rest: int) -> None:
        assert model.private is not None
        model.private.data.copy_(work.initial[1:])
        train(model, work, *rest)

    monkeypatch.setattr("bench.race.loop.train", forget)
    work = Work("fedotp", **WORK)
    found, ours = (np.array(race(engine, work)["prompt"]) for engine in ("loop", "ours"))
    assert abs(found - ours).max() > 1e-4  # the race permits 1e-5
