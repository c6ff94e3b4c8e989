"""Half of a data set's classes, and the other half."""

import numpy as np
import pytest
from data_made import make_dataset, uniform_dataset
from hypothesis import given
from hypothesis import strategies as st

from fedotp.data import Dataset
from fedotp.data._dataset import SPLITS
from fedotp.errors import FedotpError


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    n_domains, n_classes = draw(st.integers(1, 3)), draw(st.integers(4, 9))
    counts = [draw(st.lists(st.integers(1, 3), min_size=n_classes, max_size=n_classes)) for _ in range(2 * n_domains)]
    coarse = draw(st.lists(st.integers(0, 2), min_size=n_classes, max_size=n_classes)) if draw(st.booleans()) else []
    return make_dataset(np.array(counts[:n_domains]), np.array(counts[n_domains:]), coarse_of=tuple(coarse))


def coarse_names(dataset: Dataset) -> dict[str, str]:
    coarse = (dataset.coarse_classes[number] for number in dataset.coarse_of)
    return dict(zip(dataset.classes, coarse, strict=True))


@given(datasets())
def test_every_image_is_in_one_half_with_its_own_name(dataset: Dataset) -> None:
    halves = dataset.base_and_novel()
    base, novel = halves
    assert base.classes + novel.classes == dataset.classes
    assert 0 <= len(base.classes) - len(novel.classes) <= 1
    for split in SPLITS:
        whole = dataset.split(split)
        known = {whole.name(i): (dataset.classes[whole.labels[i]], whole.domains[i]) for i in range(len(whole))}
        found = {}
        for half in halves:
            part = half.split(split)
            found |= {part.name(i): (half.classes[part.labels[i]], part.domains[i]) for i in range(len(part))}
        assert found == known
        assert len(base.split(split)) + len(novel.split(split)) == len(whole)
    if dataset.coarse_of:
        assert coarse_names(base) | coarse_names(novel) == coarse_names(dataset)
        for half in halves:
            assert sorted(set(half.coarse_of)) == list(range(len(half.coarse_classes)))
    assert len({dataset.digest, base.digest, novel.digest}) == 3


def test_a_half_has_two_classes_at_least() -> None:
    with pytest.raises(FedotpError, match="made: 3 classes are too few for base and novel ones, two of each"):
        uniform_dataset(3, 2, 2).base_and_novel()
