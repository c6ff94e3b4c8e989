"""`fedotp predict` and `fedotp export`: what was learned, on other images."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
from cli_made import Fedotp
from PIL import Image

from fedotp.classifier import Classifier
from fedotp.runs.directory import RunDirectory


def test_a_line_per_image_for_programs(trained: RunDirectory, client: str, made: Path, fedotp: Fedotp) -> None:
    done = fedotp("predict", trained.path, "--client", client, made / "images" / "day", "--json")
    assert done.status == 0, done.err
    records = [json.loads(line) for line in done.out.splitlines()]
    paths = sorted((made / "images" / "day").rglob("*.png"))
    assert [record["image"] for record in records] == [str(path) for path in paths]
    expected = Classifier.from_run(trained.path, client).predict(paths)
    assert [record["predicted"] for record in records] == expected.labels
    found = [[record["probabilities"][name] for name in expected.classes] for record in records]
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-6)
    assert [record["probability"] for record in records] == [max(row) for row in found]


def test_a_line_per_image_for_people(trained: RunDirectory, client: str, made: Path, fedotp: Fedotp) -> None:
    image = made / "images" / "day" / "[bold]green" / "0.png"
    done = fedotp("predict", trained.path, "--client", client, image, "--top", 2)
    assert done.status == 0, done.err
    (best,) = Classifier.from_run(trained.path, client).predict(image).top(2)
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


def test_a_picture_that_unfolds_without_end(trained: RunDirectory, client: str, place: Path, fedotp: Fedotp) -> None:
    Image.new("1", (15_000, 15_000)).save(place / "bomb.png")
    done = fedotp("predict", trained.path, "--client", client, "bomb.png")
    assert done.status == 1
    assert "bomb.png: " in done.err
    assert len(done.err.splitlines()) == 2


def test_a_pipe_a_device_and_a_gigantic_file_are_one_line_each(
    trained: RunDirectory, client: str, place: Path, fedotp: Fedotp
) -> None:
    os.mkfifo(place / "a-pipe.png")
    (place / "b-endless.png").symlink_to("/dev/zero")
    with open(place / "c-holes.png", "wb") as file:
        file.truncate(1 << 40)
    done = fedotp("predict", trained.path, "--client", client, place)
    assert done.status == 1
    pipe, endless, holes, summary = done.err.splitlines()
    assert "a-pipe.png: not a plain file but a pipe" in pipe
    assert "b-endless.png: not a plain file but a pipe, a socket or a device" in endless
    assert "c-holes.png: it has 1,099,511,627,776 bytes; at most 134,217,728 are read" in holes
    assert summary == "3 of 3 images could not be read"


def test_other_classes_and_another_mass(
    trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp
) -> None:
    image = made / "images" / "day" / "red" / "0.png"
    (place / "names.txt").write_text("crimson\nemerald\n\nnavy blue\n")
    many = ",".join(f"colour number {i}" for i in range(40))  # longer than a name of a file may be
    assert fedotp("predict", trained.path, "--client", client, image, "--classes", many).status == 0
    for given in ("crimson, emerald,navy blue", "names.txt"):
        words = ("predict", trained.path, "--client", client, image, "--classes", given, "--json")
        done = fedotp(*words, "--set", "method.mass=0.5")
        assert done.status == 0, done.err
        expected = (
            Classifier.from_run(trained.path, client).with_mass(0.5).with_classes(["crimson", "emerald", "navy blue"])
        )
        found = json.loads(done.out)["probabilities"]
        assert list(found) == ["crimson", "emerald", "navy blue"]
        np.testing.assert_allclose(list(found.values()), expected.predict(image).probabilities[0], atol=1e-6)


def test_another_dial(trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp) -> None:
    image = made / "images" / "day" / "red" / "0.png"
    plain = Classifier.from_run(trained.path, client)
    for given, dial in (("0.3", 0.3), ("1", 1.0), ("confidence", "confidence")):
        words = ("predict", trained.path, "--client", client, image, "--json", "--maps", given)
        done = fedotp(*words, "--set", f"method.dial={given}")
        assert done.status == 0, done.err
        found, expected = json.loads(done.out), plain.with_dial(dial).predict(image)
        np.testing.assert_allclose(list(found["probabilities"].values()), expected.probabilities[0], atol=1e-6)
        assert (place / found["maps"]).is_file()


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


def test_bad_input_is_one_line(trained: RunDirectory, client: str, made: Path, place: Path, fedotp: Fedotp) -> None:
    image = made / "images" / "day" / "red" / "0.png"
    (place / "empty").mkdir()
    assert fedotp("run", "tiny.toml", "--set", "method.name=promptfl", "--out", "promptfl", "--quiet").status == 0
    of_run, of_promptfl = ((path, image, "--client", client) for path in (trained.path, "promptfl"))
    for words, complaint in (
        ((trained.path, image), "error: say which client; its clients are"),
        ((trained.path, image, "--client", "nobody"), f"error: {trained.path} has no client 'nobody'; its clients are"),
        ((trained.path, "empty", "--client", client), "error: no image in empty and below; images end in .avif, .bmp"),
        (("nowhere", image), "error: nowhere is neither a run nor a bundle"),
        ((*of_run, "--set", "method.mass=2"), "error: method.mass = 2.0: must be from"),
        ((*of_run, "--set", "method.mass=x"), "error: --set method.mass=x: must be a number, for example method.mass="),
        ((*of_run, "--set", "method.dial=2"), "error: method.dial = 2.0: must be a number from 0"),
        ((*of_run, "--set", "method.dial=x"), "error: dial = 'x': must be a number from 0"),
        ((*of_run, "--set", "seed=1"), "error: --set seed=1: of a trained client only method.mass and method.dial"),
        ((*of_run, "--classes", "one"), "error: give at least two class names"),
        ((*of_run, "--device", "warp"), "error: compute.device = 'warp' cannot be used"),
        ((*of_promptfl, "--maps", "maps"), "error: PromptFL has no maps"),
        ((*of_promptfl, "--set", "method.mass=0.5"), "error: PromptFL has no mass to choose"),
        ((*of_promptfl, "--set", "method.dial=0.5"), "error: PromptFL has no dial"),
    ):
        done = fedotp("predict", *words)
        assert done.status == 2, words
        assert done.err.startswith(complaint), done.err
        assert len(done.err.splitlines()) == 1


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
