"""A folder of DICOM files and of 16-bit pictures: checked, trained on, exported, predicted, served."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_made import Fedotp, command
from PIL import Image

from data.dicom_made import dicom
from fedotp.classifier import Classifier
from fedotp.clip import load as load_clip
from fedotp.config import Config
from fedotp.flower.site._source import OwnImages
from fedotp.runs import RunDirectory
from serve.serve_made import served

WINDOW = "0..4095"


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slices with a bright or a dark spot, as DICOM files without suffixes and as 16-bit PNGs."""
    folder, rng = tmp_path_factory.mktemp("ward"), np.random.default_rng(0)
    for kind, spot in (("nodule", 3500), ("no nodule", 200)):
        (folder / "scans" / kind).mkdir(parents=True)
        for i in range(12):
            values = rng.integers(900, 1500, (40, 44)).astype(np.uint16)
            values[10:30, 10:30] = spot
            if i % 2:
                Image.fromarray(values).save(folder / "scans" / kind / f"{i}.png")
            else:
                facts = {"RescaleIntercept": 0, "RescaleSlope": 1}
                (folder / "scans" / kind / f"IM{i:04d}").write_bytes(dicom(values, bits=12, **facts))
    return folder


@pytest.fixture(scope="module")
def trained(ward: Path, made: Path) -> RunDirectory:
    words = [
        *("--set", f"data.dataset={ward / 'scans'}", "--set", f"data.window={WINDOW}"),
        *("--set", "partition.scheme=iid", "--set", "partition.n_clients=2", "--set", f"data.store={ward / 'store'}"),
    ]
    done = command("run", made / "tiny.toml", *words, "--out", ward / "run", "--quiet")
    assert done.status == 0, done.err
    return RunDirectory.open(ward / "run")


def test_the_check_reads_them(ward: Path, fedotp: Fedotp) -> None:
    done = fedotp("data", "check", ward / "scans")
    assert done.status == 0, done.err
    assert "24 images, 0 broken" in done.out


def test_without_pydicom_no_scan_is_taken_for_broken(
    ward: Path, made: Path, tmp_path: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is any left out, though broken ones may be."""
    monkeypatch.setitem(sys.modules, "pydicom", None)
    words = ("--set", f"data.dataset={ward / 'scans'}", "--set", f"data.store={tmp_path}")
    for done in (
        fedotp("data", "check", ward / "scans"),
        fedotp("data", "partition", ward / "scans", "--scheme", "iid", "--skip-broken"),
        fedotp("run", made / "tiny.toml", *words, "--set", "data.skip_broken=true", "--out", tmp_path / "run"),
    ):
        assert (done.status, done.out) == (2, "")
        assert done.err.splitlines()[-1] == "error: reading DICOM needs pydicom: pip install 'fedotp[medical]'"


def test_a_site_reads_its_table(ward: Path, made: Path) -> None:
    """What a real site does with its own images, below Flower."""
    lines = [
        f"{path.relative_to(ward)},{path.parent.name},{path.parent.name}-{i // 2}"
        for kind in ("nodule", "no nodule")
        for i, path in enumerate(sorted((ward / "scans" / kind).iterdir()))
    ]
    (ward / "scans.csv").write_text("\n".join(["path,label,group", *lines]))
    source = OwnImages(str(ward / "scans.csv"), "oslo")
    config = Config.read(made / "tiny.toml").override([f"data.window={WINDOW}", f"data.store={ward / 'site'}"])
    assert source.classes(config) == ("no nodule", "nodule")
    assert sum(source.sizes(config)) == 24
    images = source.images(config, ("nodule", "no nodule"), load_clip(made / "tiny.safetensors"), None)
    assert images.names == ("oslo",)
    assert len(images.train.labels) + len(images.test.labels) == 24


def test_the_run_records_its_window(trained: RunDirectory) -> None:
    assert trained.config.data.window == WINDOW
    assert "rgb-upright, window 0..4095, " in trained.manifest["transforms"]["test"]


def test_predict_export_and_serve_see_what_training_saw(
    trained: RunDirectory, ward: Path, made: Path, tmp_path: Path, fedotp: Fedotp
) -> None:
    client = trained.manifest["clients"][0]
    done = fedotp("predict", trained.path, "--client", client, ward / "scans", "--json")
    assert done.status == 0, done.err
    found = {record["image"]: record["probabilities"] for record in map(json.loads, done.out.splitlines())}
    assert len(found) == 24
    classifier = Classifier.from_run(trained.path, client)
    assert classifier.window == WINDOW
    values = np.asarray(classifier.transform.crop(Image.open(ward / "scans" / "nodule" / "1.png")))
    assert values[16, 16, 0] == round(3500 / 4095 * 255)

    assert fedotp("export", trained.path, "--client", client, "--out", tmp_path / "b").status == 0
    backbone = ("--backbone", made / "tiny.safetensors")
    again = fedotp("predict", tmp_path / "b", ward / "scans", "--json", *backbone)
    assert again.status == 0, again.err
    assert [json.loads(line)["probabilities"] for line in again.out.splitlines()] == list(found.values())

    path = ward / "scans" / "nodule" / "IM0000"
    with served(trained.path) as page:
        look = page.look(page.upload(path.read_bytes()), client).json
        best = {each["name"]: each["probability"] for each in look["best"]}
        assert best == pytest.approx(found[str(path)], abs=1e-5)
        assert page.ask("GET", f"/api/samples?client={client}").json["samples"]
