"""A study of two sites, one with DICOM files and one with 16-bit pictures: checked, trained on, predicted, served."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cli_made import Fedotp, command
from PIL import Image

from data.dicom_made import dicom
from fedotp.classifier import load
from fedotp.clip import load as load_clip
from fedotp.config import Config
from fedotp.data import load_dataset
from fedotp.errors import FedotpError
from fedotp.flower.site import SiteSettings
from fedotp.runs.directory import RunDirectory
from serve.serve_made import served

LUNG, VOSS = "-600/1500", "0..60000"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slices of oslo in Hounsfield units, as DICOM, and of voss in 16 bits, as PNG; a table of both."""
    folder, rng = tmp_path_factory.mktemp("study"), np.random.default_rng(1)
    lines = ["path,label,site"]
    for site in ("oslo", "voss"):
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


def train(study: Path, made: Path, folder: Path, *changes: str) -> RunDirectory:
    """A run of both sites in `folder`."""
    data = (f"data.dataset={study / 'study.csv'}", f"data.store={folder / 'store'}")
    partition = ("partition.scheme=site", "partition.n_clients=2")
    words = [word for change in (*data, *partition, *changes) for word in ("--set", change)]
    done = command("run", made / "tiny.toml", *words, "--out", folder / "run", "--quiet")
    assert done.status == 0, done.err
    return RunDirectory.open(folder / "run")


@pytest.fixture(scope="module")
def trained(study: Path, made: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Each site through a window that shows its images."""
    folder = tmp_path_factory.mktemp("windows")
    return train(study, made, folder, f"data.window={LUNG}", f"data.windows=voss={VOSS}")


def test_without_pydicom_no_scan_is_taken_for_broken(
    study: Path, made: Path, tmp_path: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is any left out, though broken ones may be."""
    done = fedotp("data", "check", study / "study.csv")
    assert done.status == 0, done.err
    assert "40 images, 0 broken" in done.out
    monkeypatch.setitem(sys.modules, "pydicom", None)
    words = ("--set", f"data.dataset={study / 'study.csv'}", "--set", f"data.store={tmp_path}")
    for done in (
        fedotp("data", "check", study / "study.csv"),
        fedotp("data", "partition", study / "study.csv", "--set", "data.skip_broken=true"),
        fedotp("run", made / "tiny.toml", *words, "--set", "data.skip_broken=true", "--out", tmp_path / "run"),
    ):
        assert (done.status, done.out) == (2, "")
        assert done.err.splitlines()[-1] == "error: DICOM images need pydicom: pip install 'fedotp[medical]'"


def test_a_window_that_hides_a_site_is_said(study: Path, made: Path, tmp_path: Path, fedotp: Fedotp) -> None:
    done = fedotp("data", "check", study / "study.csv", "--window", LUNG)
    assert done.status == 0, done.err
    assert "black or white: the window -600/1500 clips nearly all of 20 images of more than 8 bits" in done.out
    assert "black or white" not in fedotp("data", "check", study / "study.csv", "--window", "data").out
    run = train(study, made, tmp_path, f"data.window={LUNG}", "federation.rounds=0")
    (note,) = run.manifest["data"]["notes"]
    assert note.startswith("the window -600/1500 makes nearly all pixels of most images of voss black or white")


def test_a_client_predicts_what_the_run_tested(trained: RunDirectory, study: Path) -> None:
    """Through its own window."""
    assert trained.manifest["data"]["notes"] == []
    dataset = load_dataset(study / "study.csv")
    lines = trained.predictions()
    for number, client in enumerate(trained.manifest["clients"]):
        classifier = load(trained.path, client)
        assert classifier.window == {"oslo": LUNG, "voss": VOSS}[client]
        rows = np.flatnonzero(dataset.test.domains == dataset.domains.index(client))
        mine = lines.client == number
        found = classifier.predict([dataset.test.where(int(row)) for row in rows])
        loss = -np.log(found.probabilities[np.arange(len(rows)), dataset.test.labels[rows]])
        np.testing.assert_allclose(np.sort(loss), np.sort(lines.loss[mine]), atol=2e-3)


def test_predict_export_and_serve_see_what_training_saw(
    trained: RunDirectory, study: Path, made: Path, tmp_path: Path, fedotp: Fedotp
) -> None:
    done = fedotp("predict", trained.path, "--client", "oslo", study / "oslo", "--json")
    assert done.status == 0, done.err
    found = {record["image"]: record["probabilities"] for record in map(json.loads, done.out.splitlines())}
    assert len(found) == 20
    values = np.asarray(load(trained.path, "voss").transform.crop(Image.open(study / "voss" / "nodule-1.png")))
    assert values[16, 16, 0] == round((100 + 1350) * 40 / 60000 * 255)

    assert fedotp("export", trained.path, "--client", "oslo", "--out", tmp_path / "b").status == 0
    backbone = ("--backbone", made / "tiny.safetensors")
    again = fedotp("predict", tmp_path / "b", study / "oslo", "--json", *backbone)
    assert again.status == 0, again.err
    assert [json.loads(line)["probabilities"] for line in again.out.splitlines()] == list(found.values())

    with served(trained.path) as page:
        for site, name in (("oslo", "nodule-0"), ("voss", "nodule-0.png")):  # each through its own window
            path = study / site / name
            look = page.look(page.upload(path.read_bytes()), site).json
            best = {each["name"]: each["probability"] for each in look["best"]}
            expected = load(trained.path, site).predict(path)
            assert best == pytest.approx(dict(expected.top(2)[0]), abs=1e-5)
        assert page.ask("GET", "/api/samples?client=oslo").json["samples"]


def test_a_real_site_sees_its_images_through_its_own_window(
    study: Path, made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever window the federation has agreed on."""
    lines = (study / "study.csv").read_text().splitlines()
    (study / "voss.csv").write_text("\n".join(line for line in lines if not line.endswith("oslo")))
    agreed = Config.read(made / "tiny.toml").override([f"data.window={LUNG}"])
    clip = load_clip(made / "tiny.safetensors")

    def tokens(window: str, config: Config) -> torch.Tensor:
        settings = SiteSettings(
            "voss", tmp_path, str(study / "voss.csv"), backbone=str(made / "tiny.safetensors"), window=window
        )
        local = settings.local(config)
        train = settings.source.images(local, ("no nodule", "nodule"), clip, None).train
        return train.read(np.arange(16)[None], 0, torch.device("cpu"), torch.float32)[0].tokens

    hidden = tokens("", agreed)
    assert "site voss: the window -600/1500 makes nearly all pixels of most images black or white" in caplog.text
    caplog.clear()
    own = tokens(VOSS, agreed)
    assert caplog.text == ""
    torch.testing.assert_close(own, tokens("", agreed.override([f"data.window={VOSS}"])))
    torch.testing.assert_close(own, tokens("", agreed.override([f"data.windows=voss={VOSS}"])))
    assert (own != hidden).any()
    with pytest.raises(FedotpError, match='window = "wide": must be'):
        tokens("wide", agreed)
    from fedotp.flower.site._app import site_of  # it imports Flower

    given: Any = SimpleNamespace(node_config={"data": str(study / "voss.csv"), "window": VOSS})
    assert site_of(given).settings.window == VOSS, "the site's process reads it"
