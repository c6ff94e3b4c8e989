"""Dividing as the authors' code does: sizes by hand."""

from dataclasses import replace

import numpy as np
import pytest
from data_made import assert_sound, grouped, make_dataset, uniform_dataset

from fedotp.data.partition import PartitionSettings, make_partition, other_images
from fedotp.errors import FedotpError


@pytest.mark.parametrize(
    ("n_classes", "n_clients", "sizes"),
    [
        (37, 10, [4] * 9 + [1]),  # OxfordPets: 3.7
        (102, 10, [10] * 9 + [12]),  # Flowers102
        (47, 10, [5] * 9 + [2]),  # DTD: 4.7
        (100, 10, [10] * 10),
        (10, 4, [2, 2, 2, 4]),  # 2.5, half to even
        (14, 4, [4, 4, 4, 2]),  # 3.5
        (3, 1, [3]),
    ],
)
def test_classes_are_rounded_and_the_last_client_has_the_rest(n_classes: int, n_clients: int, sizes: list[int]) -> None:
    dataset = uniform_dataset(n_classes, 4, 2)
    partition = make_partition(dataset, PartitionSettings("pathological", n_clients), authors=True)
    assert_sound(partition, dataset)
    assert (partition.counts(dataset) > 0).sum(1).tolist() == sizes


def test_a_last_client_without_classes_is_refused() -> None:
    with pytest.raises(FedotpError, match=r"round\(15 / 10\) = 2 classes .* gets 0; use n_clients = 8"):
        make_partition(uniform_dataset(15, 4, 2), PartitionSettings("pathological", 10), authors=True)


def test_who_has_his_share_of_the_images_gets_no_more() -> None:
    dataset = uniform_dataset(10, 500, 100)
    for seed in range(5):
        settings = PartitionSettings("dirichlet", 10, alpha=0.3, seed=seed)
        counts = make_partition(dataset, settings, authors=True).counts(dataset)  # (C, K)
        before = np.cumsum(counts, axis=1) - counts
        assert counts[before >= 500].max(initial=0) <= 1  # the one image that everybody is sure of
        free = make_partition(dataset, settings).counts(dataset)
        assert counts.sum(1).max() < free.sum(1).max()
        assert counts.sum() == free.sum() == 5000


def test_with_coarse_labels_sizes_are_equal_and_classes_come_in_families() -> None:
    coarse_of = tuple(k // 5 for k in range(100))
    dataset = make_dataset(np.full((1, 100), 50), np.full((1, 100), 10), coarse_of=coarse_of)
    settings = PartitionSettings("dirichlet", 20, alpha=0.3)
    partition = make_partition(dataset, settings, authors=True)
    assert_sound(partition, dataset)
    counts = partition.counts(dataset)
    assert (counts.sum(1) == 250).all()
    assert (counts.sum(0) == 50).all()
    plain = make_partition(dataset, settings).counts(dataset)
    families = [each.reshape(20, 20, 5).sum(2) for each in (plain, counts)]  # client, coarse label
    ours, theirs = (np.square(each / each.sum(1, keepdims=True)).sum(1).mean() for each in families)
    assert theirs > 1.5 * ours  # a client's images are of few coarse labels
    uneven = make_dataset(np.full((1, 100), 7), np.full((1, 100), 3), coarse_of=coarse_of)
    sizes = make_partition(uneven, replace(settings, n_clients=9), authors=True).counts(uneven).sum(1)
    assert sorted(sizes) == [77] * 2 + [78] * 7


def test_a_client_has_as_many_classes_as_drawing_image_by_image_gives() -> None:
    """Against their draws restated in NumPy: Dirichlet(alpha) over coarse labels, Dirichlet(10) over classes within."""
    coarse_of = tuple(k % 20 for k in range(100))
    dataset = make_dataset(np.full((1, 100), 200), np.full((1, 100), 20), coarse_of=coarse_of)
    settings = PartitionSettings("dirichlet", 100, alpha=0.3)
    ours = _effective(make_partition(dataset, settings, authors=True).counts(dataset))
    rng, drawn = np.random.default_rng(0), np.zeros((400, 100))
    for client in drawn:
        coarse, within = rng.dirichlet([0.3] * 20), rng.dirichlet([10] * 5, 20)
        for label, n in enumerate(rng.multinomial(200, coarse)):
            client[label::20] = rng.multinomial(n, within[label])
    assert ours == pytest.approx(_effective(drawn), rel=0.15)  # 0.3 at both levels gives half as many


def _effective(counts: np.ndarray) -> float:
    """How many equally frequent classes have the entropy of a client's, the mean over clients (C, K)."""
    shares = counts / counts.sum(1, keepdims=True)
    return float(np.exp(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)).mean())


def test_by_domain_sizes_are_capped_and_classes_of_equal_size_are_divided_alike() -> None:
    train = np.array([[300, 300, 300, 150], [60, 90, 60, 30]])
    dataset = make_dataset(train, train // 3)
    settings = PartitionSettings("domain-dirichlet", 6, alpha=5.0, seed=1)
    partition = make_partition(dataset, settings, authors=True)
    assert_sound(partition, dataset)
    counts = partition.counts(dataset).reshape(2, 3, 4)  # domain, client, class
    before = np.cumsum(counts, axis=2) - counts
    full = before >= (train.sum(1) / 3)[:, None, None]
    assert counts[full].max(initial=0) <= 1
    alike = [(d, j, k) for d in range(2) for j in range(4) for k in range(j) if train[d, j] == train[d, k]]
    same = [(d, j, k) for d, j, k in alike if not full[d][:, [j, k]].any()]
    assert same
    for domain, j, k in same:
        assert np.abs(counts[domain, :, j] - counts[domain, :, k]).max() <= 2  # seats, and rounding
    paper = make_partition(dataset, settings).counts(dataset).reshape(2, 3, 4)
    assert any(np.abs(paper[domain, :, j] - paper[domain, :, k]).max() > 10 for domain, j, k in same)


@pytest.mark.parametrize("scheme", ["iid", "coarse", "quantity"])
def test_other_schemes_do_not_change(scheme: str) -> None:
    dataset = make_dataset(np.full((1, 6), 20), np.full((1, 6), 5), coarse_of=(0, 0, 0, 1, 1, 1))
    ours, theirs = (make_partition(dataset, PartitionSettings(scheme, 4), authors=authors) for authors in (False, True))
    assert ours.digest == theirs.digest


@pytest.mark.parametrize("scheme", ["pathological", "dirichlet"])
def test_groups_are_not_divided_as_the_authors_would(scheme: str) -> None:
    dataset = uniform_dataset(4, 6, 2)
    of_patients = grouped(dataset, *(np.arange(len(split)) // 2 for split in (dataset.train, dataset.test)))
    settings = PartitionSettings(scheme, 2)
    with pytest.raises(FedotpError, match=rf"^{scheme}: .*authors.partition must be false with groups"):
        make_partition(of_patients, settings, authors=True)
    assert len(make_partition(of_patients, settings)) == 2


def test_labels_stand_beside_the_first_images_of_their_domain() -> None:
    domains = np.array([0] * 6 + [1] * 5)
    clients = [np.array([0, 2, 5]), np.array([1, 3, 4]), np.array([6, 8])]
    seen = other_images(domains, clients, seed=3)
    assert seen[clients[0]].tolist() == seen[clients[1]].tolist()  # both see the same three
    assert (domains[seen] == domains).all()
    assert seen[[7, 9, 10]].tolist() == [7, 9, 10]  # images of no client stay
    few = other_images(domains, clients, seed=3, among=np.array([0, 1, 2, 6, 8]))
    assert set(few[clients[0]]) == {0, 1, 2}
    assert not np.array_equal(seen, other_images(domains, clients, seed=4))
