"""Canaries among what is made private: an honest federation stays below its epsilon, a broken one is caught."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from audit.learned import by_heart
from federation.toy_federation import (
    CLASSES,
    assert_same_bits,
    make_data,
    make_settings,
    make_task,
    simulator,
    state_of,
)
from fedotp.audit import Audit
from fedotp.audit._audit import _mislabelled, audit_federation
from fedotp.audit._bound import Bound
from fedotp.errors import FedotpError
from fedotp.federation import FederatedData, Settings, draws
from fedotp.methods import METHODS
from fedotp.privacy import PrivacySettings
from fedotp.privacy import _mechanism as mechanism
from fedotp.privacy._canaries import LENGTH, Canaries
from fedotp.privacy._clipping import clip_and_add

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
    assert found.lower < found.upper
    assert not found.is_broken
    bound = found.bounds["releases"]
    assert (bound.canaries, bound.delta) == (CANARIES[unit], 1e-5)
    assert 0.3 * bound.canaries < bound.included < 0.7 * bound.canaries


def without_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is added is as long as it likes."""

    monkeypatch.setattr("fedotp.privacy._clipping._scale", lambda length, _: torch.ones_like(length))
    whole = mechanism.clipped_sum
    monkeypatch.setattr(mechanism, "clipped_sum", lambda updates, start, norm: whole(updates, start, 1e9))


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
    assert found.lower > found.upper
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


# Images ----------------------------------------------------------------------------------------------------------


HEART = ((10,) * 10, (1,) * 10)  # images of each client


def test_images_show_how_little_is_protected_where_nothing_is_promised() -> None:
    """Each client learns its images by heart: its classifier reveals which were in."""
    hard = make_settings(rounds=2, local_epochs=20, batch_size=10, optimizer={"name": "adam"})
    found = audit_federation(METHODS["coop"](), make_task(), by_heart(*HEART), hard, canaries=50)
    assert found.upper is None
    assert not found.is_broken
    assert found.lower == found.bounds["personal"].epsilon > 0
    untrained = replace(hard, federation=replace(hard.federation, rounds=0))
    assert audit_federation(METHODS["promptfl"](), make_task(), by_heart(*HEART), untrained, canaries=50).lower == 0


@pytest.mark.parametrize(
    ("upper", "covered", "lower"), [(None, False, 3.0), (2.0, False, 1.0), (2.0, True, 3.0), (0.5, False, 1.0)]
)
def test_a_promise_is_broken_by_what_it_covers_only(upper: float | None, covered: bool, lower: float) -> None:
    bounds = {
        name: Bound(epsilon, 1e-5, 0.95, 50, 25, 25, 20, (50, 25))
        for name, epsilon in {"global": 1.0, "personal": 3.0}.items()
    }
    found = Audit("example", "images", upper, bounds, 4, covered)
    assert found.lower == lower
    assert found.is_broken == (upper is not None and lower > upper)


def test_images_are_mislabelled_and_put_in_by_coin() -> None:
    data = by_heart(*HEART)
    planted = _mislabelled(data, np.arange(9), 30, len(CLASSES), seed=0)
    canaries = np.concatenate(planted.images.clients)
    assert len(canaries) == len(planted.included) == 30
    assert (planted.data.train.labels[canaries] != data.train.labels[canaries]).all()
    others = np.setdiff1d(np.arange(len(data.train.labels)), canaries)
    assert (planted.data.train.labels[others] == data.train.labels[others]).all()
    trained = np.concatenate(planted.data.train.clients)
    assert set(canaries[planted.included]) <= set(trained)
    assert not set(canaries[~planted.included]) & set(trained)
    assert 0 < planted.included.sum() < 30
    assert any(len(own) == 0 for own in planted.images.clients)  # a client that never trains has none


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"canaries": 3}, "canaries = 3: must be from 10"),
        ({"kind": "gradients"}, "kind = gradients: must be images with privacy.unit"),
        ({"kind": "sounds"}, "kind = 'sounds': must be gradients or images"),
        ({"confidence": 1.5}, "confidence = 1.5: must be in"),
        ({}, "requires at least 20 training images"),
    ],
)
def test_audits_that_cannot_be_made_are_refused(more: dict[str, Any], said: str) -> None:
    few = make_data((3, 3), (2, 2))
    with pytest.raises(FedotpError, match=said):
        audit_federation(METHODS["promptfl"](), make_task(), few, make_settings(), **more)


def test_more_canaries_than_directions_are_refused() -> None:
    with pytest.raises(FedotpError, match="canaries = 97: must be at most 96 per client"):
        audit_federation(METHODS["promptfl"](), make_task(), make_data(), settings_of("site"), canaries=97)


def test_the_page_shows_what_was_recorded() -> None:
    from recipes.privacy.audit import table

    root = Path(__file__).parents[2]
    shown = table(root / "docs" / "results" / "audit.csv")
    assert shown in (root / "docs" / "audit.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.split("|")[3:-1]] for line in shown.splitlines()[2:]]
    assert sum(int(runs) for clip, runs, *_ in lines if clip == "works") == 50
    for clip, runs, *_, below in lines:
        assert below == (runs if clip == "works" else "0")
