"""The layouts end to end, and what happens when they are wrong."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from layouts import (
    LAYOUTS,
    caltech101,
    cifar_batch,
    cifar_binary,
    domain_tree,
    dtd,
    fedbn_pickles,
    write_image,
    write_tree,
    zhou_split,
)

from fedotp.data import DATASETS, Dataset, check_dataset, find_dataset, load_dataset
from fedotp.data._domains import OFFICE
from fedotp.data._folder import read_folder
from fedotp.data._names import DOMAINNET10, FLOWERS102, OFFICE_CALTECH10, readable
from fedotp.data._official import read_mat
from fedotp.data._split import split_by_class, split_by_domain
from fedotp.data._unpickle import read_pickle
from fedotp.errors import FedotpError


def test_layouts_cover_the_catalogue() -> None:
    assert list(LAYOUTS) == [name for name, info in DATASETS.items() if not info.in_box]


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
    by_folder = load_dataset(folder)  # the layout is recognised without a name
    assert (by_folder.name, by_folder.digest) == (name, dataset.digest)
    assert load_dataset(name, root=folder).digest == dataset.digest


@pytest.mark.parametrize("name", [name for name in LAYOUTS if not name.startswith("cifar")])
def test_train_and_test_share_no_file(name: str, tmp_path: Path) -> None:
    LAYOUTS[name][0](tmp_path)
    dataset = load_dataset(name, root=tmp_path)
    names = [split.name(i) for split in (dataset.train, dataset.test) for i in range(len(split))]
    assert len(names) == len(set(names))


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


def test_binary_files_of_cifar_are_the_same_data_as_the_pickles(tmp_path: Path) -> None:
    cifar_binary(tmp_path / "binary")
    (tmp_path / "python").mkdir()
    for name in ("cifar10", "cifar100"):
        LAYOUTS[name][0](tmp_path / "python")
        one, other = (load_dataset(name, root=tmp_path / kind) for kind in ("binary", "python"))
        assert one.digest == other.digest
        for facts in ("classes", "coarse_of", "coarse_classes"):
            assert getattr(one, facts) == getattr(other, facts)
        for split in ("train", "test"):
            mine, theirs = one.split(split), other.split(split)
            assert [mine.read(i) for i in range(len(mine))] == [theirs.read(i) for i in range(len(theirs))]


def test_binary_files_of_cifar_that_are_cut_are_refused(tmp_path: Path) -> None:
    ten, hundred = cifar_binary(tmp_path)
    for path, width in ((ten / "data_batch_3.bin", 3073), (hundred / "train.bin", 3074)):
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(FedotpError, match=rf"{path.name} has [\d,]+ bytes; it should be records of {width:,}"):
            load_dataset(path.parent)
    (ten / "test_batch.bin").unlink()
    (ten / "data_batch_3.bin").write_bytes((ten / "data_batch_1.bin").read_bytes())
    with pytest.raises(FedotpError, match=r"cannot read .*test_batch.bin: No such file"):
        load_dataset("cifar10", root=tmp_path)


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

    cifar_binary(tmp_path)
    with pytest.raises(FedotpError, match=r"cifar10 has no validation images; leave data\.test_split out"):
        load_dataset("cifar10", root=tmp_path, test_split="val")


def test_cifar100_has_its_coarse_labels(tmp_path: Path) -> None:
    LAYOUTS["cifar100"][0](tmp_path)
    dataset = load_dataset("cifar100", root=tmp_path)
    assert dataset.coarse_of == tuple(k % 20 for k in range(100))
    assert dataset.coarse_classes[3] == "coarse 03"


def test_cifar100_refuses_two_coarse_labels_for_a_class(tmp_path: Path) -> None:
    folder = LAYOUTS["cifar100"][0](tmp_path)
    coarse = [k % 20 for k in range(100)] + [(k + 1) % 20 for k in range(100)]
    cifar_batch(folder / "train", 200, {"fine_labels": list(range(100)) * 2, "coarse_labels": coarse})
    with pytest.raises(FedotpError, match="every class should have one coarse label"):
        load_dataset("cifar100", root=tmp_path)


def test_cifar_refuses_pixels_of_another_shape(tmp_path: Path) -> None:
    folder = LAYOUTS["cifar10"][0](tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": np.zeros((2, 100), np.uint8), "labels": [0, 1]}))
    with pytest.raises(FedotpError, match=r"test_batch: data should be uint8 of shape \(2, 3072\)"):
        load_dataset("cifar10", root=tmp_path)


# CoOp's JSON


def _pets_json() -> dict[str, list[tuple[str, int, str]]]:
    return {
        "train": [("Abyssinian_1.jpg", 0, "abyssinian"), ("Egyptian_Mau_12.jpg", 1, "egyptian_mau")],
        "val": [("Abyssinian_2.jpg", 0, "abyssinian")],
        "test": [("Egyptian_Mau_30.jpg", 1, "egyptian_mau")],
    }


def test_zhou_split_wins_over_the_official_one(tmp_path: Path) -> None:
    folder = LAYOUTS["oxford_pets"][0](tmp_path)
    zhou_split(folder, "OxfordPets", _pets_json())
    dataset = load_dataset("oxford_pets", root=tmp_path)
    assert dataset.classes == ("abyssinian", "egyptian mau")
    assert (len(dataset.train), len(dataset.test)) == (2, 1)  # validation images are left out
    assert dataset.test.image(0).size == (10, 12)
    assert "CoOp" in dataset.split_note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{not json", "is not JSON"),
        ("[]", "has no list 'train'"),
        ('{"train": []}', "has no list 'test'"),
        ('{"train": [["a.jpg", 0]], "test": []}', "should be \\[path, label, class name\\]"),
        ('{"train": [["a.jpg", "0", "cat"]], "test": []}', "should be \\[path, label, class name\\]"),
        ('{"train": [["../../secret.jpg", 0, "cat"]], "test": []}', "must stay below"),
        ('{"train": [["/etc/secret.jpg", 0, "cat"]], "test": []}', "must stay below"),
        ('{"train": [["a.jpg", 0, "cat"], ["b.jpg", 0, "dog"]], "test": []}', "label 0 is called"),
        ('{"train": [["a.jpg", 0, "cat"], ["b.jpg", 2, "dog"]], "test": []}', "should have no gaps"),
        ('{"train": [["no_such.jpg", 0, "cat"]], "test": []}', "no image of class 'cat' found"),
    ],
)
def test_wrong_zhou_split_is_refused_with_its_path(text: str, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS["oxford_pets"][0](tmp_path)
    (folder / "split_zhou_OxfordPets.json").write_text(text)
    with pytest.raises(FedotpError, match=message) as caught:
        load_dataset("oxford_pets", root=tmp_path)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(FedotpError, match="no image of class 'a' found below"):
        load_dataset(tmp_path)
    zhou_split(tmp_path, "Yours", rows)
    with pytest.raises(FedotpError, match=r"has split_zhou_Mine.json, split_zhou_Yours.json; leave the one"):
        load_dataset(tmp_path)


def test_eurosat_without_its_list_gets_coops_sizes(tmp_path: Path) -> None:
    write_tree(tmp_path / "eurosat", [f"2750/{c}/{i}.jpg" for c in ("AnnualCrop", "River") for i in range(10)])
    dataset = load_dataset("eurosat", root=tmp_path)
    assert dataset.classes == ("annual crop land", "river")
    assert (dataset.counts("train").tolist(), dataset.counts("test").tolist()) == ([5, 5], [3, 3])


def test_imagenet_needs_a_name_for_every_folder(tmp_path: Path) -> None:
    folder = LAYOUTS["imagenet"][0](tmp_path)
    (folder / "classnames.txt").write_text("n01440764 tench\nn04008634 missile\n")
    with pytest.raises(FedotpError, match=r"classnames.txt has no line for n03773504"):
        load_dataset("imagenet", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("office_home", "OfficeHomeDataset_10072016", "OfficeHome"),
        ("office_home", "Real World", "RealWorld"),
        ("vlcs", "VLCS/VOC2007", "VLCS/PASCAL"),
        ("pacs", "PACS", "PACS/kfold"),
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


def _remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


@pytest.mark.parametrize(
    ("name", "pattern", "message"),
    [
        ("oxford_pets", "images/Egyptian_Mau_*", "no image of class 'Egyptian_Mau'"),
        ("food101", "images/apple_pie/*", "no image of class 'apple_pie'"),
        ("dtd", "images/banded/*", "no image of class 'banded'"),
        ("flowers102", "jpg/*", "no image of class 'pink primrose'"),
        ("caltech101", "101_ObjectCategories/accordion/*", "no image of class 'accordion'"),
        ("domainnet", "sketch/zebra/*", "sketch: no image of class 'zebra'"),
        ("office_caltech10", "dslr/mug/*", "dslr: no image of class 'mug'"),
        ("office31", "dslr/images/mug/*", "dslr/images: no image of class 'mug'"),
        ("ucf101", "UCF-101-midframes/Yo_Yo/*", "no image of class 'Yo_Yo'"),
        ("fgvc_aircraft", "images/1*", "no image of class 'Boeing 717'"),
    ],
)
def test_missing_class_is_named(name: str, pattern: str, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS[name][0](tmp_path)
    _remove(folder, pattern)
    with pytest.raises(FedotpError, match=message):
        load_dataset(name, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("oxford_pets", "annotations/test.txt", "Abyssinian_1 one 1 1", "should be 'Breed_12 1 1 1'"),
        ("oxford_pets", "annotations/test.txt", "Abyssinian_1 9 1 1", "should have no gaps"),
        ("food101", "meta/test.txt", "pizza/1", "is not class/image"),
        ("dtd", "labels/val1.txt", "banded", "is not class/image"),
        ("flowers102", "imagelabels.mat", "MATLAB", "is not a MAT 5 file"),
        ("oxford_pets", "annotations/test.txt", "Siamese_1 1 1 1", "label 0 is called 'Abyssinian' and"),
        ("flowers102", "cat_to_name.json", '["rose"]', "should be"),
        ("fgvc_aircraft", "images_variant_test.txt", "0000001 Concorde", "is not 'image variant' with one of 2"),
        ("fgvc_aircraft", "images_variant_train.txt", "../../../x 707-320", "must stay below"),
        ("imagenet", "classnames.txt", "n01440764", "should be 'n01440764 tench'"),
        ("sun397", "split_zhou_SUN397.json", '{"train": []}', "has no list 'test'"),
        ("cifar10", "data_batch_3", "garbage", "not a pickle that can be read safely"),
        ("cifar100", "meta", "garbage", "not a pickle that can be read safely"),
    ],
)
def test_malformed_file_is_named(name: str, file: str, content: str, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS[name][0](tmp_path)
    (folder / file).write_text(content)
    with pytest.raises(FedotpError, match=message) as caught:
        load_dataset(name, root=tmp_path)
    assert str((folder / file).parent) in str(caught.value)


@pytest.mark.parametrize("name", LAYOUTS)
def test_absent_data_set_says_where_it_should_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(FedotpError) as caught:
        load_dataset(name, root=tmp_path)
    assert str(tmp_path / DATASETS[name].folder) in str(caught.value)
    if DATASETS[name].resources:  # the command fetches it to where it was looked for
        assert f"`fedotp data download {name} --root {tmp_path}` fetches it" in str(caught.value)
    assert find_dataset(name, tmp_path) is None


def test_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match=r"the folder .*/nowhere does not exist"):
        load_dataset(tmp_path / "nowhere")


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(FedotpError, match="did you mean 'oxford_pets'"):
        load_dataset("oxford_pet")


def test_a_name_like_no_data_set_is_taken_for_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedotpError, match="unknown data set 'my-photos', and there is no such folder here"):
        load_dataset("my-photos")
    Path("photos.zip").write_bytes(b"")
    with pytest.raises(FedotpError, match=r"photos\.zip is a file"):
        load_dataset("photos.zip")


# Flowers without an official split; MAT files


def test_flowers_without_setid_get_coops_sizes(tmp_path: Path) -> None:
    folder = tmp_path / "oxford_flowers"
    write_tree(folder, [f"jpg/image_{i:05d}.jpg" for i in range(1, 21)])
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": np.repeat([[2, 1]], 10)})
    (folder / "cat_to_name.json").write_text(json.dumps({"2": "Tiger Lily", "1": "rose"}))
    dataset = load_dataset("flowers102", root=tmp_path)
    assert dataset.classes == ("rose", "tiger lily")
    assert (dataset.counts("train").tolist(), dataset.counts("test").tolist()) == ([5, 5], [3, 3])
    assert {dataset.train.name(i) < "jpg/image_00011.jpg" for i in np.flatnonzero(dataset.train.labels == 1)} == {True}


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_reader_agrees_with_scipy(compressed: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "a": rng.integers(0, 200, (1, 999)).astype(np.uint8),
        "longer_name": rng.integers(0, 9000, (1, 501)).astype(np.float64),
        "x": np.array([[7]], np.int16),
        "y": rng.integers(-9, 9, (4, 3)).astype(np.int32),
    }
    scipy.io.savemat(tmp_path / "a.mat", columns, do_compression=compressed)
    read = read_mat(tmp_path / "a.mat")
    assert list(read) == list(columns)
    for key, values in columns.items():
        assert np.array_equal(read[key], values.ravel(order="F"))


@pytest.mark.parametrize(("file", "key"), [("imagelabels.mat", "labels"), ("setid.mat", "tstid")])
@pytest.mark.parametrize("number", [0, 307])
def test_flower_numbers_outside_the_range_are_refused(file: str, key: str, number: int, tmp_path: Path) -> None:
    folder = LAYOUTS["flowers102"][0](tmp_path)
    columns = dict(read_mat(folder / file))
    columns[key] = columns[key].copy()
    columns[key][5] = number
    scipy.io.savemat(folder / file, columns)
    with pytest.raises(FedotpError, match=f"{file}: the variable '{key}' should hold numbers from 1 to"):
        load_dataset("flowers102", root=tmp_path)


def test_mat_reader_refuses_a_cut_file(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"a": np.arange(1000)})
    (tmp_path / "cut.mat").write_bytes((tmp_path / "a.mat").read_bytes()[:-40])
    with pytest.raises(FedotpError, match="cut short"):
        read_mat(tmp_path / "cut.mat")


# Restricted pickles


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_malicious_pickle_is_refused_and_runs_nothing(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pkl"
    path.write_bytes(pickle.dumps([_Evil()], protocol=protocol))
    with pytest.raises(FedotpError, match=r"it wants to run \w+\.mkdir"):
        read_pickle(path)
    assert not (tmp_path / "executed").exists()
    pickle.loads(path.read_bytes())  # the ordinary reader would have run it
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.",
        b"cnumpy\nndarray.tofile\n.",
    ],
)
def test_other_globals_are_refused(code: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pkl").write_bytes(code)
    with pytest.raises(FedotpError, match="read safely"):
        read_pickle(tmp_path / "x.pkl")


@pytest.mark.parametrize("protocol", range(5))  # CIFAR's files have 2, FedBN's 3 or 4
def test_plain_content_comes_through(protocol: int, tmp_path: Path) -> None:
    content = {
        "numbers": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "strings": np.array(["a", "b"], dtype=object),
        "fixed": np.array(["a", "bc"]),
        "scalar": np.int64(3),
        "list": [1, 2.5, None, ("x", b"y")],
    }
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(content, protocol=protocol))
    read = read_pickle(tmp_path / "x.pkl")
    for key, value in content.items():
        assert np.array_equal(read[key], value) if key != "list" else read[key] == value


def test_pickle_with_numpy_1_module_names_is_read(tmp_path: Path) -> None:
    code = pickle.dumps(np.arange(3), protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    (tmp_path / "x.pkl").write_bytes(code)
    assert read_pickle(tmp_path / "x.pkl").tolist() == [0, 1, 2]


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ((["a/b/c.jpg"], []), "1 paths but 0 class names"),
        ((["a/b/c.jpg"], ["spaceship"]), "unknown class 'spaceship'"),
        ((["../../../c.jpg"], ["mug"]), "must stay below"),
        (3, "two columns"),
    ],
)
def test_wrong_fedbn_pickle_is_refused(content: object, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS["office_caltech10"][0](tmp_path)
    fedbn_pickles(folder, OFFICE)
    (folder / "dslr_test.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(FedotpError, match=message):
        load_dataset("office_caltech10", root=tmp_path)


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


# Folders


def _names(dataset: Dataset) -> tuple[list[str], list[str]]:
    return tuple(sorted(s.name(i) for i in range(len(s))) for s in (dataset.train, dataset.test))  # type: ignore[return-value]


def test_folder_of_classes_is_split_the_same_every_time(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/{i}.png" for c in ("Big Cat", "dog_2") for i in range(10)])
    dataset = read_folder(tmp_path)
    assert dataset.classes == ("big cat", "dog 2")
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    assert dataset.counts("test").tolist() == [2, 2]
    assert _names(dataset) == _names(read_folder(tmp_path))


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


def test_folder_of_domains(tmp_path: Path) -> None:
    domain_tree(tmp_path, ("photo", "sketch"), ("cat", "dog"), 5)
    dataset = read_folder(tmp_path)
    assert dataset.domains == ("photo", "sketch")
    assert np.bincount(dataset.train.domains).tolist() == [8, 8]


def test_test_folder_takes_precedence_over_val(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "val", "test") for c in "ab" for i in range(2)])
    assert _names(read_folder(tmp_path))[1] == [
        "test/a/0.png",
        "test/a/1.png",
        "test/b/0.png",
        "test/b/1.png",
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no image in"),
        (["a/1.png", "x/b/2.png"], "all be at class/ or all at domain/class/"),
        (["1.png"], "all be at class/ or all at domain/class/"),
        (["train/a/1.png", "b/2.png"], "all be at class/ or all at domain/class/"),
        (["a/b/c/d/1.png"], "deeper than split/domain/class"),
        (["train/a/1.png", "train/b/1.png"], "has only train/; it needs train/ and test/"),
        (["val/a/1.png", "test/b/1.png"], "has only test and val/"),
        (["train/a/1.png", "test/b/1.png"], "test/b/ is a class without training images; put some into its folder"),
        (["Cat/1.png", "Cat/2.png", "cat/1.png", "cat/2.png"], "the classes of Cat/ and cat/ both read 'cat'"),
        (["photo/big_cat/1.png", "sketch/Big Cat/1.png"], "of photo/big_cat/ and sketch/Big Cat/ both read 'big cat'"),
        (["a/1.png", "b/1.png"], "test split is empty"),
    ],
)
def test_unclear_folder_is_refused(names: list[str], message: str, tmp_path: Path) -> None:
    write_tree(tmp_path, names)
    with pytest.raises(FedotpError, match=message):
        read_folder(tmp_path)


def test_folders_that_archives_and_disks_add_are_no_classes(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/{i}.png" for c in ("a", "b", "__MACOSX", ".thumbs", "a/@eaDir") for i in range(5)])
    dataset = read_folder(tmp_path)
    assert (dataset.classes, len(dataset.train)) == (("a", "b"), 8)


def test_val_beside_test_is_left_out_and_said(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "val", "test") for c in "ab" for i in range(2)])
    dataset = read_folder(tmp_path)
    assert dataset.notes == ("left out: 4 images in val/; test/ is the test split",)
    assert dataset.split_note == "folders train/ and test/"
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
    (told,) = dataset.notes
    assert told.startswith("left out, as fedotp does not read them: 2 .nef, 1 .nii, 1 .nii.gz; convert them to PNG or ")
    assert told.endswith("nibabel and rawpy can read them")
    for path in (tmp_path / "a").glob("*.png"):
        path.unlink()
    with pytest.raises(FedotpError, match=f"no image in {tmp_path / 'a'}; left out, .*: 1 .nef; .*; add some or"):
        read_folder(tmp_path)


def test_pets_without_lists_are_not_one_class(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"oxford_pets/images/beagle_{i}.png" for i in range(5)])
    missing = "annotations/trainval.txt or split_zhou_OxfordPets.json is missing, and all images"
    with pytest.raises(FedotpError, match=f"has the name of Oxford-IIIT Pets, but not its lists: {missing}"):
        load_dataset(tmp_path / "oxford_pets")
    assert load_dataset("folder", root=tmp_path / "oxford_pets").classes == ("images",)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        [f"{d}/{c}/{i}.png" for d in ("photo", "sketch") for c in ("train", "ship") for i in range(5)],
    )
    dataset = read_folder(tmp_path)
    assert (dataset.domains, dataset.classes) == (("photo", "sketch"), ("ship", "train"))


def test_circle_of_links_ends(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"a/{i}.png" for i in range(5)])
    (tmp_path / "b").symlink_to(tmp_path)
    with pytest.raises(FedotpError, match="deeper than split/domain/class"):
        read_folder(tmp_path)


def test_linked_class_folders_are_followed(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"mine/a/{i}.png" for i in range(5)] + [f"elsewhere/{i}.png" for i in range(5)])
    (tmp_path / "mine" / "b").symlink_to(tmp_path / "elsewhere")
    assert read_folder(tmp_path / "mine").classes == ("a", "b")


def test_empty_class_folder_is_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"a/{i}.png" for i in range(5)])
    (tmp_path / "b").mkdir()
    with pytest.raises(FedotpError, match=f"no image in {tmp_path / 'b'}"):
        read_folder(tmp_path)


def test_hidden_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/{i}.png" for c in "ab" for i in range(5)])
    (tmp_path / "a" / "notes.txt").write_text("x")
    (tmp_path / "a" / "._0.png").write_text("x")
    (tmp_path / ".git").mkdir()
    assert len(read_folder(tmp_path).train) == 8


def test_folder_name_forces_the_generic_reader(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"caltech/{c}/{i}.png" for c in "ab" for i in range(5)])
    with pytest.raises(FedotpError, match="has no folder 'amazon'"):
        load_dataset(tmp_path)
    assert load_dataset("folder", root=tmp_path).domains == ("caltech",)
    with pytest.raises(FedotpError, match="needs a root"):
        load_dataset("folder")


def test_unicode_names_survive(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{c}/Bär {i} 猫.png" for c in ("crème_brûlée", "寿司") for i in range(5)])
    dataset = read_folder(tmp_path)
    assert dataset.classes == ("crème brûlée", "寿司")
    assert check_dataset(dataset).broken == ()
    assert dataset.train.image(0).size == (10, 12)


def test_digest_depends_on_names_and_labels_not_on_the_place(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write_tree(tmp_path / place / "pets", [f"{c}/{i}.png" for c in "ab" for i in range(5)])
    first, second = (read_folder(tmp_path / place / "pets") for place in ("one", "two"))
    assert first.digest == second.digest
    write_image(tmp_path / "two" / "pets" / "a" / "new.png")
    assert read_folder(tmp_path / "two" / "pets").digest != first.digest


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Egyptian_Mau", "egyptian mau"),
        ("  Yin__yang ", "yin yang"),
        ("boeing_747", "boeing 747"),
        ("globe-flower", "globe-flower"),
        ("cafe\u0301", "café"),
    ],
)
def test_readable_names(name: str, words: str) -> None:
    assert readable(name) == words


def test_flower_names_are_complete() -> None:
    assert len(set(FLOWERS102)) == 102
    assert (FLOWERS102[0], FLOWERS102[50], FLOWERS102[73]) == ("pink primrose", "petunia", "rose")
