"""`fedotp data` as a user types it."""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from data_command import ok, run
from layouts import LAYOUTS, write_tree
from PIL import Image

from fedotp.data import DATASETS, load_dataset
from fedotp.data._download import Resource
from fedotp.data.partition import Partition
from fedotp.errors import FedotpError


@pytest.fixture
def office(tmp_path: Path) -> Path:
    LAYOUTS["office_caltech10"][0](tmp_path)
    return tmp_path


def test_info_shows_counts_and_the_origin_of_the_split(office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ok("info", "office_caltech10", "--root", office)
    assert "160 train, 40 test images" in text
    assert "drawn once" in text
    assert "laptop computer" in text
    assert "not found" not in text
    assert f"not found at {office / 'dtd'}" in ok("info", "dtd", "--root", office)
    shutil.move(office / "office_caltech_10", office / "data" / "office_caltech_10")
    monkeypatch.setenv("FEDOTP_CACHE", str(office))  # the default root is below it
    assert "160 train" in ok("info", "office_caltech10")
    monkeypatch.delenv("FEDOTP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(office / "xdg"))
    assert f"not found at {office / 'xdg' / 'fedotp' / 'data'}" in ok("info", "office_caltech10")


def test_check_reports_broken_files_and_duplicates(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in "ab" for i in range(3)])
    assert "12 images, 0 broken, 0 test images also in train, 0 duplicates, 0 with two labels" in ok("check", tmp_path)
    shutil.copy(tmp_path / "train/a/0.png", tmp_path / "test/a/0.png")
    (tmp_path / "train/b/1.png").write_bytes(b"")
    result = run("check", tmp_path, "--workers", 1)
    assert result.exit_code == 1
    assert "12 images, 1 broken, 1 test image also in train, 0 duplicates, 0 with two labels" in result.output
    assert f"broken: {tmp_path / 'train/b/1.png'}: zero bytes" in result.output
    assert f"{tmp_path / 'test/a/0.png'} = {tmp_path / 'train/a/0.png'}" in result.output
    shutil.copy(tmp_path / "train/a/0.png", tmp_path / "train/b/0.png")
    result = run("check", tmp_path, "--workers", 1)
    same = f"{tmp_path / 'train/b/0.png'} = {tmp_path / 'train/a/0.png'}"
    assert f"duplicate: {same}" in result.output
    assert f"two labels: {same}" in result.output


def test_partition_saves_prints_and_draws(office: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "p.json", tmp_path / "p.png"
    text = ok(
        *("partition", "office_caltech10", "--root", office, "--out", out, "--plot", plot),
        *("--set", "partition.scheme=domain-dirichlet", "--set", "partition.alpha=0.1", "--set", "partition.seed=3"),
    )
    partition = Partition.load(out)
    assert f"12 clients, digest {partition.digest}" in text
    assert "webcam-2" in text
    partition.require(load_dataset("office_caltech10", root=office))
    image = Image.open(plot).convert("RGB")
    colours = {colour for count, colour in image.getcolors(1 << 24) if count > 200}
    assert {(0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167)} <= colours  # one per domain


def test_many_clients_are_drawn_without_names_and_class_names_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    LAYOUTS["cifar100"][0](tmp_path)
    words = ("partition", "cifar100", "--root", tmp_path, "--set", "partition.scheme=coarse", "--plot")
    ok(*words, tmp_path / "p.svg")
    assert "client-0" not in (tmp_path / "p.svg").read_text()
    refused = run(*words, tmp_path / "p.xyz")
    assert isinstance(refused.exception, FedotpError)
    assert "must be a png, svg or pdf file" in str(refused.exception)
    write_tree(
        tmp_path / "odd", [f"{domain}/{c}/{i}.png" for domain in "ab" for c in ("$\\frac{$", "x") for i in range(5)]
    )
    ok("partition", tmp_path / "odd", "--set", "partition.scheme=domain", "--plot", tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size


def test_download_puts_the_data_where_load_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command fetches the catalogue's resources; the server is a file here."""
    LAYOUTS["dtd"][0](tmp_path / "source")
    archive = Path(shutil.make_archive(str(tmp_path / "dtd"), "gztar", tmp_path / "source"))
    resource = Resource(archive.as_uri(), hashlib.sha256(archive.read_bytes()).hexdigest(), "dtd")
    monkeypatch.setitem(DATASETS, "dtd", replace(DATASETS["dtd"], resources=(resource,)))
    text = ok("download", "dtd", "--root", tmp_path / "data")
    assert f"Describable Textures is at {tmp_path / 'data' / 'dtd'}" in text
    assert len(load_dataset("dtd", root=tmp_path / "data").train) == 8


EVIL = "\x1b[31mred\u202e"  # colours the terminal, turns the direction of writing
MARKED = "[bold]x"  # Rich would print x


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A folder whose files, classes and domains have names that mean something to a terminal or to Rich."""
    root = tmp_path / f"{EVIL}\nfolder"
    places = [f"{domain}/{kind}" for domain in (f"{EVIL}d", "[red]") for kind in (EVIL, MARKED)]
    write_tree(root, [f"{place}/{i}.png" for place in places for i in range(5)])
    (root / "[red]" / EVIL / "line\nbreak.png").write_bytes(b"")
    shutil.copy(root / "[red]" / MARKED / "0.png", root / "[red]" / MARKED / "copy\x9b.png")
    return root


def _harmless(text: str) -> bool:
    return all(c.isprintable() for line in text.split("\n") for c in line)


@pytest.mark.parametrize("command", ["info", "check", "partition", "list", "encode"])
def test_names_of_files_classes_and_domains_cannot_harm_the_terminal(command: str, evil: Path, tmp_path: Path) -> None:
    skip = ("--set", "data.skip_broken=true")
    options = {
        "partition": ("--set", "partition.scheme=domain", *skip),
        "list": ("--root",),
        "encode": ("--set", "backbone.name=mini", "--set", f"data.store={tmp_path / 'tokens'}", "--quiet", *skip),
    }
    if command == "list":
        LAYOUTS["dtd"][0](evil)
    result = run(command, *options.get(command, ()), evil)
    assert result.exit_code in (0, 1), result.output
    assert _harmless(result.output)
    assert _harmless(result.stderr)
    if command in ("info", "check"):
        assert MARKED in result.output  # and not x
        assert "[red]" in result.output
        assert "\\x1b[31mred\\u202e" in result.output
    if command == "check":
        assert "line\\nbreak.png: zero bytes" in result.output
    if command in ("partition", "encode"):
        assert "1 broken image skipped" in result.output
    if command == "encode":
        assert _harmless(run("cache", "show", "--store", tmp_path / "tokens").output)


def test_names_that_are_not_utf8_are_shown_and_encoded_and_refused_as_classes(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_tree(root, [f"{kind}/{i}.png" for kind in "ab" for i in range(5)])
    (root / "a" / "0.png").rename(root / "a" / os.fsdecode(b"caf\xe9.png"))
    (root / "a" / os.fsdecode(b"bad\xe9.png")).write_bytes(b"")
    assert "bad\\udce9.png: zero bytes" in run("check", root).output
    chosen = ("backbone.name=mini", f"data.store={tmp_path / 'tokens'}", "data.skip_broken=true")
    words = [word for each in chosen for word in ("--set", each)]
    assert "10 crops" in ok("encode", root, "--quiet", *words)
    (root / "b").rename(root / os.fsdecode(b"caf\xe9"))
    assert "is not UTF-8; rename it" in str(run("info", root).exception)
