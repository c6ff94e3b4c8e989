"""The data in the box: what is in it, that it is whole, and that it works like any other data set."""

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.data import DATASETS, Dataset, check_dataset, find_dataset, load_dataset
from fedotp.errors import FedotpError

BOX = ("cifar10-mini", "emoji")
VENDORS = ("fluent", "noto", "openmoji", "twemoji")


@pytest.fixture(scope="module", params=BOX)
def dataset(request: pytest.FixtureRequest) -> Dataset:
    return load_dataset(request.param)


@pytest.fixture(scope="module")
def emoji() -> Dataset:
    return load_dataset("emoji")


def codes(dataset: Dataset, split: str) -> list[tuple[str, str, str]]:
    """(vendor, class, code point) of every image."""
    part = dataset.train if split == "train" else dataset.test
    names = [part.name(i).removesuffix(".webp").split("/") for i in range(len(part))]
    assert {name[0] for name in names} == {split}
    return [(vendor, kind, code) for _, vendor, kind, code in names]


def test_needs_no_root_and_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setenv("FEDOTP_CACHE", str(tmp_path / "nothing"))
    for name in BOX:
        assert load_dataset(name).digest == load_dataset(name, root=tmp_path).digest
    assert not list(tmp_path.iterdir())


def test_sizes_are_those_of_the_catalogue_and_digests_are_fixed(dataset: Dataset) -> None:
    info = DATASETS[dataset.name]
    assert info.in_box
    sizes = tuple(map(len, (dataset.classes, dataset.domains, dataset.train, dataset.test)))
    assert sizes == (info.n_classes, info.n_domains, info.n_train, info.n_test)
    assert dataset.digest.startswith({"cifar10-mini": "378f385f8264d0ad", "emoji": "eb9d875daf8f4289"}[dataset.name])
    listed = CliRunner().invoke(app, ["data", "list"], env={"COLUMNS": "200"}).output.splitlines()
    assert f"{dataset.name}.zip" in next(line for line in listed if line.startswith(f"{dataset.name} "))


def test_every_image_decodes_and_none_is_in_both_splits(dataset: Dataset) -> None:
    report = check_dataset(dataset)
    assert report.n_images == len(dataset.train) + len(dataset.test)
    assert not report.broken
    assert not report.duplicates
    side = {"cifar10-mini": 32, "emoji": 64}[dataset.name]
    for split in (dataset.train, dataset.test):
        for i in range(0, len(split), 97):
            assert (split.image(i).size, split.image(i).mode) == ((side, side), "RGB")


def test_cifar_is_balanced_in_the_official_order_with_the_pixels_of_the_test_batch() -> None:
    """Number 0 of the batch is a cat, number 1 a ship; their first pixels are known."""
    cifar = load_dataset("cifar10-mini")
    assert " ".join(cifar.classes) == "airplane automobile bird cat deer dog frog horse ship truck"
    assert (cifar.counts("train") == 200).all()
    assert (cifar.counts("test") == 200).all()
    images = {cifar.train.name(i): i for i in range(len(cifar.train))}
    assert cifar.train.image(images["train/cat/0000.webp"]).getpixel((0, 0)) == (158, 112, 49)
    assert cifar.train.image(images["train/ship/0001.webp"]).getpixel((0, 0)) == (235, 235, 235)


def test_every_vendor_drew_every_emoji_and_none_is_in_both_splits(emoji: Dataset) -> None:
    assert emoji.domains == VENDORS
    found = {}
    for split in ("train", "test"):
        drawn = codes(emoji, split)
        sets = [{(kind, code) for vendor, kind, code in drawn if vendor == v} for v in VENDORS]
        assert sets[0] == sets[1] == sets[2] == sets[3]
        assert len(drawn) == 4 * len(sets[0])
        assert emoji.counts(split).min() >= 5 * 4
        found[split] = {code for _, code in sets[0]}
        assert len(found[split]) == len(sets[0])  # no emoji is in two classes
    assert not found["train"] & found["test"]
    for alike in (("1f415", "1f436"), ("1f697", "1f698"), ("1f34e", "1f34f"), ("1f684", "1f685"), ("1f44d", "1f44e")):
        assert len({code in found["train"] for code in alike}) == 1
    pictures = {hashlib.sha256(emoji.test.image(i).tobytes()).digest() for i in range(len(emoji.test))}
    assert len(pictures) == len(emoji.test)  # vendors draw differently


def test_threads_read_what_one_reader_reads(emoji: Dataset) -> None:
    rows = list(range(0, len(emoji.train), 4)) * 2
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(emoji.train.read, rows)) == [emoji.train.read(i) for i in rows]


@pytest.mark.parametrize("name", BOX)
@pytest.mark.parametrize("damage", ["flipped", "cut off", "missing"])
def test_damage_is_one_clear_line(name: str, damage: str, tmp_path: Path) -> None:
    place = tmp_path / f"{name}.zip"
    shutil.copy(find_dataset(name) or "", place)
    content = bytearray(place.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
        place.write_bytes(content)
    elif damage == "cut off":
        place.write_bytes(content[: len(content) // 2])
    else:
        place.unlink()
    with pytest.raises(FedotpError, match="reinstall fedotp") as caught:
        DATASETS[name].read(place)
    assert str(place) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_licences_and_sources_lie_beside_the_images() -> None:
    box = Path(find_dataset("emoji") or "").parent
    text = (box / "README.md").read_text(encoding="utf-8")
    for word in (*VENDORS, "CC BY 4.0", "CC BY-SA 4.0", "Apache-2.0", "MIT", "Krizhevsky"):
        assert word in text
    assert sorted(path.name for path in (box / "licences").iterdir()) == [
        "Apache-2.0.txt",
        "CC-BY-4.0.txt",
        "CC-BY-SA-4.0.txt",
        "MIT-fluent.txt",
    ]
    for name in BOX:
        assert f"{(box / f'{name}.zip').stat().st_size:,}" in text
    assert sum(path.stat().st_size for path in box.rglob("*") if path.is_file()) < 12e6
