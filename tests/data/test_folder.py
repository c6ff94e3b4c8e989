"""Folders of images: what their structure means, and what is unclear is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from layouts import domain_tree, write_image, write_tree

from fedotp.data import Dataset, check_dataset, load_dataset
from fedotp.data._folder import read_folder
from fedotp.data._names import names_of, readable
from fedotp.errors import FedotpError


def _names(dataset: Dataset) -> tuple[list[str], list[str]]:
    return tuple(sorted(s.name(i) for i in range(len(s))) for s in (dataset.train, dataset.test))  # type: ignore[return-value]


def test_folder_of_classes_is_split_the_same_every_time(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/Bär {i} 猫.png" for c in ("Big Cat", "crème_brûlée", "寿司") for i in range(10)])
    dataset = read_folder(tmp_path)
    assert dataset.classes == ("big cat", "crème brûlée", "寿司")
    assert (len(dataset.train), len(dataset.test)) == (24, 6)
    assert dataset.counts("test").tolist() == [2, 2, 2]
    assert _names(dataset) == _names(read_folder(tmp_path))
    assert check_dataset(dataset).broken == ()


@pytest.mark.parametrize(
    ("train", "test", "domains"),
    [
        ("train/{c}", "test/{c}", ("all",)),
        ("Train/{c}", "VAL/{c}", ("all",)),
        ("train/indoor/{c}", "test/indoor/{c}", ("indoor",)),
        ("indoor/train/{c}", "indoor/test/{c}", ("indoor",)),
    ],
)
def test_folder_with_train_and_test(train: str, test: str, domains: tuple[str, ...], tmp_path: Path) -> None:
    for split, n in ((train, 3), (test, 2)):
        write_tree(tmp_path, [f"{split.format(c=c)}/{i}.png" for c in ("a", "b") for i in range(n)])
    dataset = read_folder(tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.domains) == (6, 4, domains)
    assert all(name.startswith(train.split("{")[0]) for name in _names(dataset)[0])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no image in"),
        (["a/1.png", "x/b/2.png"], "all be in class/ or all in domain/class/"),
        (["a/b/c/d/1.png"], "deeper than split/domain/class"),
        (["train/a/1.png", "train/b/1.png"], "has only train/: must have train/ and test/"),
        (["val/a/1.png", "test/b/1.png"], "has only test and val/"),
        (["train/a/1.png", "test/b/1.png"], "test/b/ is a class without training images; add some to its folder"),
        (["Cat/1.png", "Cat/2.png", "cat/1.png", "cat/2.png"], "the classes of Cat/ and cat/ have the same name 'cat'"),
        (["a/1.png", "b/1.png"], "test split is empty"),
    ],
)
def test_unclear_folder_is_refused(names: list[str], message: str, tmp_path: Path) -> None:
    write_tree(tmp_path, names)
    with pytest.raises(FedotpError, match=message):
        read_folder(tmp_path)


def test_val_beside_test_is_left_out_and_said(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "val", "test") for c in "ab" for i in range(2)])
    dataset = read_folder(tmp_path)
    assert dataset.notes == ("skipped: 4 images in val/; test/ is the test split",)
    assert dataset.split_note == "folders train/ and test/"
    assert _names(dataset)[1] == [f"test/{c}/{i}.png" for c in "ab" for i in range(2)]
    for name in ("test/a", "test/b"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "test").rmdir()
    used = read_folder(tmp_path)
    assert (used.notes, used.split_note) == ((), "folders train/ and val/")


def test_images_of_kinds_that_are_not_read_are_counted_and_said(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/{i}.png" for c in "ab" for i in range(5)])
    for name in ("a/1.NEF", "b/2.nef", "b/3.nii", "b/4.NII.gz", "b/notes.txt", "b/._1.nef"):
        (tmp_path / name).write_bytes(b"x")
    dataset = read_folder(tmp_path)
    (note,) = dataset.notes
    assert note.startswith("skipped unsupported images: 2 .nef, 1 .nii, 1 .nii.gz; convert them to PNG")
    assert note.endswith("with nibabel and rawpy")
    for path in (tmp_path / "a").glob("*.png"):
        path.unlink()
    with pytest.raises(FedotpError, match=f"no image in {tmp_path / 'a'}; skipped .*: 1 .nef; .*; add some or"):
        read_folder(tmp_path)


def test_pets_without_lists_are_not_one_class(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"oxford_pets/images/beagle_{i}.png" for i in range(5)])
    missing = "annotations/trainval.txt or split_zhou_OxfordPets.json is missing; without it all images"
    with pytest.raises(FedotpError, match=f"has the name of Oxford-IIIT Pets, but {missing}"):
        load_dataset(tmp_path / "oxford_pets")
    assert load_dataset("folder", root=tmp_path / "oxford_pets").classes == ("images",)


def test_in_a_folder_of_domains_a_class_may_be_called_train(tmp_path: Path) -> None:
    domain_tree(tmp_path, ("photo", "sketch"), ("train", "ship"), 5)
    dataset = read_folder(tmp_path)
    assert (dataset.domains, dataset.classes) == (("photo", "sketch"), ("ship", "train"))
    assert np.bincount(dataset.train.domains).tolist() == [8, 8]


def test_circle_of_links_ends(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"a/{i}.png" for i in range(5)])
    (tmp_path / "b").symlink_to(tmp_path)
    with pytest.raises(FedotpError, match="deeper than split/domain/class"):
        read_folder(tmp_path)


def test_linked_class_folders_are_followed(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"mine/a/{i}.png" for i in range(5)] + [f"elsewhere/{i}.png" for i in range(5)])
    (tmp_path / "mine" / "b").symlink_to(tmp_path / "elsewhere")
    assert read_folder(tmp_path / "mine").classes == ("a", "b")


def test_what_archives_and_disks_add_is_left_alone(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/{i}.png" for c in ("a", "b", "__MACOSX", ".thumbs", "a/@eaDir") for i in range(5)])
    (tmp_path / "a" / "notes.txt").write_text("x")
    (tmp_path / "a" / "._0.png").write_text("x")
    (tmp_path / ".git").mkdir()
    dataset = read_folder(tmp_path)
    assert (dataset.classes, len(dataset.train)) == (("a", "b"), 8)
    (tmp_path / "c").mkdir()
    with pytest.raises(FedotpError, match=f"no image in {tmp_path / 'c'}"):
        read_folder(tmp_path)


def test_folder_name_forces_the_generic_reader(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"caltech/{c}/{i}.png" for c in "ab" for i in range(5)])
    with pytest.raises(FedotpError, match="has no folder 'amazon'"):
        load_dataset(tmp_path)
    assert load_dataset("folder", root=tmp_path).domains == ("caltech",)
    with pytest.raises(FedotpError, match="needs a root"):
        load_dataset("folder")


def test_digest_depends_on_names_and_labels_not_on_the_place(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write_tree(tmp_path / place / "pets", [f"{c}/{i}.png" for c in "ab" for i in range(5)])
    first, second = (read_folder(tmp_path / place / "pets") for place in ("one", "two"))
    assert first.digest == second.digest
    write_image(tmp_path / "two" / "pets" / "a" / "new.png")
    assert read_folder(tmp_path / "two" / "pets").digest != first.digest


def test_readable_names() -> None:
    for name, words in {"  Yin__yang ": "yin yang", "boeing_747": "boeing 747", "cafe\u0301": "café"}.items():
        assert readable(name) == words
    flowers = names_of("flowers102")
    assert len(set(flowers)) == 102
    assert (flowers[0], flowers[50], flowers[73]) == ("pink primrose", "petunia", "rose")
