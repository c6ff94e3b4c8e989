"""The recipe that puts labels beside other images does so, and hides it as well as the original does."""

import numpy as np
import pytest
from recipes.defect import mispaired

from fedotp.data import Dataset, load_dataset
from fedotp.data.partition import PartitionSettings, make_partition

SETTINGS = {
    "cifar10-mini": PartitionSettings("dirichlet", n_clients=10, alpha=0.3),
    "emoji": PartitionSettings("domain-dirichlet", n_clients=12, alpha=0.3),
}


def _said(dataset: Dataset) -> list[tuple[str, str]]:
    """The class that each image has by its own path, and the one it is labelled with."""
    splits = (dataset.train, dataset.test)
    return [(s.name(i).split("/")[-2], dataset.classes[s.labels[i]]) for s in splits for i in range(len(s))]


@pytest.mark.parametrize("name", SETTINGS)
def test_about_one_label_in_k_is_right_and_the_partition_stays(name: str) -> None:
    dataset = load_dataset(name)
    partition = make_partition(dataset, SETTINGS[name])
    assert all(own.replace("_", " ") == label for own, label in _said(dataset))
    others = [mispaired(dataset, partition.clients, seed=seed) for seed in range(5)]
    right = [own.replace("_", " ") == label for wrong in others for own, label in _said(wrong)]
    assert np.mean(right) == pytest.approx(1 / len(dataset.classes), rel=0.25)
    wrong, again = others[0], make_partition(others[0], SETTINGS[name])
    assert wrong.digest != dataset.digest
    for before, after in zip(partition.clients, again.clients, strict=True):
        for split in ("train", "test"):
            np.testing.assert_array_equal(before.rows(split), after.rows(split))
    for one, two in ((dataset.train, wrong.train), (dataset.test, wrong.test)):
        np.testing.assert_array_equal(one.labels, two.labels)
        np.testing.assert_array_equal(one.domains, two.domains)
