"""Canaries among what is made private: an honest federation stays below its epsilon, a broken one is caught."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from federation.toy_federation import assert_same_bits, make_data, make_settings, make_task, simulator, state_of
from fedotp.audit import Audit
from fedotp.audit._audit import audit_federation
from fedotp.errors import FedotpError
from fedotp.federation import FederatedData, Settings, draws
from fedotp.methods import METHODS
from fedotp.privacy import PrivacySettings
from fedotp.privacy import _mechanism as mechanism
from fedotp.privacy._canaries import LENGTH, Canaries
from fedotp.privacy._clipping import clip_and_add, clipped_sum

NOISE = {"example": 5.0, "group": 5.0, "site": 5.0}
CANARIES = {"example": 400, "group": 400, "site": 90}


def settings_of(unit: str, seed: int = 0, **privacy: Any) -> Settings:
    private = PrivacySettings(unit=unit, **{"noise": NOISE[unit], **privacy})
    return replace(make_settings(rounds=3, seed=seed, optimizer={"lr": 0.02}), privacy=private)


def grouped(data: FederatedData) -> FederatedData:
    """Images in pairs."""
    return replace(data, train=replace(data.train, groups=np.arange(len(data.train.labels)) // 2))


def audited(unit: str, method: str = "promptfl", seed: int = 0, **privacy: Any) -> Audit:
    data = grouped(make_data()) if unit == "group" else make_data()
    settings = settings_of(unit, seed, **privacy)
    return audit_federation(METHODS[method](), make_task(), data, settings, canaries=CANARIES[unit])


@pytest.mark.parametrize(
    ("unit", "method", "private", "seed"),
    [
        ("example", "promptfl", False, 1),
        ("example", "fedotp", True, 3),
        ("group", "promptfl", False, 4),
        ("site", "fedotp", False, 6),
    ],
)
def test_an_honest_federation_stays_below_its_epsilon(unit: str, method: str, private: bool, seed: int) -> None:
    found = audited(unit, method, seed, **({"private": True} if private else {}))
    assert found.upper is not None
    assert found.bound.epsilon < found.upper
    assert not found.is_broken
    bound = found.bound
    assert (bound.canaries, bound.delta) == (CANARIES[unit], 1e-5)
    assert 0.3 * bound.canaries < bound.included < 0.7 * bound.canaries


def without_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients and updates are added at their full length."""
    for module in ("_clipping", "_canaries"):
        monkeypatch.setattr(f"fedotp.privacy.{module}.clip_and_add", lambda *given: clip_and_add(*given[:2], math.inf))
    monkeypatch.setattr(mechanism, "clipped_sum", lambda *given: clipped_sum(*given[:2], math.inf))


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the noise that is accounted for."""
    draw = np.random.Generator.standard_normal

    class Quiet(np.random.Generator):
        def standard_normal(self, *words: Any, **more: Any) -> Any:
            return 0.1 * draw(self, *words, **more)

    monkeypatch.setattr("fedotp.federation._sampling.np.random.Generator", Quiet)


@pytest.mark.parametrize(("unit", "method"), [("example", "promptfl"), ("example", "dp-fpl"), ("site", "promptfl")])
@pytest.mark.parametrize("breaking", [without_clip, without_noise])
def test_a_promise_that_was_broken_on_purpose_is_caught(
    unit: str, method: str, breaking: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch)
    found = audited(unit, method)
    assert found.upper is not None
    assert found.bound.epsilon > found.upper
    assert found.is_broken


def test_canaries_that_are_out_change_nothing() -> None:
    """Every coin says out: the federation is the one without canaries, to the bit."""
    for unit in ("example", "site"):
        plain, planted = (simulator("promptfl", settings_of(unit)) for _ in range(2))
        canaries = planted.plant(20)
        for group in canaries._groups.values():
            group.included[:] = False
        plain.run_round()
        planted.run_round()
        assert_same_bits(state_of(plain), state_of(planted))
        assert canaries.scores.any()


def test_a_canary_moves_a_sum_by_the_clip_along_its_direction() -> None:
    """One client, one step, all that are in drawn: by hand."""
    leaves = [torch.zeros(2, 3, 4, requires_grad=True), torch.zeros(2, 5, requires_grad=True)]
    privacy = PrivacySettings(unit="example", noise=0.0, clip=0.5)
    canaries = Canaries(9, np.array([7, 3]), privacy, partial(draws, 0, "canaries", 0))
    (given,) = canaries.gradients(np.array([7, 3]), [1.0, 1.0], leaves)
    for part, leaf in zip(given, leaves, strict=True):
        assert part.shape[1:] == leaf.shape
    flat = torch.cat([part.flatten(2) for part in given], 2)  # (U, C, D)
    lengths = flat.norm(dim=2)
    assert set(lengths.flatten().round(decimals=5).tolist()) <= {0.0, LENGTH * 0.5}
    sums = clip_and_add([given], leaves, 0.5)
    canaries.see_sums(np.array([7, 3]), [1.0, 1.0], sums)
    np.testing.assert_allclose(canaries.scores, canaries.included.astype(float), atol=1e-6)
    assert len(canaries.scores) == 9


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"canaries": 3}, "canaries = 3: must be from 10"),
        ({"confidence": 1.5}, "confidence = 1.5: must be in"),
        ({}, 'privacy.unit = "none": must be example, group or site'),
    ],
)
def test_audits_that_cannot_be_made_are_refused(more: dict[str, Any], said: str) -> None:
    few = make_data((3, 3), (2, 2))
    with pytest.raises(FedotpError, match=said):
        audit_federation(METHODS["promptfl"](), make_task(), few, make_settings(), **more)


def test_the_page_shows_what_was_recorded() -> None:
    from recipes.privacy.audit import table

    root = Path(__file__).parents[2]
    shown = table(root / "docs" / "results" / "audit.csv")
    assert shown in (root / "docs" / "audit.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.split("|")[3:-1]] for line in shown.splitlines()[2:]]
    assert sum(int(runs) for clip, runs, *_ in lines if clip == "works") == 50
    for clip, runs, *_, below in lines:
        assert below == (runs if clip == "works" else "0")
