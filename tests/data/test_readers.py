"""The layouts end to end, and what happens when they are wrong."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from layouts import (
    DOMAINNET10,
    LAYOUTS,
    OFFICE,
    OFFICE_CALTECH10,
    caltech101,
    cifar10,
    dtd,
    fedbn_pickles,
    write_tree,
    zhou_split,
)

from fedotp.data import DATASETS, check_dataset, find_dataset, load_dataset
from fedotp.data._names import readable
from fedotp.data._official import read_mat
from fedotp.data._split import split_by_class, split_by_domain
from fedotp.errors import FedotpError


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_loads_end_to_end(name: str, tmp_path: Path) -> None:
    build, n_classes, n_train, n_test, names, n_domains = LAYOUTS[name]
    folder = build(tmp_path)
    dataset = load_dataset(name, root=tmp_path)
    assert dataset.name == name
    assert (len(dataset.classes), len(dataset.train), len(dataset.test)) == (n_classes, n_train, n_test)
    assert (dataset.classes[0], dataset.classes[-1]) == names
    assert len(dataset.domains) == n_domains
    assert check_dataset(dataset, workers=1).broken == ()
    assert dataset.train.image(n_train - 1).mode == "RGB"
    files = [split.name(i) for split in (dataset.train, dataset.test) for i in range(len(split))]
    assert name.startswith("cifar") or len(files) == len(set(files))
    by_folder = load_dataset(folder)  # the layout is recognised without a name
    assert (by_folder.name, by_folder.digest) == (name, dataset.digest)
    assert load_dataset(name, root=folder).digest == dataset.digest


def test_labels_belong_to_their_files(tmp_path: Path) -> None:
    """The class name is what the folder of every single image says: names and labels cannot be swapped."""
    renamed = {"Faces": "face", "airplanes": "airplane", "back_pack": "backpack"}
    renamed |= {"Flip-Flops": "flip-flops", "AnnualCrop": "annual crop land", "SeaLake": "sea or lake"}
    names = ["caltech101", "food101", "dtd", "eurosat", "sun397", "ucf101"]
    for name in (*names, *(name for name, layout in LAYOUTS.items() if layout[-1] > 1)):
        LAYOUTS[name][0](tmp_path)
        dataset = load_dataset(name, root=tmp_path)
        for split in (dataset.train, dataset.test):
            for i in range(len(split)):
                folder = split.name(i).split("/")[-2]
                said = renamed.get(folder, readable(folder))
                assert dataset.classes[split.labels[i]] == said
                if len(dataset.domains) > 1:
                    domain = split.name(i).split("/")[0].lower().replace(" ", "_")
                    assert dataset.domains[split.domains[i]] == domain


def test_pets_and_cifar_pixels_match_their_labels(tmp_path: Path) -> None:
    LAYOUTS["oxford_pets"][0](tmp_path)
    pets = load_dataset("oxford_pets", root=tmp_path)
    for i in range(len(pets.train)):
        breed = Path(pets.train.name(i)).stem.rsplit("_", 1)[0]
        assert pets.classes[pets.train.labels[i]] == readable(breed)
    folder = LAYOUTS["cifar10"][0](tmp_path)
    cifar = load_dataset("cifar10", root=tmp_path)
    stored = pickle.loads((folder / "data_batch_2").read_bytes(), encoding="latin1")  # the fixture wrote it
    channels = stored["data"][3].reshape(3, 32, 32)  # red, green, blue
    assert np.array_equal(np.asarray(cifar.train.image(13)), channels.transpose(1, 2, 0))
    assert cifar.train.labels[13] == stored["labels"][3]


def test_validation_images_of_lists_and_folders_are_there_on_request(tmp_path: Path) -> None:
    root = caltech101(tmp_path)
    rows = [(f"{c}/image_{i:04d}.jpg", k, c) for k, c in enumerate(("Faces", "accordion")) for i in range(4)]
    zhou_split(root, "Caltech101", {"train": rows[::4] + rows[1::4], "val": rows[2::4], "test": rows[3::4]})
    plain, chosen = (load_dataset("caltech101", root=tmp_path, test_split=split) for split in ("test", "val"))
    assert [chosen.test.name(i).rpartition("_")[2] for i in range(2)] == ["0002.jpg", "0002.jpg"]
    assert [plain.test.name(i).rpartition("_")[2] for i in range(2)] == ["0003.jpg", "0003.jpg"]
    assert len(plain.train) == len(chosen.train) == 4
    assert chosen.split_note.endswith("; tested on its validation images")
    assert plain.digest != chosen.digest

    write_tree(tmp_path, [f"f/{s}/{c}/{i}.png" for s in ("train", "val", "test") for c in "ab" for i in range(2)])
    chosen = load_dataset(tmp_path / "f", test_split="val")
    assert [chosen.test.name(i) for i in range(4)] == [f"val/{c}/{i}.png" for c in "ab" for i in range(2)]

    dtd(tmp_path)  # train1 + val1 / test1
    plain, chosen = (load_dataset("dtd", root=tmp_path, test_split=split) for split in ("test", "val"))
    held = {chosen.test.name(i) for i in range(len(chosen.test))}
    trained = {chosen.train.name(i) for i in range(len(chosen.train))}
    assert held
    assert not held & trained
    assert held | trained == {plain.train.name(i) for i in range(len(plain.train))}

    cifar10(tmp_path)
    with pytest.raises(FedotpError, match=r"cifar10 has no validation images; remove data\.test_split"):
        load_dataset("cifar10", root=tmp_path, test_split="val")


# CoOp's JSON


def test_zhou_split_wins_over_the_official_one(tmp_path: Path) -> None:
    folder = LAYOUTS["oxford_pets"][0](tmp_path)
    rows = {
        "train": [("Abyssinian_1.jpg", 0, "abyssinian"), ("Egyptian_Mau_12.jpg", 1, "egyptian_mau")],
        "val": [("Abyssinian_2.jpg", 0, "abyssinian")],
        "test": [("Egyptian_Mau_30.jpg", 1, "egyptian_mau")],
    }
    zhou_split(folder, "OxfordPets", rows)
    dataset = load_dataset("oxford_pets", root=tmp_path)
    assert dataset.classes == ("abyssinian", "egyptian mau")
    assert (len(dataset.train), len(dataset.test)) == (2, 1)  # validation images are left out
    assert dataset.test.image(0).size == (10, 12)
    assert "CoOp" in dataset.split_note


def test_any_data_set_with_a_list_is_read_by_its_folder(tmp_path: Path) -> None:
    """Whatever it is called, and whether images lie beside the list or in a folder there."""
    rows = {
        name: [(f"{c}/{i}.jpg", k, c) for k, c in enumerate("ab")] for i, name in enumerate(("train", "val", "test"))
    }
    for images in ("", "pictures"):
        folder = tmp_path / f"mine{images}"
        write_tree(folder / images, [row[0] for split in rows.values() for row in split])
        (folder / "attic").mkdir()
        zhou_split(folder, "Mine", rows)
        dataset = load_dataset(folder)
        assert (dataset.name, dataset.classes) == (folder.name, ("a", "b"))
        assert [dataset.train.name(i) for i in range(2)] == [str(Path(images, f"{c}/0.jpg")) for c in "ab"]
        assert [dataset.test.name(i) for i in range(2)] == [str(Path(images, f"{c}/2.jpg")) for c in "ab"]
        assert check_dataset(dataset).broken == ()


def test_two_lists_or_no_images_are_refused(tmp_path: Path) -> None:
    rows = {"train": [("a/0.jpg", 0, "a")], "val": [], "test": [("a/1.jpg", 0, "a")]}
    zhou_split(tmp_path, "Mine", rows)
    with pytest.raises(FedotpError, match="no image of class 'a' below"):
        load_dataset(tmp_path)
    zhou_split(tmp_path, "Yours", rows)
    with pytest.raises(FedotpError, match=r"lists, split_zhou_Mine.json, split_zhou_Yours.json; keep only one"):
        load_dataset(tmp_path)


def test_eurosat_without_its_list_gets_coops_sizes(tmp_path: Path) -> None:
    write_tree(tmp_path / "eurosat", [f"2750/{c}/{i}.jpg" for c in ("AnnualCrop", "River") for i in range(10)])
    dataset = load_dataset("eurosat", root=tmp_path)
    assert dataset.classes == ("annual crop land", "river")
    assert (dataset.counts("train").tolist(), dataset.counts("test").tolist()) == ([5, 5], [3, 3])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("office_home", "OfficeHomeDataset_10072016", "OfficeHome"),
        ("office_home", "Real World", "RealWorld"),
        ("vlcs", "VLCS/VOC2007", "VLCS/PASCAL"),
        ("pacs", "PACS", "pacs/images"),
        ("office31", "office31/dslr/images", "office31/dslr"),
    ],
)
def test_domains_are_found_under_their_other_names(name: str, old: str, new: str, tmp_path: Path) -> None:
    LAYOUTS[name][0](tmp_path / "usual")
    before = load_dataset(name, root=tmp_path / "usual")
    for image in (tmp_path / "usual").rglob("*.jpg"):
        place = image.relative_to(tmp_path / "usual").as_posix().replace(old, new, 1)
        (tmp_path / "other" / place).parent.mkdir(parents=True, exist_ok=True)
        image.rename(tmp_path / "other" / place)
    after = load_dataset(name, root=tmp_path / "other")
    assert (after.classes, after.domains) == (before.classes, before.domains)
    np.testing.assert_array_equal(after.train.labels, before.train.labels)
    assert check_dataset(after, workers=1).broken == ()


def test_other_folders_beside_the_domains_are_left_alone(tmp_path: Path) -> None:
    folder = LAYOUTS["vlcs"][0](tmp_path)
    before = load_dataset("vlcs", root=tmp_path).digest
    write_tree(folder, ["images/bird/0.jpg", "notes/figure.jpg"])
    assert load_dataset("vlcs", root=tmp_path).digest == before


# Malformed layouts


@pytest.mark.parametrize(
    ("name", "pattern", "message"),
    [
        ("oxford_pets", "images/Egyptian_Mau_*", "no image of class 'Egyptian_Mau'"),
        ("flowers102", "jpg/*", "no image of class 'pink primrose'"),
        ("caltech101", "101_ObjectCategories/accordion/*", "no image of class 'accordion'"),
        ("office_caltech10", "dslr/mug/*", "dslr: no image of class 'mug'"),
        ("ucf101", "UCF-101-midframes/Yo_Yo/*", "no image of class 'Yo_Yo'"),
        ("fgvc_aircraft", "images/1*", "no image of class 'Boeing 717'"),
    ],
)
def test_missing_class_is_named(name: str, pattern: str, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS[name][0](tmp_path)
    for path in folder.glob(pattern):
        path.unlink()
    with pytest.raises(FedotpError, match=message):
        load_dataset(name, root=tmp_path)


ZHOU = [
    ("[]", "has no list 'train'"),
    ('{"train": []}', "has no list 'test'"),
    ('{"train": [["a.jpg", 0]], "test": []}', "must be \\[path, label, class name\\]"),
    ('{"train": [["a.jpg", "0", "cat"]], "test": []}', "must be \\[path, label, class name\\]"),
    ('{"train": [["../../secret.jpg", 0, "cat"]], "test": []}', "must be a path inside"),
    ('{"train": [["a.jpg", 0, "cat"], ["b.jpg", 0, "dog"]], "test": []}', "label 0 has the names"),
    ('{"train": [["a.jpg", 0, "cat"], ["b.jpg", 2, "dog"]], "test": []}', "without gaps"),
    ('{"train": [["no_such.jpg", 0, "cat"]], "test": []}', "no image of class 'cat' below"),
]


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("oxford_pets", "annotations/test.txt", "Abyssinian_1 one 1 1", "must be like 'Breed_12 1 1 1'"),
        ("oxford_pets", "annotations/test.txt", "Abyssinian_1 9 1 1", "without gaps"),
        ("food101", "meta/test.txt", "pizza/1", "must be class/image"),
        ("dtd", "labels/val1.txt", "banded", "must be class/image"),
        ("flowers102", "imagelabels.mat", "MATLAB", "is not a MAT 5 file"),
        ("oxford_pets", "annotations/test.txt", "Siamese_1 1 1 1", "label 0 has the names 'Abyssinian' and"),
        ("fgvc_aircraft", "images_variant_test.txt", "0000001 Concorde", "must be image class with one of 2"),
        ("fgvc_aircraft", "images_variant_train.txt", "../../../x 707-320", "must be a path inside"),
        ("imagenet", "classnames.txt", "n01440764", "must be like 'n01440764 tench'"),
        ("cifar10", "data_batch_3", "garbage", "not a pickle that can be read safely"),
        *(("oxford_pets", "split_zhou_OxfordPets.json", text, message) for text, message in ZHOU),
    ],
)
def test_malformed_file_is_named(name: str, file: str, content: str, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS[name][0](tmp_path)
    (folder / file).write_text(content)
    with pytest.raises(FedotpError, match=message) as caught:
        load_dataset(name, root=tmp_path)
    assert str((folder / file).parent) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_absent_data_set_says_where_it_should_be(tmp_path: Path) -> None:
    assert list(LAYOUTS) == [name for name, info in DATASETS.items() if not info.in_box]
    for name in LAYOUTS:
        with pytest.raises(FedotpError) as caught:
            load_dataset(name, root=tmp_path)
        assert str(tmp_path / DATASETS[name].folder) in str(caught.value)
        if DATASETS[name].resources:  # the command fetches it to where it was looked for
            assert f"run `fedotp data download {name} --root {tmp_path}`" in str(caught.value)
        assert find_dataset(name, tmp_path) is None


def test_a_name_like_no_data_set_is_taken_for_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos.zip").write_bytes(b"")
    for name, message in {
        "my-photos": "'my-photos' is neither a known data set nor a folder",
        "photos.zip": r"photos\.zip is a file",
        "oxford_pet": "did you mean 'oxford_pets'",
    }.items():
        with pytest.raises(FedotpError, match=message):
            load_dataset(name)
    with pytest.raises(FedotpError, match=r"the folder .*nowhere does not exist"):
        load_dataset(tmp_path / "nowhere")
    long = "long " * 1000  # too long for a path
    for name, root in ((long, None), ("folder", tmp_path / long), ("cifar10", tmp_path / long)):
        with pytest.raises(FedotpError, match=r"known data set nor a folder|is not a folder|cannot find"):
            load_dataset(name, root=root)


# Flowers without an official split; MAT files


def test_flowers_without_setid_get_coops_sizes(tmp_path: Path) -> None:
    import scipy.io

    folder = tmp_path / "oxford_flowers"
    write_tree(folder, [f"jpg/image_{i:05d}.jpg" for i in range(1, 511)])
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": np.repeat([np.arange(102, 0, -1)], 5)})
    dataset = load_dataset("flowers102", root=tmp_path)
    assert (dataset.counts("train") == 2).all()
    assert (dataset.counts("test") == 2).all()
    last = [dataset.train.name(i) for i in np.flatnonzero(dataset.train.labels == 101)]
    assert max(last) < "jpg/image_00006.jpg"  # the first five are of the last class


@pytest.mark.parametrize(("file", "key"), [("imagelabels.mat", "labels"), ("setid.mat", "tstid")])
@pytest.mark.parametrize("number", [0, 307])
def test_flower_numbers_outside_the_range_are_refused(file: str, key: str, number: int, tmp_path: Path) -> None:
    import scipy.io

    folder = LAYOUTS["flowers102"][0](tmp_path)
    columns = dict(read_mat(folder / file))
    columns[key] = columns[key].copy()
    columns[key][5] = number
    scipy.io.savemat(folder / file, columns)
    with pytest.raises(FedotpError, match=f"{file}: the variable '{key}' must contain numbers from 1 to"):
        load_dataset("flowers102", root=tmp_path)


# Domains


def test_fedbn_pickles_give_the_split(tmp_path: Path) -> None:
    folder = LAYOUTS["office_caltech10"][0](tmp_path)
    fedbn_pickles(folder, OFFICE)
    dataset = load_dataset("office_caltech10", root=tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (160, 40)
    assert {Path(dataset.test.name(i)).stem for i in range(40)} == {"0"}
    assert dataset.classes == OFFICE_CALTECH10
    assert "FedBN" in dataset.split_note
    assert check_dataset(dataset).broken == ()


def test_official_domainnet_lists_give_the_split(tmp_path: Path) -> None:
    folder = LAYOUTS["domainnet"][0](tmp_path)
    for domain in DATASETS["domainnet"].read(folder).domains:
        for split, image in (("train", "0.jpg"), ("test", "1.jpg")):
            classes = [*DOMAINNET10, "aircraft_carrier"]
            lines = [f"{domain}/{c.replace(' ', '_')}/{image} {k}" for k, c in enumerate(classes)]
            (folder / f"{domain}_{split}.txt").write_text("\n".join(lines))
    dataset = load_dataset("domainnet", root=tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (60, 60)
    assert "official lists" in dataset.split_note


def test_split_sizes_are_the_papers() -> None:
    """Office-Caltech10's real class counts per domain give 2,025 / 508."""
    counts = {
        0: (92, 82, 94, 99, 100, 100, 99, 100, 94, 98),
        1: (151, 110, 100, 138, 85, 128, 133, 94, 87, 97),
        2: (12, 21, 12, 13, 10, 24, 22, 12, 8, 23),
        3: (29, 21, 31, 27, 27, 30, 43, 30, 27, 30),
    }
    items = [(f"{d}/{k}/{i}", k, d) for d, row in counts.items() for k, n in enumerate(row) for i in range(n)]
    train, test = split_by_domain(items)
    assert (len(train), len(test)) == (2025, 508)
    assert [sum(item[2] == d for item in test) for d in range(4)] == [192, 225, 32, 59]
    assert sorted(train + test) == sorted(items)


def test_drawn_splits_are_pinned() -> None:
    """Which images are tested on is part of a data set: it must never change."""
    items = [(f"{d}{k}{i}", k, d) for d in range(2) for k in range(2) for i in range(10)]
    assert " ".join(item[0] for item in split_by_domain(items)[1]) == "005 009 012 016 106 107 117 118"
    assert " ".join(item[0] for item in split_by_class(items)[1]) == "000 004 006 007 012 013 018 019 100 104 110 113"


def test_class_split_follows_coops_rounding() -> None:
    items = [(f"{k}/{i}", k, 0) for k, n in enumerate((10, 435, 31)) for i in range(n)]
    train, test = split_by_class(items)
    # round(n / 2) and n - round(n / 2) - round(n / 5), with Python's rounding
    assert [sum(item[1] == k for item in train) for k in range(3)] == [5, 218, 16]
    assert [sum(item[1] == k for item in test) for k in range(3)] == [3, 130, 9]
    assert not set(train) & set(test)
