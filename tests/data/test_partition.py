"""Partitions: what must hold for all of them, in thousands of random settings, and what is pinned."""

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_made import assert_sound, make_dataset, uniform_dataset
from hypothesis import given
from hypothesis import strategies as st

from fedotp.data import Dataset
from fedotp.data._dataset import SPLITS
from fedotp.data._draws import apportion, dirichlet, generator, shuffled
from fedotp.data.partition import Partition, PartitionSettings, _schemes, make_partition
from fedotp.errors import FedotpError


def _random_case(rng: np.random.Generator) -> tuple[Dataset, PartitionSettings]:
    n_domains, n_classes = int(rng.integers(1, 4)), int(rng.integers(1, 9))
    train = rng.integers(0, 13, (n_domains, n_classes)) * rng.integers(0, 2, (n_domains, n_classes))
    train[0] = np.maximum(train[0], 1)  # every class can be trained on somewhere
    test = rng.integers(0, 6, (n_domains, n_classes))
    test[0, 0] += 1
    n_coarse = int(rng.integers(1, n_classes + 1))
    dataset = make_dataset(train, test, coarse_of=tuple(k % n_coarse for k in range(n_classes)))
    schemes = ["iid", "pathological", "dirichlet", "coarse", "quantity"]
    scheme = str(rng.choice([*schemes, "domain", "site", "domain-dirichlet"] if n_domains > 1 else schemes))
    drawn = scheme in ("dirichlet", "domain-dirichlet", "quantity")
    settings = PartitionSettings(
        scheme,
        n_clients=None if scheme in ("domain", "site") else int(rng.integers(1, 25)),
        alpha=float(10 ** rng.uniform(-3, 2)) if drawn else None,
        shots=int(rng.integers(1, 5)) if rng.random() < 0.3 else None,
        min_size=int(rng.integers(1, 4)) if drawn else 1,
        seed=int(rng.integers(0, 2**32)),
    )
    return dataset, settings


def test_random_settings() -> None:
    """Every setting gives a sound partition, or an error whose advice works."""
    rng = np.random.default_rng(0)
    outcomes = {"sound": 0, "refused": 0}
    for _ in range(250):
        dataset, settings = _random_case(rng)
        authors = bool(rng.random() < 0.5)
        try:
            partition = make_partition(dataset, settings, authors=authors)
        except FedotpError as error:
            outcomes["refused"] += 1
            _assert_advice_works(str(error), dataset, settings, authors)
        else:
            outcomes["sound"] += 1
            assert_sound(partition, dataset)
    assert min(outcomes.values()) > 50, outcomes  # both sides are exercised


def _assert_advice_works(message: str, dataset: Dataset, settings: PartitionSettings, authors: bool) -> None:
    """Follow the error's advice: it cures this error, though the data may have another one."""
    assert "\n" not in message
    advice = message.rsplit("use ", 1)[1]
    name, _, values = advice.replace("<=", "=").partition(" = ")
    if not values:
        assert advice in ("a smaller min_size", "data with test images of the trained classes")
    for value in values.split(" or ") if values else ():
        try:
            partition = make_partition(dataset, replace(settings, **{name: int(value)}), authors=authors)
        except FedotpError as error:
            another = str(error)
        else:
            another = ""
            assert_sound(partition, dataset)
        assert advice not in another


def test_test_data_follow_the_training_distribution() -> None:
    dataset = uniform_dataset(10, 500, 100)
    for scheme, seed in itertools.product(("dirichlet", "quantity", "iid"), range(3)):
        partition = make_partition(dataset, PartitionSettings(scheme, 20, seed=seed))
        train = partition.counts(dataset, "train")
        test = partition.counts(dataset, "test")
        # 500 training images to 100 test images: a fifth, up to rounding and one guaranteed image
        assert np.abs(train / 5 - test).max() <= 1.5


def test_partitions_keep_the_dirichlet_variance() -> None:
    """Seats and rounding do not distort the class counts of clients."""
    dataset = uniform_dataset(50, 1000, 200)
    shares = np.concatenate(
        [
            (
                make_partition(dataset, PartitionSettings("dirichlet", 10, alpha=0.3, seed=s)).counts(dataset) / 1000
            ).ravel()
            for s in range(20)
        ]
    )
    assert shares.mean() == pytest.approx(0.1)
    assert shares.var() == pytest.approx(0.1 * 0.9 / (10 * 0.3 + 1), rel=0.05)


def test_dirichlet_survives_tiny_alpha() -> None:
    draws = np.stack([dirichlet(generator(s), 1e-6, 100) for s in range(50)])
    assert np.isfinite(draws).all()
    assert (draws.max(axis=1) > 0.99).mean() > 0.9
    assert len(np.unique(draws.argmax(axis=1))) > 20  # and it is not always the same client


def test_pathological_classes_are_disjoint_and_even() -> None:
    dataset = uniform_dataset(37, 20, 5)
    partition = make_partition(dataset, PartitionSettings("pathological", 10, shots=16, seed=1))
    assert_sound(partition, dataset)
    owned = partition.counts(dataset) > 0
    assert (owned.sum(axis=0) == 1).all()
    assert sorted(owned.sum(axis=1)) == [3, 3, 3, 4, 4, 4, 4, 4, 4, 4]
    tested = partition.counts(dataset, "test")
    assert np.array_equal(tested, 5 * owned)  # all test images of its classes
    other = make_partition(dataset, PartitionSettings("pathological", 10, shots=16, seed=2))
    assert not np.array_equal(other.counts(dataset) > 0, owned)  # the class shuffle follows the run's seed


@pytest.mark.parametrize(
    ("name", "n_domains", "n_clients"), [("domainnet", 6, 30), ("office_caltech10", 4, 12), ("mine", 2, 6)]
)
def test_domain_dirichlet_defaults_are_the_papers(name: str, n_domains: int, n_clients: int) -> None:
    dataset = replace(uniform_dataset(10, 40, 10, n_domains=n_domains), name=name)
    partition = make_partition(dataset, PartitionSettings("domain-dirichlet"))
    assert len(partition) == n_clients
    assert partition.clients[n_clients // n_domains + 2].name == "domain 1-2"
    assert partition.settings.alpha == 0.1
    assert make_partition(dataset, PartitionSettings("dirichlet")).settings.alpha == 0.3
    assert make_partition(dataset, PartitionSettings("iid")).settings.alpha is None


def test_coarse_labels_belong_to_five_clients_each() -> None:
    dataset = make_dataset(np.full((1, 100), 50), np.full((1, 100), 10), coarse_of=tuple(k // 5 for k in range(100)))
    partition = make_partition(dataset, PartitionSettings("coarse"))
    assert_sound(partition, dataset)
    assert len(partition) == 100
    for c, row in enumerate(partition.counts(dataset)):
        mine = np.zeros(100, np.int64)
        mine[c // 5 * 5 : c // 5 * 5 + 5] = 10
        assert np.array_equal(row, mine)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "dirichlet", "alpha": 0.0}, "from 1e-06 to 1000000"),
        ({"scheme": "dirichlet", "alpha": float("inf")}, "from 1e-06 to 1000000"),
        ({"scheme": "iid", "seed": -1}, "0 or more"),
    ],
)
def test_meaningless_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(FedotpError, match=message):
        PartitionSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PartitionSettings("pathological", 11), "use n_clients <= 10"),
        (PartitionSettings("pathological", 10, shots=31), "use shots <= 30"),
        (PartitionSettings("domain-dirichlet", 4, shots=16), "training images in domain domain 0; use shots <= 15"),
        (PartitionSettings("dirichlet", 21, shots=2), "use n_clients <= 20"),
        (PartitionSettings("dirichlet", 30, min_size=14), "use n_clients <= 20"),
        (PartitionSettings("dirichlet", 5, min_size=31), "use a smaller min_size"),
        (PartitionSettings("domain", 3), "use n_clients = 2 or 4"),
        (PartitionSettings("domain", 4), "n_clients = 4 must be 2, one client per domain"),
        (PartitionSettings("coarse"), "no coarse labels"),
    ],
)
def test_impossible_settings_say_what_would_work(settings: PartitionSettings, message: str) -> None:
    with pytest.raises(FedotpError, match=message):
        make_partition(uniform_dataset(10, 15, 3, n_domains=2), settings)
    with pytest.raises(FedotpError, match="has only one domain"):
        make_partition(uniform_dataset(3, 5, 2), PartitionSettings("domain"))


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "domain-dirichlet", "quantity"])
def test_more_clients_than_images_are_refused_before_anything_is_made_for_each(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = uniform_dataset(3, 6, 4, n_domains=2)
    for name in ("_numbered", "_even_shares", "_shares_by_class", "_shares_by_size"):
        monkeypatch.setattr(_schemes, name, lambda *_: pytest.fail("something was made for every client"))
    with pytest.raises(FedotpError, match=r"has enough images for \d+ clients, not \d+; .*use n_clients <= \d+"):
        make_partition(dataset, PartitionSettings(scheme, n_clients=10**6))


# Files

DIVIDED = uniform_dataset(4, 10, 4, n_domains=2)


@pytest.fixture(scope="module")
def divided() -> Partition:
    return make_partition(DIVIDED, PartitionSettings("domain-dirichlet", 4, alpha=0.5, seed=7))


def _changed(partition: Partition, path: Path, change: Callable[[Any], object], *, forge: bool = False) -> Path:
    """The partition's file after a change of its content; forged, its digest is right again."""
    partition.save(path)
    content = json.loads(path.read_text())
    change(content)
    if forge:
        del content["digest"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        content["digest"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content))
    return path


def test_saved_partition_comes_back_equal(divided: Partition, tmp_path: Path) -> None:
    path = tmp_path / "new" / "p.json"
    divided.save(path)
    loaded = Partition.load(path)
    assert (loaded.digest, loaded.settings) == (divided.digest, divided.settings)
    assert np.array_equal(loaded.counts(DIVIDED, "test"), divided.counts(DIVIDED, "test"))
    assert [p.name for p in path.parent.iterdir()] == ["p.json"]  # no temporary file stays
    loaded.require(DIVIDED)
    Partition.load(_changed(divided, path, lambda _: None, forge=True)).require(DIVIDED)
    with pytest.raises(FedotpError, match="create the partition again"):
        loaded.require(uniform_dataset(4, 10, 5, n_domains=2))
    _changed(divided, path, lambda content: content["clients"][0]["train"].append(1))
    with pytest.raises(FedotpError, match="modified after it was saved"):
        Partition.load(path)


OF_A_WRONG_KIND = [{"name": 7}, {"domain": ["x"]}, {"train": [0.5]}, {"train": [[0]]}, {"test": [True]}, {"test": "01"}]
NOT_THERE = [{"train": [0, 80]}, {"test": [-1, 0]}, {"train": [2**63 - 1]}]


@pytest.mark.parametrize("client", [*OF_A_WRONG_KIND, *NOT_THERE])
def test_a_forged_client_is_refused(client: dict[str, Any], divided: Partition, tmp_path: Path) -> None:
    path = _changed(divided, tmp_path / "p.json", lambda content: content["clients"][0].update(client), forge=True)
    gone = r"images from -?\d+ to \d+ of \d+; create the partition again"
    with pytest.raises(FedotpError, match=gone if client in NOT_THERE else "not a complete partition"):
        Partition.load(path).require(DIVIDED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a partition"),
        ('{"format": "fedotp-partition-1"}', "not a complete partition"),
        (
            '{"format": "fedotp-partition-1", "dataset": "a", "data_digest": "b", "settings": {"speed": 1}}',
            "unexpected keyword argument 'speed'",
        ),
    ],
)
def test_foreign_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(FedotpError, match=message):
        Partition.load(tmp_path / "p.json")


# The same numbers everywhere

_GOLDEN = {
    PartitionSettings("iid", 7, seed=1): "c8897dbb4c7c119c",
    PartitionSettings("pathological", 5, shots=8, seed=2): "0fe73a651b43ccc1",
    PartitionSettings("dirichlet", 20, alpha=0.01, seed=3): "64f39fadc67047b3",
    PartitionSettings("dirichlet", 20, alpha=0.3, min_size=5, seed=3): "85796858468215c2",
    PartitionSettings("domain", seed=4): "6e49af0633c149de",
    PartitionSettings("domain-dirichlet", 9, alpha=0.1, seed=5): "b4bbe219c49705de",
    PartitionSettings("coarse", 10, seed=6): "008d90b86dc83391",
    PartitionSettings("quantity", 12, alpha=0.5, seed=7): "c86a8ef45b7d77d2",
}


@pytest.mark.parametrize("settings", _GOLDEN, ids=lambda s: f"{s.scheme}-{s.seed}")
def test_digests_are_pinned(settings: PartitionSettings) -> None:
    """The same settings give these partitions on every platform and with every NumPy."""
    train = np.array([[17, 23, 31, 12, 40, 9], [11, 28, 19, 33, 8, 25], [14, 10, 22, 27, 35, 16]])
    dataset = make_dataset(train, train // 4, coarse_of=(0, 1, 0, 1, 0, 1))
    assert make_partition(dataset, settings).digest[:16] == _GOLDEN[settings]
    assert shuffled(generator(0), np.arange(10)).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


# Shares


def test_apportion_promises() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        n = int(rng.integers(1, 12))
        weights = rng.random(n) ** 5 + 1e-12
        at_least = rng.integers(0, 3, n)
        total = int(at_least.sum() + rng.integers(0, 60))
        shares = apportion(total, weights, at_least=at_least)
        assert shares.sum() == total
        assert (shares >= at_least).all()
        if not at_least.any():
            assert np.abs(shares - total * weights / weights.sum()).max() < 1


def test_apportion_breaks_ties_by_load_then_position() -> None:
    even, nothing = np.ones(4), np.zeros(4, np.int64)
    assert apportion(6, even, at_least=nothing).tolist() == [2, 2, 1, 1]
    assert apportion(6, even, at_least=nothing, load=np.array([5, 1, 0, 5])).tolist() == [1, 2, 2, 1]


# Half of a data set's classes, and the other half


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
