"""Images of a patient or a part stay together: in a split, and with one client."""

from pathlib import Path

import numpy as np
import pytest
from data_made import grouped, make_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_tree

from fedotp.data import load_dataset
from fedotp.data._folder import read_folder
from fedotp.data._split import drawn_split
from fedotp.data.partition import PartitionSettings, make_partition
from fedotp.errors import FedotpError


@settings(max_examples=100, deadline=None)
@given(images=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 15)), min_size=2, max_size=120))
def test_no_group_is_on_both_sides_and_every_class_can_be_trained_on(images: list[tuple[int, int, int]]) -> None:
    items = [(str(i), label, domain) for i, (label, domain, _) in enumerate(images)]
    names = [f"g{group}" for _, _, group in images]
    group_of = {item[0]: name for item, name in zip(items, names, strict=True)}
    alone = [{name for item, name in zip(items, names, strict=True) if item[1] == k} for k in range(4)]
    only = set().union(*(names for names in alone if len(names) == 1))
    if only == set(names):  # whichever group goes, a class goes with it
        with pytest.raises(FedotpError, match="at least one class must have two groups"):
            drawn_split(items, names)[:2]
        return
    train, test = drawn_split(items, names)[:2]
    assert sorted(train + test) == sorted(items)
    assert not {group_of[path] for path, *_ in train} & {group_of[path] for path, *_ in test}
    assert {label for _, label, _ in train} == {label for _, label, _ in items}
    assert test


def test_many_small_groups_give_the_usual_shares() -> None:
    rng = np.random.default_rng(0)
    items = [(f"{i}", int(rng.integers(3)), int(rng.integers(2))) for i in range(3000)]
    train, test = drawn_split(items, [f"p{i // 3}" for i in range(3000)])[:2]
    assert abs(len(test) - 600) < 20
    for label in range(3):
        for domain in range(2):
            sizes = [sum(item[1:] == (label, domain) for item in part) for part in (train, test)]
            assert abs(sizes[1] / sum(sizes) - 0.2) < 0.03


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_scheme_divides_a_group(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_domains, n_classes = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    counts = rng.integers(1, 15, (2, n_domains, n_classes))
    plain = make_dataset(counts[0], counts[1], coarse_of=tuple(k % 2 for k in range(n_classes)))
    most = int(rng.integers(1, 30))
    dataset = grouped(plain, *(rng.integers(0, most, len(split)) for split in (plain.train, plain.test)))
    scheme = str(rng.choice(["iid", "dirichlet", "quantity", "pathological", "coarse", "domain-dirichlet", "site"]))
    n_clients = None if scheme == "site" else int(rng.integers(1, 9))
    shots = int(rng.integers(1, 3)) if rng.random() < 0.3 else None
    try:
        partition = make_partition(dataset, PartitionSettings(scheme, n_clients, shots=shots, seed=seed % 1000))
    except FedotpError:
        return  # what is refused, and why, is tested below
    for split in ("train", "test"):
        owner: dict[int, str] = {}
        given = []
        for client in partition.clients:
            rows = client.rows(split)
            given += rows.tolist()
            assert len(rows)
            for group in dataset.split(split).groups[rows].tolist():
                assert owner.setdefault(group, client.name) == client.name
        assert len(set(given)) == len(given)
    for client in partition.clients:
        assert np.isin(dataset.test.labels[client.test], dataset.train.labels[client.train]).all()
    if shots is None:
        assert sum(len(client.train) for client in partition.clients) == len(dataset.train)


def test_shares_are_met_as_nearly_as_groups_allow() -> None:
    plain = make_dataset(np.full((1, 4), 300), np.full((1, 4), 60))
    train = np.concatenate([np.arange(300) // 3 + 100 * k for k in range(4)])
    test = np.concatenate([np.arange(60) // 3 + 20 * k for k in range(4)])
    dataset = grouped(plain, train, test)
    even = make_partition(dataset, PartitionSettings("iid", 5)).counts(dataset)
    assert np.abs(even - 60).max() <= 3
    drawn = PartitionSettings("dirichlet", 5, alpha=0.3, seed=4)
    assert (
        np.abs(make_partition(dataset, drawn).counts(dataset) - make_partition(plain, drawn).counts(plain)).max() <= 6
    )


def test_patients_with_classes_of_two_clients_are_refused_with_what_works() -> None:
    plain = make_dataset(np.full((2, 4), 6), np.full((2, 4), 4))
    dataset = grouped(plain, np.arange(48) % 6, np.arange(32) % 4)
    for scheme in ("pathological", "site", "domain-dirichlet"):
        with pytest.raises(
            FedotpError, match=rf"^{scheme}: group 'p0' has images of .* use iid, dirichlet or quantity"
        ):
            make_partition(dataset, PartitionSettings(scheme, 4 if scheme != "site" else None))
    assert len(make_partition(dataset, PartitionSettings("iid", 4))) == 4
    with pytest.raises(
        FedotpError, match=r"^iid: made: 4 groups are too few to give each of 5 clients 1 .* fewer clients"
    ):
        make_partition(dataset, PartitionSettings("iid", 5))


def test_a_folder_is_split_by_what_an_expression_finds(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/patient{p}_{i}.png" for c in "ab" for p in range(10) for i in range(3)])
    dataset = load_dataset(tmp_path, groups="patient([0-9]+)")
    assert (len(dataset.train), len(dataset.test)) == (48, 12)
    assert dataset.groups == tuple(str(p) for p in range(10))
    assert read_folder(tmp_path).groups == ()


def test_folders_that_divide_a_patient_are_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{s}/{c}/p{i}.png" for s in ("train", "test") for c in "ab" for i in range(2)])
    with pytest.raises(FedotpError, match=r"2 groups in train and in test, for example 'p0' with train/a/p0.png and"):
        load_dataset(tmp_path, groups=r"p\d")
