"""`fedotp calibrate`, `export --calibrate` and `predict --coverage`."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from cli_made import Fedotp, command

import fedotp as library
from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="module")
def bundle(trained: RunDirectory, client: str, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that was calibrated after it was exported."""
    folder = tmp_path_factory.mktemp("bundles") / "one"
    assert command("export", trained.path, "--client", client, "--out", folder).status == 0
    weights = made / "tiny.safetensors"
    done = command("calibrate", folder, made / "images", "--all", "--backbone", weights)
    assert done.status == 0, done.err
    assert "calibrated by 48 images: sets up to a coverage of 0.95; unlike images are flagged" in done.out
    return folder


def test_what_is_printed(bundle: Path, made: Path, fedotp: Fedotp) -> None:
    images = sorted((made / "images" / "day").rglob("*.png"))[:5]
    words = ("predict", bundle, *images, "--backbone", made / "tiny.safetensors", "--coverage", 0.9)
    expected = library.load(bundle, backbone=made / "tiny.safetensors").predict(images, coverage=0.9)
    assert expected.p_values is not None
    records = [json.loads(line) for line in fedotp(*words, "--json").out.splitlines()]
    assert [record["set"] for record in records] == expected.sets
    assert [(record["coverage"], record["p_value"]) for record in records] == [(0.9, p) for p in expected.p_values]
    assert [record["unlike"] for record in records] == expected.unlike.tolist()
    rows = list(csv.DictReader(io.StringIO(fedotp(*words, "--csv").out)))
    assert [json.loads(row["set"]) for row in rows] == expected.sets
    assert [float(row["p_value"]) for row in rows] == expected.p_values.tolist()
    for line, names in zip(fedotp(*words).out.splitlines(), expected.sets, strict=True):
        assert f"{{{', '.join(names)}}} at 0.9" in line


def test_a_stranger_is_flagged(bundle: Path, made: Path, place: Path, fedotp: Fedotp) -> None:
    from PIL import Image

    Image.effect_noise((32, 32), 200).convert("RGB").save(place / "noise.png")
    done = fedotp("predict", bundle, place / "noise.png", "--backbone", made / "tiny.safetensors")
    assert done.out.rstrip().endswith("unlike what this client was calibrated on (p = 0.04)")


def test_by_the_test_images_of_the_run(trained: RunDirectory, made: Path, place: Path, fedotp: Fedotp) -> None:
    client = max(trained.partition.clients, key=lambda each: len(each.test)).name
    image = next((made / "images").rglob("*.png"))
    done = fedotp(
        "predict", trained.path, "--client", client, image, "--calibrate", "test", "--coverage", 0.5, "--json"
    )
    assert done.status == 0, done.err
    assert json.loads(done.out)["set"]
    done = fedotp("export", trained.path, "--client", client, "--calibrate", "test", "--out", place / "two")
    assert "too few to flag unlike images" in done.out
    assert "calibration" in json.loads((place / "two" / "bundle.json").read_text())


def test_copies_among_the_test_images_of_a_run_count_once(
    made: Path, place: Path, fedotp: Fedotp, caplog: pytest.LogCaptureFixture
) -> None:
    """And those that some client has trained on do not count."""
    for path in (made / "images" / "day").rglob("*.png"):
        train, test = (place / "copied" / split / path.parent.name / path.name for split in ("train", "test"))
        for folder in (train.parent, test.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for new in [train] if path.name < "4" else [test, test.with_stem("copy" + path.stem)]:
            shutil.copy(path, new)
        if path.name == "1.png":
            shutil.copy(path, test)
    words = ("--set", "data.dataset=copied", "--set", "partition.scheme=iid", "--set", "partition.n_clients=1")
    done = fedotp("run", "tiny.toml", *words, "--out", "run", "--quiet")
    assert done.status == 0, done.err
    image = next((made / "images").rglob("*.png"))
    done = fedotp("predict", "run", image, "--calibrate", "test", "--coverage", 0.5, "--json")
    assert done.status == 0, done.err
    said = "12 images to calibrate by; left out: 12 copies of others, 3 images that are training images, too"
    assert caplog.messages == [said]
