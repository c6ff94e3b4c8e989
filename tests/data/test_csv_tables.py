"""A table of images: what it says is what is read, and what is wrong with it is said with the line."""

import sys
from pathlib import Path

import pytest
from layouts import write_tree

from fedotp.data import Dataset, check_dataset, load_dataset
from fedotp.data._tables import from_hf
from fedotp.data.partition import PartitionSettings, make_partition
from fedotp.errors import FedotpError

HEADER = "path,label,split,site,group"


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """Two sites, two findings, six patients of each, two images of each patient."""
    write_tree(tmp_path, [f"{s}/p{p}_{i}.png" for s in ("oslo", "bergen") for p in range(6) for i in range(2)])
    return tmp_path


def table(folder: Path, lines: list[str], header: str = HEADER) -> Path:
    path = folder / "scans.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def lines(*columns: str) -> list[str]:
    """Every image of the ward: patients 0 to 3 are for training, 4 for validation, 5 for testing."""
    made = []
    for site in ("oslo", "bergen"):
        for p in range(6):
            split = "train" if p < 4 else ("Val" if p == 4 else "test")
            for i in range(2):
                row = {"path": f"{site}/p{p}_{i}.png", "label": ("nodule", "no_nodule")[i], "split": split}
                row |= {"site": site, "group": f"{site}-{p}"}
                made.append(",".join(row[column] for column in columns))
    return made


def names(dataset: Dataset, split: str) -> list[str]:
    part = getattr(dataset, split)
    return [part.name(i) for i in range(len(part))]


def test_every_column_is_read(ward: Path) -> None:
    dataset = load_dataset(table(ward, lines(*HEADER.split(","))))
    assert dataset.name == "scans"
    assert dataset.classes == ("no nodule", "nodule")
    assert dataset.domains == ("bergen", "oslo")
    assert dataset.split_note == "column split of scans.csv"
    assert names(dataset, "test") == [f"{s}/p5_{i}.png" for s in ("oslo", "bergen") for i in range(2)]
    chosen = load_dataset(ward / "scans.csv", test_split="val")
    assert names(chosen, "test") == [f"{s}/p4_{i}.png" for s in ("oslo", "bergen") for i in range(2)]
    assert len(dataset.train) == 16
    for i in range(16):
        site, _, rest = dataset.train.name(i).partition("/")
        assert dataset.domains[dataset.train.domains[i]] == site
        assert dataset.classes[dataset.train.labels[i]] == ("nodule", "no nodule")[int(rest[3])]
        assert dataset.groups[dataset.train.groups[i]] == f"{site}-{rest[1]}"
    partition = make_partition(dataset, PartitionSettings("site"))
    assert [(client.name, client.domain) for client in partition.clients] == [("bergen", "bergen"), ("oslo", "oslo")]
    assert [len(client.train) for client in partition.clients] == [8, 8]


def test_two_columns_are_enough_and_others_are_listed(ward: Path) -> None:
    path = table(ward, [f"{line};71" for line in lines("path", "label")], "Path ; LABEL;age")
    path.write_text("\ufeff" + path.read_text().replace(",", ";"), encoding="utf-8")
    dataset = load_dataset(path)
    assert (len(dataset.train), len(dataset.test)) == (19, 5)
    assert dataset.notes == ("unused columns: age",)
    assert dataset.domains == ("all",)


def test_images_may_lie_elsewhere(ward: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    path = table(tmp_path / "tables", lines("path", "label"), "path,label")
    with pytest.raises(FedotpError, match="no image of class"):
        load_dataset(path)
    assert len(load_dataset(path, root=ward).train) == 19


@pytest.mark.parametrize("groups", ["column", r"(\w+/p\d)_"])
def test_a_drawn_split_keeps_patients_on_one_side(ward: Path, groups: str) -> None:
    columns = ["path", "label", "site", *(["group"] if groups == "column" else [])]
    tmp_table, pattern = table(ward, lines(*columns), ",".join(columns)), "" if groups == "column" else groups
    dataset = load_dataset(tmp_table, groups=pattern)
    assert dataset.split_note == "drawn once, 80 % of every domain for training, no group in both splits"
    assert len(dataset.groups) == 12
    assert load_dataset(tmp_table, groups=pattern).digest == dataset.digest  # the same every time
    patients = [{name[:-6] for name in names(dataset, split)} for split in ("train", "test")]
    assert not patients[0] & patients[1]
    assert len(dataset.test) in (4, 6)
    assert {name.partition("/")[0] for name in names(dataset, "test")} == {"oslo", "bergen"}


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,label", ["a.png,x"], "line 1: no column 'path' among file, label"),
        ("path,label", [], "contains no images, only a header"),
        ("path,label", ["a.png,x", "b.png"], "line 3: expected 2 cells as in the header, got 1"),
        ("path,label", ["a.png,x", "../../etc/passwd,x"], "line 3: .* must be a path inside the data set's folder"),
        ("path,label", ["a.png,x", "b.png,y", "a.png,y"], "lines 2 and 4: a.png is listed twice"),
        ("path,label", ["a.png,no_nodule", "b.png,no nodule"], "lines 2 and 3: .* have the same name 'no nodule'"),
        ("path,label,split", ["a.png,x,train", "b.png,x,dev"], "line 3: split = 'dev': must be train, test or val"),
        ("path,label,split", ["a.png,x,train", "b.png,y,test"], "line 3: the label 'y' has no line with split train"),
        ("path,label", ['a.png,"x'], "line 2: not CSV"),
        ("path,label", ["a.png,x", "b.nii.gz,x"], r"line 3: unsupported image format \.nii\.gz; convert them to PNG"),
        (
            "path,label,split,group",
            ["oslo/p0_0.png,x,train,7", "oslo/p0_1.png,x,test,7"],
            "1 group in train and in test, for example '7' with oslo/p0_0.png and oslo/p0_1.png",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(ward: Path, header: str, rows: list[str], message: str) -> None:
    with pytest.raises(FedotpError, match=message) as refused:
        load_dataset(table(ward, rows, header))
    assert "\n" not in str(refused.value)
    assert "scans" in str(refused.value)


def test_a_missing_table_and_an_expression_that_finds_nothing(ward: Path) -> None:
    with pytest.raises(FedotpError, match=r"cannot read .*none.csv: No such file"):
        load_dataset(ward / "none.csv")
    path = table(ward, lines("path", "label"), "path,label")
    with pytest.raises(FedotpError, match=r"data.groups = 'x\(.\)' does not match oslo/p0_0.png"):
        load_dataset(path, groups="x(.)")


# Tables of Hugging Face


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedotpError, match=r"pip install 'fedotp\[hf\]'"):
        load_dataset("hf:uoft-cs/cifar10")


def test_a_hugging_face_table_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'hf'")
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in ("Big_Cat", "dog") for i in range(2)])
    tables = datasets.load_dataset("imagefolder", data_dir=str(tmp_path), cache_dir=str(tmp_path / "cache"))
    dataset = from_hf(tables, name="mine")
    assert dataset.classes == ("big cat", "dog")
    assert dataset.train.labels.tolist() == [0, 0, 1, 1]
    assert check_dataset(dataset).broken == ()
    assert dataset.test.image(3).size == (10, 12)
    with pytest.raises(FedotpError, match="must have train and test"):
        from_hf(datasets.DatasetDict({"train": tables["train"]}), name="mine")
