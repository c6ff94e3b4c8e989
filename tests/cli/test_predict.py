"""`fedotp predict` and `fedotp export`: what was learned, on other images."""

import json
import shutil
from pathlib import Path

import numpy as np
from cli_made import Fedotp
from PIL import Image

from fedotp.classifier import load
from fedotp.runs.directory import RunDirectory


def test_a_line_per_image_for_programs(trained: RunDirectory, client: str, made: Path, fedotp: Fedotp) -> None:
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


def test_a_line_per_image_for_people(trained: RunDirectory, client: str, made: Path, fedotp: Fedotp) -> None:
    image = made / "images" / "day" / "[bold]green" / "0.png"
    done = fedotp("predict", trained.path, "--client", client, image, "--top", 2)
    assert done.status == 0, done.err
    (best,) = load(trained.path, client).predict(image).top(2)
    assert done.out.startswith(str(image))
    assert done.out.split()[1:] == [word for name, p in best for word in (f"{p:.1%}", name)]


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
    assert again.err == (
        f"error: {client}.bundle exists already; choose another name, or say --force to replace the bundle\n"
    )
    assert fedotp("export", trained.path, "--client", client, "--force").status == 0
    assert "needs the backbone tiny.safetensors" in fedotp("predict", bundle, image).err
