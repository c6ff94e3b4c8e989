"""`fedotp data encode` and `fedotp data cache` as a user types them."""

import os
import time
from pathlib import Path

import pytest
from data_command import ok, run
from layouts import LAYOUTS
from store_made import tiny_clip
from typer.testing import Result

from fedotp.clip import save
from fedotp.data.store._store import default_store


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDOTP_CACHE", str(tmp_path))
    LAYOUTS["office_caltech10"][0](tmp_path / "data")
    for seed in range(2):
        save(tiny_clip(seed), tmp_path / f"{seed}.safetensors")
    return tmp_path


def test_encode_show_prune(here: Path) -> None:
    def encode(backbone: int, *options: object) -> Result:
        return run("encode", "office_caltech10", "--set", f"backbone.name={here / str(backbone)}.safetensors", *options)

    assert "0 stores" in ok("cache", "show")
    first = encode(0)
    assert first.exit_code == 0, first.output
    assert "160 train, 40 test images" in first.stdout
    assert "200 crops, 200 encoded now" in first.stdout
    lines = [line for line in first.stderr.splitlines() if line.startswith("encoding train: ")]
    assert 2 <= len(lines) <= 11
    assert "160 of 160 (100%), " in lines[-1]
    again = encode(0, "--quiet")
    assert "200 crops, 0 encoded now" in again.stdout
    assert again.stderr == ""
    assert "520 crops, 480 encoded now" in encode(0, "--set", "data.crops=3").stdout
    assert "200 crops, 200 encoded now" in encode(1, "--set", "data.storage=int8").stdout

    shown = ok("cache", "show")
    assert shown.count("backbone ") == 3
    assert f"backbone   {tiny_clip(1).digest}" in shown
    assert "ViT 32 px, 16 patches, in float32" in shown
    assert "160 images, at most 3 crops of each, float16" in shown
    assert "200 images, at most 1 crop of each, int8" in shown
    assert shown.endswith(f"{here / 'tokens'}: 3 stores, 896.0 KiB\n")

    assert "freed" in ok("cache", "prune", "--backbone", tiny_clip(1).digest[:8], "--yes")
    assert ok("cache", "show").count("backbone ") == 2
    assert "0 encoded now" in encode(0).stdout
    assert "200 encoded now" in encode(1).stdout


@pytest.fixture
def three_ages(here: Path) -> list[Path]:
    """Stores last used 30, 20 and 10 days ago."""
    for options in ((), ("--set", "data.storage=int8"), ("--set", "data.crops=1")):
        ok("encode", "office_caltech10", "--set", f"backbone.name={here}/0.safetensors", "--quiet", *options)
    stores = sorted(path.parent for path in default_store().glob("*/encoding.json"))
    for days, store in zip((30, 20, 10), stores, strict=True):
        then = time.time() - days * 86400
        os.utime(store / "encoding.json", (then, then))
    return stores


def test_prune_by_age_and_size(three_ages: list[Path]) -> None:
    for options in ((), ("--all", "--older-than", "3")):
        assert "select tokens with --older-than" in str(run("cache", "prune", *options).exception)
    assert ok("cache", "prune", "--older-than", 31, "--yes") == "nothing to prune\n"
    ok("cache", "prune", "--older-than", 25, "--yes")
    assert [store.exists() for store in three_ages] == [False, True, True]
    size = sum(path.stat().st_size for path in three_ages[2].iterdir())
    ok("cache", "prune", "--max-size", size / 2**30, "--yes")
    assert [store.exists() for store in three_ages] == [False, False, True]


def test_prune_asks_and_leaves_foreign_files(three_ages: list[Path]) -> None:
    assert run("cache", "prune", "--all", answer="n\n").exit_code == 1
    assert all(store.exists() for store in three_ages)
    mine = three_ages[0] / "0123456789abcdef.records"
    mine.write_text("my diary")
    (three_ages[1] / "notes.index").write_text("my notes")
    foreign = default_store() / "holiday"
    foreign.mkdir()
    (foreign / "encoding.json").write_text("[]")
    ok("cache", "prune", "--all", answer="y\n")
    assert not three_ages[2].exists()
    left = {path.name for path in default_store().rglob("*") if path.is_file() and path.parent.name != "hashes"}
    assert left == {mine.name, "notes.index", "encoding.json"}
