"""A folder of DICOM files and of 16-bit pictures: checked, trained on, exported, predicted, served."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_made import Fedotp, command
from PIL import Image

from data.dicom_made import dicom
from fedotp.classifier import Classifier
from fedotp.clip import load as load_clip
from fedotp.config import Config
from fedotp.data import load_dataset
from fedotp.errors import FedotpError
from fedotp.flower.site import SiteSettings
from fedotp.flower.site._source import OwnImages
from fedotp.runs.directory import RunDirectory
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


def test_without_pydicom_no_scan_is_taken_for_broken(
    ward: Path, made: Path, tmp_path: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is any left out, though broken ones may be."""
    done = fedotp("data", "check", ward / "scans")
    assert done.status == 0, done.err
    assert "24 images, 0 broken" in done.out
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


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slices of oslo in Hounsfield units, as DICOM, and of bergen in 16 bits, as PNG; a table of both."""
    folder, rng = tmp_path_factory.mktemp("study"), np.random.default_rng(1)
    lines = ["path,label,site"]
    for site in ("oslo", "bergen"):
        (folder / site).mkdir()
        for kind, spot in (("nodule", 100), ("no nodule", -1100)):
            for i in range(10):
                values = rng.integers(-700, -500, (40, 44))
                values[10:30, 10:30] = spot
                name = f"{site}/{kind}-{i}"
                if site == "oslo":
                    content = dicom(values.astype(np.int16), RescaleIntercept=0, RescaleSlope=1)
                    (folder / name).write_bytes(content)
                else:
                    name += ".png"
                    Image.fromarray(((values + 1350) * 40).astype(np.uint16)).save(folder / name)
                lines.append(f"{name},{kind},{site}")
    (folder / "study.csv").write_text("\n".join(lines))
    return folder


LUNG, BERGEN = "-600/1500", "0..60000"


def test_a_window_that_hides_a_site_is_said(study: Path, made: Path, tmp_path: Path, fedotp: Fedotp) -> None:
    done = fedotp("data", "check", study / "study.csv", "--window", LUNG)
    assert done.status == 0, done.err
    assert "black or white: of 20 pictures of more than 8 bits the window -600/1500 hides nearly all" in done.out
    assert "black or white" not in fedotp("data", "check", study / "study.csv", "--window", "data").out
    assert fedotp("data", "check", study / "study.csv", "--window", "9").err.startswith("error: window '9': must be")
    run = _trained_on(study, made, tmp_path, "--set", f"data.window={LUNG}")
    (note,) = run.manifest["data"]["notes"]
    assert note.startswith("the window -600/1500 makes nearly all pixels of most images of bergen black or white")


def test_sites_have_windows_of_their_own_in_a_simulation(
    study: Path, made: Path, tmp_path: Path, fedotp: Fedotp
) -> None:
    """What a client predicts afterwards is what the run tested."""
    windows = ("--set", f"data.window={LUNG}", "--set", f"data.windows=bergen={BERGEN}")
    run = _trained_on(study, made, tmp_path, *windows)
    assert run.manifest["data"]["notes"] == []
    dataset = load_dataset(study / "study.csv")
    lines = run.predictions()
    for number, client in enumerate(run.manifest["clients"]):
        classifier = Classifier.from_run(run.path, client)
        assert classifier.window == {"oslo": LUNG, "bergen": BERGEN}[client]
        rows = np.flatnonzero(dataset.test.domains == dataset.domains.index(client))
        mine = lines.client == number
        found = classifier.predict([dataset.test.where(int(row)) for row in rows])
        loss = -np.log(found.probabilities[np.arange(len(rows)), dataset.test.labels[rows]])
        np.testing.assert_allclose(np.sort(loss), np.sort(lines.loss[mine]), atol=2e-3)
    wrong = fedotp(
        "run", made / "tiny.toml", "--set", f"data.dataset={study / 'study.csv'}", "--set", "data.windows=x=full"
    )
    assert (wrong.status, wrong.err) == (2, "error: study has no site 'x'; its sites are bergen, oslo\n")


def test_a_real_site_sees_its_images_through_its_own_window(
    study: Path, made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever window the federation has agreed on."""
    lines = (study / "study.csv").read_text().splitlines()
    (study / "bergen.csv").write_text("\n".join(line for line in lines if not line.endswith("oslo")))
    agreed = Config.read(made / "tiny.toml").override([f"data.window={LUNG}"])
    clip = load_clip(made / "tiny.safetensors")

    def tokens(window: str, config: Config) -> torch.Tensor:
        settings = SiteSettings(
            "bergen", tmp_path, str(study / "bergen.csv"), backbone=str(made / "tiny.safetensors"), window=window
        )
        local = settings.local(config)
        train = settings.source.images(local, ("no nodule", "nodule"), clip, None).train
        return train.read(np.arange(16)[None], 0, torch.device("cpu"), torch.float32)[0].tokens

    hidden = tokens("", agreed)
    assert "site bergen: the window -600/1500 makes nearly all pixels of most images black or white" in caplog.text
    caplog.clear()
    own = tokens(BERGEN, agreed)
    assert caplog.text == ""
    torch.testing.assert_close(own, tokens("", agreed.override([f"data.window={BERGEN}"])))
    torch.testing.assert_close(own, tokens("", agreed.override([f"data.windows=bergen={BERGEN}"])))
    assert (own != hidden).any()
    with pytest.raises(FedotpError, match="window 'wide': must be"):
        tokens("wide", agreed)


def _trained_on(study: Path, made: Path, folder: Path, *words: object) -> RunDirectory:
    data = ("--set", f"data.dataset={study / 'study.csv'}", "--set", f"data.store={folder / 'store'}")
    given = (*data, "--set", "partition.scheme=site", "--set", "partition.n_clients=2", *words)
    done = command("run", made / "tiny.toml", *given, "--out", folder / "run", "--quiet")
    assert done.status == 0, done.err
    return RunDirectory.open(folder / "run")


def test_predict_export_and_serve_see_what_training_saw(
    trained: RunDirectory, ward: Path, made: Path, tmp_path: Path, fedotp: Fedotp
) -> None:
    assert trained.config.data.window == WINDOW
    assert "rgb-upright, window 0..4095, " in trained.manifest["transforms"]["test"]
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
