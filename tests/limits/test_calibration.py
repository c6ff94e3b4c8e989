"""What calibration images say: p-values by counting, and no forged calibration is believed."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp.errors import FedotpError
from fedotp.limits import FLAGGED, Calibration

WIDTH = 5


def p_values(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of distances: features of width 1, in units of their spread."""
    one = np.zeros(1), np.ones(1)
    return Calibration(np.zeros(2), known, *one).p_values(np.sqrt(values)[:, None])


def made(n: int = 40, seed: int = 0) -> Calibration:
    rng = np.random.default_rng(seed)
    return Calibration.of(rng.dirichlet(np.ones(3), n), rng.integers(0, 3, n), rng.normal(size=(n, WIDTH)))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.integers(0, 10**6))
def test_p_values_are_uniform(n: int, seed: int) -> None:
    """Of n + 1 images any may be the new one: each multiple of 1 / (n + 1) is the p-value of one of them."""
    values = np.random.default_rng(seed).permutation(n + 1).astype(float)
    found = [p_values(np.sort(np.delete(values, new)), values[new : new + 1])[0] for new in range(n + 1)]
    np.testing.assert_allclose(np.sort(found), np.arange(1, n + 2) / (n + 1))


def test_ties_count_as_outlying() -> None:
    np.testing.assert_allclose(p_values(np.array([1.0, 1.0, 4.0]), np.array([0.0, 1.0, 4.0, 9.0])), [1, 1, 0.5, 0.25])


def test_a_distance_by_its_definition() -> None:
    features = np.random.default_rng(0).normal(size=(9, 3)) * [1, 5, 0.1]
    found = Calibration.of(np.full((9, 2), 0.5), np.zeros(9, int), features)
    features = features[np.random.default_rng(9).permutation(9)[:4]]
    variances = [float(np.mean([(x - np.mean(column)) ** 2 for x in column])) for column in features.T]
    new = np.array([3.0, -2.0, 1.0])
    expected = [
        (x - np.mean(column)) ** 2 / (variance + 0.1 * np.mean(variances))
        for x, column, variance in zip(new, features.T, variances, strict=True)
    ]
    assert found.distances(new[None])[0] == pytest.approx(np.mean(expected))


def test_own_images_are_flagged_one_in_twenty_and_strangers_always() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        own = rng.normal(size=(80, WIDTH))
        found = Calibration.of(np.full((40, 2), 0.5), np.zeros(40, int), own[:40])
        shares.append((found.p_values(own[40:]) <= FLAGGED).mean())
        assert (found.p_values(own[40:] + 30) == 1 / 21).all()
    assert np.mean(shares) == pytest.approx(1 / 21, abs=0.01)


def test_an_image_does_not_help_to_draw_what_it_is_measured_by() -> None:
    """The half that says what images look like is not the half whose distances are kept."""
    features = np.random.default_rng(0).normal(size=(6, 40))  # so few that their own distances would be short
    found = Calibration.of(np.full((6, 2), 0.5), np.zeros(6, int), features)
    assert found.outlying.shape == (3,)
    assert found.outlying.min() > np.sort(found.distances(features))[:3].max()


@pytest.mark.parametrize("n", [2, 3, 40])
def test_written_and_read(n: int) -> None:
    found = made(n)
    again = Calibration.from_dict(json.loads(json.dumps(found.as_dict())), WIDTH)
    assert again.as_dict() == found.as_dict()
    assert [made(few).can_flag for few in (36, 37, 38)] == [False, True, True]
    with pytest.raises(FedotpError, match=r"^calibration images: must be from 2 to 100,000, got 1"):
        made(1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"score": "raps"}, "score = 'raps': must be lac or aps"),
        ({"conformity": []}, "conformity of a calibration must be a list of 2 to 100,000 numbers"),
        ({"conformity": [0.1] * 100_001}, "list of 2 to 100,000 numbers"),
        ({"conformity": [0.1] * 39 + [2.0]}, "conformity of a calibration must be numbers from"),
        ({"conformity": [0.1] * 39 + [math.nan]}, "must be numbers"),
        ({"conformity": [0.1] * 39 + ["1"]}, "must be numbers"),
        ({"conformity": [0.1] * 39 + [0.0]}, "conformity of a calibration must be sorted"),
        ({"outlying": [1.0] * 19}, "outlying of a calibration must be a list of 20 to 20"),
        ({"centre": [0.0] * 4}, "centre of a calibration must be a list of 5 to 5 numbers"),
        ({"spread": [0.0] * 5}, "spread of a calibration must be numbers"),
        ({"more": 1}, "a calibration must have score, conformity, outlying, centre, spread, got "),
    ],
)
def test_forged(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(FedotpError) as error:
        Calibration.from_dict(made().as_dict() | change, WIDTH)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300
