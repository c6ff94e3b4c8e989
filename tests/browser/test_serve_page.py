"""The page of `fedotp serve` in a real browser: clicks, keys, uploads, names that bite."""

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from expected import expect
from PIL import Image

from fedotp.classifier import calibrated_by, load
from fedotp.runs.directory import RunDirectory
from serve.serve_made import EVIL, Served, make_run, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make_run(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def site(run: RunDirectory) -> Iterator[Served]:
    with served(run.path) as site:
        yield site


@pytest.fixture
def image(run: RunDirectory) -> Path:
    return Path(run.config.data.dataset) / "night" / "blue" / "1.png"


@pytest.fixture
def opened(page: "Page", site: Served) -> "Page":
    page.goto(site.server.url)
    page.wait_for_selector("body[data-ready]")
    page.wait_for_selector("#samples button img")
    return page


def upload(page: "Page", path: Path) -> None:
    answered(page, lambda: page.set_input_files("#file", path))


def answered(page: "Page", act: Callable[[], object]) -> None:
    """Act, and wait until the page shows the answer."""
    before = page.evaluate("document.body.dataset.answered ?? null")
    act()
    page.wait_for_function("before => (document.body.dataset.answered ?? null) !== before", arg=before)


def shown(page: "Page") -> list[tuple[str, str]]:
    """Names and probabilities, as they stand on the page."""
    rows = page.locator("#best li").all()
    return [(row.locator(".name").inner_text(), row.locator(".share").inner_text()) for row in rows]


def predicted(run: RunDirectory, client: str, image: Path, mass: float = 0.8) -> list[tuple[str, str]]:
    (best,) = load(run.path, client).with_mass(mass).predict(image).top(5)
    return [(name, f"{100 * p:.1f} %") for name, p in best]


def pixels(page: "Page", name: str) -> np.ndarray:
    """A map as it is drawn."""
    data = page.evaluate("name => document.querySelector(`canvas[data-map='${name}']`).toDataURL()", name)
    with Image.open(io.BytesIO(base64.b64decode(data.split(",")[1]))) as picture:
        return np.asarray(picture.convert("RGB")).astype(float)


def test_an_upload_is_predicted_as_in_python(opened: "Page", run: RunDirectory, image: Path, tmp_path: Path) -> None:
    """Names are text: the page's fixture fails on a dialog, a line on the console or a request to elsewhere."""
    evil = tmp_path / f"{EVIL}.png"
    evil.write_bytes(image.read_bytes())
    upload(opened, evil)
    assert shown(opened) == predicted(run, "client-0", image)
    assert opened.locator("#name").inner_text() == f"{EVIL}.png"
    assert EVIL in opened.locator("#label option").all_inner_texts()
    assert opened.locator("img[src=x]").count() == 0
    expect(opened.locator("#another")).to_be_visible()
    assert opened.evaluate("document.querySelector('#picture').naturalWidth") == 32
    expect(opened.locator("#best button").first).to_have_attribute("aria-pressed", "true")
    assert opened.locator("canvas[data-map]").count() == 4
    assert opened.locator(".prompt h3").all_inner_texts() == ["Global prompt", "Local prompt"]
    answered(opened, lambda: opened.select_option("#client", "client-1"))
    assert shown(opened) == predicted(run, "client-1", image) != predicted(run, "client-0", image)


def test_the_slider_changes_plan_and_prediction_but_not_similarity(
    opened: "Page", run: RunDirectory, image: Path
) -> None:
    upload(opened, image)
    expect(opened.locator("#amount button")).to_be_disabled()
    before = {name: pixels(opened, name) for name in ("global similarity", "global plan", "local plan")}
    opened.focus("#mass")
    answered(opened, lambda: opened.keyboard.press("Home"))
    assert opened.locator("#amount output").inner_text() == "0.05"
    assert shown(opened) == predicted(run, "client-0", image, 0.05)
    after = {name: pixels(opened, name) for name in before}
    np.testing.assert_array_equal(after["global similarity"], before["global similarity"])
    assert np.abs(after["global plan"] - before["global plan"]).max() > 20
    assert np.abs(after["local plan"] - before["local plan"]).max() > 20
    answered(opened, lambda: opened.click("#amount button"))
    assert shown(opened) == predicted(run, "client-0", image)
    np.testing.assert_array_equal(pixels(opened, "local plan"), before["local plan"])


def test_the_dial_goes_from_global_to_local(opened: "Page", run: RunDirectory, image: Path) -> None:
    upload(opened, image)
    assert opened.locator("#between button").inner_text() == "reset to 0.5"
    opened.focus("#dial")
    for key, dial in (("Home", 0.0), ("End", 1.0)):
        answered(opened, lambda key=key: opened.keyboard.press(key))
        (best,) = load(run.path, "client-0").with_dial(dial).predict(image).top(5)
        assert shown(opened) == [(name, f"{100 * p:.1f} %") for name, p in best]
    answered(opened, lambda: opened.click("#between button"))
    assert shown(opened) == predicted(run, "client-0", image)


def test_class_frequencies_count_as_much_as_the_slider_says(opened: "Page", run: RunDirectory, image: Path) -> None:
    upload(opened, image)
    classifier = load(run.path, "client-0")
    assert classifier.prior is not None
    counts = classifier.prior.counts
    said = opened.locator("#frequencies").inner_text()
    assert said.startswith(f"Frequencies in the {counts.sum():.0f} training images of client-0: ")
    for name, count in zip(classifier.classes, counts, strict=True):
        assert (f"{name} {100 * count / counts.sum():.1f} %" in said) == (count > 0)

    def under(strength: float) -> list[tuple[str, str]]:
        (best,) = classifier.with_prior(strength).predict(image).top(5)
        return [(name, f"{100 * p:.1f} %") for name, p in best]

    expect(opened.locator("#counts")).not_to_be_checked()
    answered(opened, lambda: opened.check("#counts"))
    assert shown(opened) == under(1) != under(0)
    opened.focus("#prior")
    answered(opened, lambda: opened.keyboard.press("End"))
    assert (opened.locator("#often output").inner_text(), shown(opened)) == ("2.00", under(2))
    answered(opened, lambda: opened.uncheck("#counts"))
    assert shown(opened) == predicted(run, "client-0", image)
    expect(opened.locator("#often button")).to_be_disabled()


def test_any_class_can_be_explained(opened: "Page", run: RunDirectory, image: Path) -> None:
    upload(opened, image)
    before = pixels(opened, "local similarity")
    least = opened.locator("#best button").last
    answered(opened, least.click)
    assert np.abs(pixels(opened, "local similarity") - before).max() > 5
    least = opened.locator("#best button").last
    expect(least).to_have_attribute("aria-pressed", "true")
    expect(least).to_be_focused()
    chosen = opened.evaluate("document.querySelector('#label').selectedOptions[0].textContent")
    assert chosen == least.locator(".name").inner_text()
    answered(opened, lambda: opened.select_option("#label", ""))
    np.testing.assert_array_equal(pixels(opened, "local similarity"), before)


@pytest.fixture
def lenient(browser: "Browser", site: Served) -> Iterator["Page"]:
    """On a phone; chromium's own line about an answer that is a refusal is let through, nothing else is."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.goto(site.server.url)
    page.wait_for_selector("body[data-ready]")
    yield page
    page.close()
    assert [line for line in complaints if "responded with a status of 422" not in line] == []


def test_a_bad_upload_on_a_phone_says_why_and_removes_the_last_answer(
    lenient: "Page", image: Path, tmp_path: Path
) -> None:
    upload(lenient, image)
    assert lenient.evaluate("document.documentElement.scrollWidth") <= 390
    evil = tmp_path / f"{EVIL}.png"
    evil.write_text("hello")
    lenient.set_input_files("#file", evil)
    expect(lenient.locator("#error")).to_contain_text(f"{evil.name}: not an image of a supported format")
    for gone in ("#best", "#maps", "#picture", "#name"):
        expect(lenient.locator(gone)).to_be_hidden()
    upload(lenient, image)
    expect(lenient.locator("#best")).to_be_visible()
    expect(lenient.locator("#error")).to_be_hidden()
    with open(tmp_path / "large.png", "wb") as file:
        file.truncate(64_000_001)
    lenient.set_input_files("#file", tmp_path / "large.png")
    expect(lenient.locator("#error")).to_have_text("large.png has 64.0 MB; the limit is 64 MB.")


def test_test_images_of_the_client_and_the_keyboard(opened: "Page", run: RunDirectory) -> None:
    first = opened.locator("#samples button").first
    first.focus()
    answered(opened, lambda: opened.keyboard.press("Enter"))
    expect(first).to_have_attribute("aria-pressed", "true")
    assert opened.locator("#name").inner_text().endswith(", a test image of client-0")
    opened.select_option("#client", "client-1")
    expect(opened.locator("#samples button[aria-pressed=true]")).to_have_count(0)


def test_limits_of_a_calibrated_client(page: "Page", run: RunDirectory, image: Path, tmp_path: Path) -> None:
    """A set at the coverage chosen, a flag on a stranger, and no set for another mass."""
    Image.effect_noise((32, 32), 200).convert("RGB").save(tmp_path / "noise.png")
    own = tmp_path / "own"
    pictures = sorted(Path(run.config.data.dataset).rglob("*.png"))
    for number in range(40):  # with fewer no p-value is small enough
        place = pictures[number % len(pictures)].relative_to(run.config.data.dataset).parent
        for split in ("train", "test"):
            (own / split / place).mkdir(parents=True, exist_ok=True)
            with Image.open(pictures[number % len(pictures)]) as picture:
                picture.putpixel((0, 0), (number, number, 40 * (split == "test")))  # none is a copy of another
                picture.save(own / split / place / f"{number}.png")
    classifier = calibrated_by(load(run.path, "client-0"), own)
    with served(run.path, calibrate=own) as site:
        page.goto(site.server.url)
        page.wait_for_selector("body[data-ready]")
        expect(page.locator("#limits")).to_be_hidden()
        upload(page, image)
        for coverage in ("0.8", "0.95", "0.9"):
            page.select_option("#coverage", coverage)
            (names,) = classifier.predict(image, coverage=float(coverage)).sets
            assert page.locator("#set li").all_inner_texts() == names
        assert page.locator("#coverage option:disabled").all_inner_texts() == ["99 %, needs 99 images"]
        expect(page.locator("#promise")).to_have_text("Valid for images like the 40 calibration images of this client.")
        page.focus("#mass")
        answered(page, lambda: page.keyboard.press("Home"))
        expect(page.locator("#promise")).to_contain_text("only for the classifier as calibrated")
        expect(page.locator("#coverage")).to_be_hidden()
        answered(page, page.locator("#amount button").click)
        upload(page, tmp_path / "noise.png")
        expect(page.locator("#unlike")).to_have_text("Unlike the client's calibration images (p = 0.048)")
        page.goto("about:blank")
