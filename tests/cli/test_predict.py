"""`fedotp predict`, `export` and `calibrate`: what was learned, on other images."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_made import COLOURS, Fedotp, command
from PIL import Image

from fedotp.classifier import load
from fedotp.clip import save, with_class_features
from fedotp.runs.directory import RunDirectory


def test_a_line_per_image_for_programs_and_for_people(
    trained: RunDirectory, client: str, made: Path, fedotp: Fedotp
) -> None:
    done = fedotp("predict", trained.path, "--client", client, made / "images" / "day", "--json")
    assert done.status == 0, done.err
    records = [json.loads(line) for line in done.out.splitlines()]
    paths = sorted((made / "images" / "day").rglob("*.png"))
    assert [record["image"] for record in records] == [str(path) for path in paths]
    expected = load(trained.path, client).predict(paths)
    assert [record["predicted"] for record in records] == expected.labels
    found = [[record["probabilities"][name] for name in expected.classes] for record in records]
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-6)
    assert [record["probability"] for record in records] == [max(row) for row in found]
    done = fedotp("predict", trained.path, "--client", client, paths[0], "--top", 2)
    assert done.out.startswith(str(paths[0]))
    assert done.out.split()[1:] == [word for name, p in expected.top(2)[0] for word in (f"{p:.1%}", name)]


def test_what_cannot_be_read_is_reported_and_the_rest_predicted(
    trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp
) -> None:
    good = made / "images" / "day" / "red" / "0.png"
    (place / "cut.png").write_bytes(good.read_bytes()[:200])
    (place / "\x1b[31mevil.png").write_text("hello")
    (place / ".hidden.png").write_text("hello")
    (place / "notes.txt").write_text("hello")
    done = fedotp("predict", trained.path, "--client", client, place, good, "nothing.png", "--json")
    assert done.status == 1
    records = [json.loads(line) for line in done.out.splitlines()]
    assert {Path(record["image"]).name for record in records if "error" in record} == {
        "cut.png",
        "\x1b[31mevil.png",
        "nothing.png",
    }
    assert [record["image"] for record in records if "predicted" in record] == [str(good)]
    assert done.err.splitlines()[-1] == "3 of 4 images could not be read"
    assert "\x1b[31mevil" not in done.err
    assert "cannot read image nothing.png: No such file or directory" in done.err


def test_other_classes_another_mass_and_another_dial(
    trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp
) -> None:
    image = made / "images" / "day" / "red" / "0.png"
    plain = load(trained.path, client)
    (place / "names.txt").write_text("crimson\nemerald\n\nnavy blue\n")
    many = ",".join(f"colour number {i}" for i in range(40))  # longer than a name of a file may be
    assert fedotp("predict", trained.path, "--client", client, image, "--classes", many).status == 0
    for given in ("crimson, emerald,navy blue", "names.txt"):
        words = ("predict", trained.path, "--client", client, image, "--classes", given, "--json")
        done = fedotp(*words, "--set", "method.mass=0.5")
        assert done.status == 0, done.err
        expected = plain.with_mass(0.5).with_classes(["crimson", "emerald", "navy blue"])
        found = json.loads(done.out)["probabilities"]
        assert list(found) == ["crimson", "emerald", "navy blue"]
        np.testing.assert_allclose(list(found.values()), expected.predict(image).probabilities[0], atol=1e-6)
    done = fedotp("predict", trained.path, "--client", client, image, "--json", "--set", "method.dial=confidence")
    expected = plain.with_dial("confidence").predict(image)
    np.testing.assert_allclose(
        list(json.loads(done.out)["probabilities"].values()), expected.probabilities[0], atol=1e-6
    )


def test_maps_are_written_beside_one_another(
    trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp
) -> None:
    day, night = (made / "images" / when / "red" / "0.png" for when in ("day", "night"))
    (place / "in" / "deep").mkdir(parents=True)
    shutil.copy(day, place / "in" / "deep" / "x.png")
    done = fedotp("predict", trained.path, "--client", client, day, night, "in", "--maps", "maps", "--json")
    assert done.status == 0, done.err
    written = ["0.png.png", "0-2.png.png", "deep/x.png.png"]
    assert [json.loads(line)["maps"] for line in done.out.splitlines()] == [f"maps/{name}" for name in written]
    assert {str(path.relative_to(place / "maps")) for path in (place / "maps").rglob("*.png")} == set(written)
    with Image.open(place / "maps" / written[0]) as picture:
        assert picture.size[0] > 500


def test_export_and_use(trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp) -> None:
    done = fedotp("export", trained.path, "--client", client)
    assert done.status == 0, done.err
    bundle = place / f"{client}.bundle"
    assert done.out.splitlines()[0].startswith(f"FedOTP of {client}, 3 classes, ")
    assert done.out.splitlines()[1:] == [
        f"written to  {client}.bundle",
        f"use it      fedotp predict {client}.bundle IMAGE",
    ]
    image = made / "images" / "day" / "red" / "0.png"
    words = ("predict", bundle, image, "--backbone", made / "tiny.safetensors", "--json")
    from_bundle, from_run = fedotp(*words), fedotp("predict", trained.path, "--client", client, image, "--json")
    assert from_bundle.status == 0, from_bundle.err
    assert from_bundle.out == from_run.out
    again = fedotp("export", trained.path, "--client", client)
    assert again.status == 2
    assert again.err == (f"error: {client}.bundle already exists; choose another name, or overwrite it with --force\n")
    assert fedotp("export", trained.path, "--client", client, "--force").status == 0
    assert "needs the backbone tiny.safetensors" in fedotp("predict", bundle, image).err


def test_a_backbone_without_a_text_tower(made: Path, place: Path, fedotp: Fedotp) -> None:
    features, images = torch.randn(3, 32), made / "images" / "day"
    clip = with_class_features(made / "tiny.safetensors", [*COLOURS], features, template="a {}", source="a test")
    save(clip, "eyes.safetensors")
    settings = ("--set", "backbone.name=eyes.safetensors", "--set", "data.store=store")
    refused = fedotp("run", "tiny.toml", "--out", "here", *settings)
    assert (refused.status, refused.err.count("\n"), (place / "store").exists()) == (2, 1, False)
    assert 'this backbone has no text tower, only features of 3 class names: set prompt.space = "feat' in refused.err
    done = fedotp("run", "tiny.toml", "--out", "here", *settings, "--set", "prompt.space=features")
    assert done.status == 0, done.err
    client = RunDirectory.open("here").manifest["clients"][0]
    assert fedotp("export", "here", "--client", client, "--out", "bundle").status == 0
    words = ("predict", "bundle", images, "--backbone", "eyes.safetensors", "--json")
    from_bundle, from_run = fedotp(*words), fedotp("predict", "here", "--client", client, images, "--json")
    assert from_bundle.status == 0, from_bundle.err
    assert from_bundle.out == from_run.out
    assert "changes to the features of the trained classes" in fedotp(*words, "--classes", "red,pink").err


def test_the_class_prior_and_other_frequencies(
    trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp
) -> None:
    image, plain = made / "images" / "day" / "red" / "0.png", load(trained.path, client)
    (place / "shares.csv").write_text("class,share\nblue,0.7\n[bold]green,0.2\nred,0.1\n")
    (place / "shares.json").write_text('{"blue": 7, "[bold]green": 2, "red": 1}')
    shares = {"blue": 0.7, "[bold]green": 0.2, "red": 0.1}
    both = ("predict", trained.path, "--client", client, image, "--json")
    for words, expected in (
        (("--prior", 1.5), plain.with_prior(1.5)),
        (("--frequencies", "blue=0.7, [bold]green=0.2,red=0.1"), plain.with_prior(1, shares)),
        (("--frequencies", "shares.csv", "--prior", 0.5), plain.with_prior(0.5, shares)),
        (("--frequencies", "shares.json"), plain.with_prior(1, shares)),
        (
            ("--classes", "cat,dog", "--frequencies", "cat=3,dog=1"),
            plain.with_classes(["cat", "dog"]).with_prior(1, {"cat": 3, "dog": 1}),
        ),
    ):
        done = fedotp(*both, *words)
        assert done.status == 0, done.err
        found = list(json.loads(done.out)["probabilities"].values())
        np.testing.assert_allclose(found, expected.predict(image).probabilities[0], atol=1e-6)
    (place / "bad.json").write_text("[1]")
    for words, complaint in (
        (("--frequencies", "blue"), "'' must have a share or a number of images, for example normal=0.9"),
        (("--frequencies", "bad.json"), "must be an object"),
        (("--classes", "cat,dog", "--prior", 1), f"the class frequencies of {client} are unknown"),
        (("--prior", 1, "--coverage", 0.9), "--coverage is valid only for the classifier as calibrated"),
    ):
        done = fedotp(*both, *words)
        assert done.status == 2
        assert complaint in done.err
        assert len(done.err.splitlines()) == 1
    assert fedotp("export", trained.path, "--client", client, "--no-prior", "--out", "bare").status == 0
    assert "prior" not in json.loads((place / "bare" / "bundle.json").read_text())
    assert "cannot be combined with" in fedotp("export", trained.path, "--no-prior", "--prior", 1).err
    backbone = ("--backbone", made / "tiny.safetensors")
    words = ("--all", "--frequencies", "shares.csv", *backbone)
    assert fedotp("calibrate", "bare", made / "images", *words).status == 0
    found = load("bare", backbone=made / "tiny.safetensors")
    assert found.calibration is not None
    expected = plain.with_prior(1, shares).predict(image).probabilities
    np.testing.assert_allclose(found.predict(image).probabilities, expected, atol=1e-6)


# Calibrated ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle(trained: RunDirectory, client: str, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that was calibrated after it was exported."""
    folder = tmp_path_factory.mktemp("bundles") / "one"
    assert command("export", trained.path, "--client", client, "--out", folder).status == 0
    weights = made / "tiny.safetensors"
    done = command("calibrate", folder, made / "images", "--all", "--backbone", weights)
    assert done.status == 0, done.err
    assert "calibrated with 48 images: sets up to a coverage of 0.95; unlike images are flagged" in done.out
    return folder


def test_sets_and_p_values_are_printed(bundle: Path, made: Path, fedotp: Fedotp) -> None:
    images = sorted((made / "images" / "day").rglob("*.png"))[:5]
    words = ("predict", bundle, *images, "--backbone", made / "tiny.safetensors", "--coverage", 0.9)
    expected = load(bundle, backbone=made / "tiny.safetensors").predict(images, coverage=0.9)
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
    Image.effect_noise((32, 32), 200).convert("RGB").save(place / "noise.png")
    done = fedotp("predict", bundle, place / "noise.png", "--backbone", made / "tiny.safetensors")
    assert done.out.rstrip().endswith("unlike the client's calibration images (p = 0.04)")


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


def test_a_bundle_is_calibrated_by_one_site_of_a_table(bundle: Path, made: Path, place: Path, fedotp: Fedotp) -> None:
    shutil.copytree(bundle, place / "bundle")
    paths = sorted((made / "images").rglob("*.png"))
    lines = [f"{path.relative_to(made)},{path.parent.name},{path.parts[-3]}" for path in paths]
    (made / "by_site.csv").write_text("\n".join(["path,label,site", *lines]))
    words = ("--site", "night", "--all", "--backbone", made / "tiny.safetensors")
    done = fedotp("calibrate", "bundle", made / "by_site.csv", *words)
    assert done.status == 0, done.err
    assert "calibrated with 24 images: " in done.out
