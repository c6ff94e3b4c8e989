"""The page of `fedotp report` in a browser: clicks, keys, hovers, light and dark, a phone, paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import scipy
from expected import expect

from fedotp.report import analyse
from fedotp.report.page import write_page
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run
from invented_run import invent_run
from report.findings import a_probe, an_audit
from runs.toy_run import make_config, make_inputs

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

EMPTY = {"sites": [], "maps": [], "plans": None, "tsne": None, "bound": None, "notes": []}
HOSTILE = "<img src=x onerror=alert(1)>"
CLASSES = [HOSTILE, "</script><script>alert(2)</script>", "${alert(3)}", "owl"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A real run in two domains, with an invented audit and probe."""
    folder = tmp_path_factory.mktemp("toy")
    partition = {"scheme": "domain-dirichlet", "n_clients": 4}
    federation = {"participation": 1.0, "holdout_clients": 0}
    done = run(make_config(make_inputs(folder), partition=partition, federation=federation), folder / "run")
    done.save_finding("audit", an_audit())
    done.save_finding("probe", a_probe())
    return done


@pytest.fixture(scope="module")
def one(toy: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of one run with its analysis."""
    return address(tmp_path_factory.mktemp("one"), [toy], [analyse(toy.path).as_dict()])


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of two seeds of FedOTP, CoOp, and a run that has stopped."""
    folder = tmp_path_factory.mktemp("many")
    runs = [invent_run(folder / f"fedotp-{seed}", seed=seed, views=True) for seed in (0, 1)]
    runs += [invent_run(folder / "coop", method="coop"), invent_run(folder / "part", method="promptfl", complete=False)]
    return address(folder, runs, ["the images are gone", None, None, None])


def address(folder: Path, runs: list[RunDirectory], analyses: list[Any] | None = None) -> str:
    return write_page(runs, folder / "report.html", analyses).as_uri()


def chart(page: "Page", label: str) -> "Locator":
    """A chart, scrolled to and drawn."""
    found = page.locator(f'.chart[aria-label^="{label}"]')
    found.scroll_into_view_if_needed()
    expect(found).to_have_attribute("data-drawn", "")
    return found


def picture(found: "Locator") -> list[str]:
    """What a chart shows, layer by layer."""
    found.scroll_into_view_if_needed()
    expect(found).to_have_attribute("data-drawn", "")
    layers: list[str] = found.locator("canvas").evaluate_all("all => all.map((canvas) => canvas.toDataURL())")
    return layers


def hover(found: "Locator", x: float = 0.5, y: float = 0.5) -> "Locator":
    """The tooltip over a point of the chart, given as shares of its size."""
    box = found.bounding_box()
    assert box is not None
    found.page.mouse.move(box["x"] + x * box["width"] - 3, box["y"] + y * box["height"])
    found.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    tip = found.locator(".tip")
    expect(tip).to_be_visible()
    return tip


def to_the_end(page: "Page") -> None:
    """Scroll through the page, so that everything is drawn."""
    for found in page.locator(".chart:visible").all():
        found.scroll_into_view_if_needed()
        expect(found).to_have_attribute("data-drawn", "")
    page.evaluate("scrollTo(0, 0)")


def test_the_comparison_shows_controls_and_differences(page: "Page", tmp_path: Path) -> None:
    low, high = {"majority": 0.4, "zero_shot": 0.3, "global": 0.35}, {"majority": 0.95, "zero_shot": 0.3}
    runs = [invent_run(tmp_path / f"coop{split}", method="coop", split=split, controls=high) for split in range(3)]
    runs += [invent_run(tmp_path / f"fedotp{split}", split=split, controls=low) for split in range(3)]
    runs += [invent_run(tmp_path / "one", method="promptfl", controls={"majority": 0.4})]
    page.goto(address(tmp_path, runs))
    expect(page.locator("#notes .notice")).to_contain_text(["(!) CoOp (local) is worse than majority class: -"])
    rows = page.locator("#comparison .scroll[aria-label='Comparison of the runs'] tbody tr")
    controls = ["control: majority class", "control: zero-shot CLIP", "control: global part of FedOTP"]
    names = rows.locator("td:first-child").all_inner_texts()
    assert {name.replace("\n", " ") for name in names} == {"FedOTP", "CoOp (local) (!)", "PromptFL", *controls}
    expect(rows.filter(has_text="control:")).to_have_count(3)
    expect(rows.filter(has_text="control:").locator(".best")).to_have_count(0)
    differences = page.locator("#comparison .scroll[aria-label='Differences between methods']")
    expect(differences.locator("th")).to_have_text(["", "minus FedOTP", "95 % interval", "pairs", "verdict"])
    cells = differences.locator("tbody tr", has_text="CoOp").locator("td").all_inner_texts()
    accuracy = [[run.summary["final"]["accuracy"] for run in some] for some in (runs[:3], runs[3:6])]
    test = scipy.stats.ttest_rel(*accuracy)
    ends = [f"{100 * end:+.2f}" for end in test.confidence_interval()]
    assert cells[2:4] == [" to ".join(ends), "3"]
    expect(differences.locator("tr", has_text="PromptFL").locator("td").last).to_contain_text("only one pair")


def test_a_page_of_one_run_shows_everything(page: "Page", one: str, toy: RunDirectory) -> None:
    page.goto(one)
    to_the_end(page)
    accuracy = f"{100 * toy.summary['final']['accuracy']:.1f}"
    expect(page.locator("h1")).to_contain_text("FedOTP on data")
    expect(page.locator(".lead")).to_contain_text("4 clients trained for 3 rounds with the backbone")
    expect(page.locator(".lead")).to_contain_text(f"on their own test images is {accuracy} %")
    expect(page.locator(".tile").first).to_contain_text(accuracy)
    labels = page.locator(".chart:visible").evaluate_all("all => all.map((one) => one.ariaLabel.split('. ')[0])")
    assert labels[:2] == ["Accuracy over rounds", "Training loss over rounds"]
    assert labels[2:5] == ["Accuracy of each client", "Accuracy by domain", "Confusion matrix"]
    assert labels[5:8] == ["Classes of each client", "Bytes over rounds", "Time by phase"]
    assert len(labels) >= 12  # and the plans against mass
    colours = """canvas => {
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(pixels.buffer)).size;
    }"""
    assert min(canvas.evaluate(colours) for canvas in page.locator(".chart:visible canvas").all()) > 2
    cards, last = page.locator("#sites .site"), toy.summary["clients"][0]
    expect(cards).to_have_count(4)
    expect(cards.first).to_contain_text(f"{last['name']}{len(toy.partition.clients[0].train)} training images")
    loaded = cards.first.locator("img").evaluate_all("all => all.map((one) => one.naturalWidth)")
    assert loaded == [56] * min(8, last["test_images"])
    expect(page.locator("#origin")).to_contain_text("mass")
    page.get_by_text("Manifest: versions").click()
    expect(page.locator("#origin")).to_contain_text(toy.manifest["backbone"]["digest"])


def test_runs_are_chosen_and_tables_sorted(page: "Page", many: str) -> None:
    page.goto(many)
    rows = page.locator("#comparison table").first.locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text="control:")).to_have_count(2)
    expect(rows.filter(has_text="FedOTP")).to_contain_text("±")
    expect(rows.filter(has_text="PromptFL")).to_contain_text("0 of 1")
    expect(page.locator(".notice").first).to_contain_text("PromptFL is not complete: 3 of 4 rounds are done")
    found = chart(page, "Accuracy over rounds")
    before = picture(found)
    page.get_by_label("CoOp (local)", exact=True).uncheck()
    assert picture(found) != before
    expect(page.locator("#accuracy .legend")).not_to_contain_text("CoOp")
    page.get_by_label("CoOp (local)", exact=True).check()
    assert picture(found) == before
    page.get_by_label("Each client’s line").check()
    assert picture(found) != before
    page.get_by_label("In detail").select_option(label="FedOTP, seed 0")
    expect(page.locator("#analysis .notice")).to_have_text("Not analysed: the images are gone")


def test_a_client_is_followed_on_the_whole_page(page: "Page", many: str) -> None:
    page.goto(many)
    page.get_by_label("In detail").select_option(label="CoOp (local)")
    expect(page.locator("#clients")).to_contain_text("Clients of CoOp (local)")
    matrix = picture(chart(page, "Confusion matrix"))
    page.locator("#clients").get_by_role("button", name="south").click()
    expect(page.get_by_label("Client", exact=True)).to_have_value("south")
    expect(page.locator("#confusion .note")).to_contain_text("Test images of south, CoOp (local)")
    assert picture(chart(page, "Confusion matrix")) != matrix
    expect(hover(chart(page, "Accuracy over rounds"), 0.9)).to_contain_text("south")
    page.locator("#clients").get_by_label("Search").fill("NOR")
    expect(page.locator("#clients table").last.locator("tbody tr")).to_have_count(1)
    page.locator("#origin").get_by_text("Configuration", exact=True).click()
    page.locator("#origin").get_by_label("Search").fill("batch_size")
    expect(page.locator("#origin .columns tr")).to_have_count(2)


def test_maps_follow_the_slider_and_the_client(page: "Page", one: str) -> None:
    page.goto(one)
    maps = page.locator("#analysis .map")
    maps.first.scroll_into_view_if_needed()
    frames = maps.first.locator("figcaption")
    assert frames.all_inner_texts()[1:] == ["global: similarity", "global: plan", "local: similarity", "local: plan"]
    plan = maps.first.locator("canvas").nth(1)
    before = plan.evaluate("canvas => canvas.toDataURL()")
    slider = page.locator("#analysis input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator("#analysis output")).not_to_have_text("0.8")
    assert maps.first.locator("canvas").nth(1).evaluate("canvas => canvas.toDataURL()") != before
    maps.first.locator("canvas").nth(1).hover()
    expect(frames.nth(2)).to_contain_text("row")
    maps.first.locator("canvas").first.focus()
    for place in ("row 1, column 1", "row 1, column 2"):
        page.keyboard.press("ArrowRight")
        expect(frames.nth(1)).to_contain_text(place)
    clients = page.get_by_label("Client of the maps")
    names = clients.locator("option").all_inner_texts()
    page.get_by_label("Client", exact=True).select_option(names[-1])
    expect(clients).to_have_value(names[-1])


def limits_of(client: str, **changed: Any) -> dict[str, Any]:
    """What an analysis says of a client's limits."""
    shares = {"coverage": 0.912, "low": 0.8, "high": 0.98, "by_all": 0.874, "flagged": 0.031, "others_flagged": 0.4}
    return {"client": client, "images": 61, "size": 1.86, **shares, **changed}


def test_hostile_names_do_nothing(page: "Page", tmp_path: Path) -> None:
    names = {"clients": CLASSES[:3], "classes": CLASSES, "domains": CLASSES[:3], "dataset": HOSTILE}
    runs = [invent_run(tmp_path / f"{HOSTILE[:4]}{seed}", **names, seed=seed) for seed in (0, 1)]
    map_ = {"client": HOSTILE, "label": HOSTILE, "predicted": HOSTILE, "image": "javascript:alert(4)", "grid": 1}
    prompt = {"kind": HOSTILE, "similarity": [[0.0]], "plans": {HOSTILE: [[0.0]]}}
    analysis = {
        "sites": [{"client": HOSTILE, "classes": {HOSTILE: 1}, "images": [[HOSTILE, "javascript:alert(5)"]]}],
        "maps": [{**map_, "prompts": [prompt]}],
        "plans": None,
        "tsne": {"x": [0, 1], "y": [0, 1], "client": CLASSES[:2], "group": CLASSES[:2]},
        "limits": {"asked": 0.9, "clients": [limits_of(HOSTILE)]},
        "notes": [HOSTILE],
    }
    page.goto(address(tmp_path, runs, [analysis, analysis]))
    to_the_end(page)
    expect(page.locator("#limits td").first).to_have_text(HOSTILE)
    expect(hover(chart(page, "Accuracy of each client"), 0.3)).to_contain_text(HOSTILE)
    expect(hover(chart(page, "Confusion matrix"), 0.9, 0.1)).to_contain_text("alert")
    found = chart(page, "Classes of each client")
    found.focus()
    page.keyboard.press("ArrowRight")
    expect(found.locator(".tip")).to_contain_text(HOSTILE)
    expect(page.locator("h1")).to_have_text(f"2 runs on {HOSTILE}")
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("script").count() == 3


def test_panels_that_few_runs_have(page: "Page", tmp_path: Path) -> None:
    """Views, privacy and prediction sets; a run without them has no such panels."""
    kept = invent_run(tmp_path / "fedotp", views=True, spent=0.5)
    broken = invent_run(tmp_path / "promptfl", method="promptfl", spent=0.5)
    plain = invent_run(tmp_path / "coop", method="coop")
    kept.save_finding("audit", an_audit(upper=2.0, lower=0.9))
    kept.save_finding("probe", a_probe())
    broken.save_finding("audit", an_audit(upper=2.0, lower=4.5))
    limits = {"limits": {"asked": 0.9, "clients": [limits_of("a"), limits_of("b", by_all=None, others_flagged=None)]}}
    page.goto(address(tmp_path, [kept, broken, plain], [EMPTY | limits, None, None]))
    page.get_by_label("In detail").select_option(label="FedOTP")

    views = page.locator("#views .scroll[aria-label='Accuracy in each view'] tbody tr")
    expect(views).to_have_count(12)  # six views, three means of each model; the other runs have none
    last = [r for r in kept.metrics("view") if (r["view"], r["model"]) == ("novel", "personal")][-1]["accuracy"]
    expect(views.nth(2)).to_contain_text(f"{100 * last:.2f}")
    expect(hover(chart(page, "Accuracy in each view over rounds"), 0.97)).to_contain_text("novel, global model")

    privacy = page.locator("#privacy")
    bounds = privacy.get_by_role("region", name="Upper and lower bounds of epsilon").locator("tbody tr")
    expect(bounds).to_have_count(2)
    expect(bounds.first).to_contain_text("0.90")
    attacks = privacy.get_by_role("region", name="Membership probe").locator("tbody tr")
    expect(attacks).to_have_count(4)
    expect(attacks.first).to_contain_text("0.612 [0.582, 0.642]")
    expect(privacy.get_by_text("the guarantee is violated")).to_have_count(0)
    page.get_by_label("In detail").select_option(label="PromptFL")
    expect(privacy.get_by_text("the guarantee is violated")).to_be_visible()
    chart(page, "Epsilon spent over rounds")

    page.goto(address(tmp_path, [kept], [EMPTY | limits]))
    expect(page.locator("#limits .note")).to_contain_text("prediction sets of 90 % coverage")
    expect(page.locator("#limits tbody tr").first).to_have_text("a6191.2 80.0 to 98.01.8687.43.140.0")
    page.goto(address(tmp_path, [plain], [EMPTY | {"limits": None}]))
    expect(page.locator("#views, #limits")).to_have_count(0)


def test_the_keyboard(page: "Page", one: str, many: str) -> None:
    """Arrow keys read a chart, and everything that acts is reached by tab."""
    page.goto(one)
    found = chart(page, "Accuracy over rounds")
    found.focus()
    for round_ in ("Round 0", "Round 1"):
        page.keyboard.press("ArrowRight")
        expect(found.locator(".tip")).to_contain_text(round_)
    page.keyboard.press("Escape")
    expect(found.locator(".tip")).to_be_hidden()
    page.goto(many)
    page.locator("body").press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    reached = page.evaluate("""() => [...document.querySelectorAll('a, button, input, select, summary, .chart')]
      .filter((node) => node.checkVisibility()).map((node) => node.tabIndex)""")
    assert len(reached) > 30
    assert set(reached) == {0}
    page.locator("#comparison th button").filter(has_text="method").focus()
    page.keyboard.press("Enter")
    names = page.locator("#comparison tbody").first.locator("td:first-child").all_inner_texts()
    assert [name for name in names if "control" not in name] == ["CoOp (local)", "FedOTP", "PromptFL"]


@pytest.mark.parametrize("width", [1280, 320])
def test_a_screen_and_a_phone_scroll_down_only(page: "Page", one: str, many: str, width: int) -> None:
    """Tables are not cut on a screen; no section is hidden by the navigation, which has all of its links."""
    for url in (one, many):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(url)
        to_the_end(page)
        assert page.evaluate("() => document.documentElement.scrollWidth") == width
        cut = page.locator(".scroll:visible").evaluate_all(
            "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"
        )
        assert width < 1280 or cut == []
        links = page.locator("nav a").all()
        assert len(links) > 4
        boxes = [link.bounding_box() for link in links]
        assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        links[2].click()
        name = str(links[2].get_attribute("href"))
        top = "(name) => document.querySelector(name).querySelector('h2').getBoundingClientRect().top"
        bar = "() => { const bar = document.querySelector('#toolbar'); const box = bar.getBoundingClientRect();"
        bar += " return getComputedStyle(bar).position == 'sticky' ? box.bottom : 0 }"
        assert page.evaluate(top, name) >= page.evaluate(bar)


def test_it_prints_on_light_paper_with_all_charts(page: "Page", one: str, tmp_path: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.add_init_script("""addEventListener('afterprint', () => {
      const shown = [...document.querySelectorAll('.chart')].filter((chart) => chart.checkVisibility());
      document.title = shown.filter((chart) => chart.querySelector('canvas')).length + ' of ' + shown.length;
    })""")
    page.goto(one)
    n_charts = page.locator(".chart:visible").count()
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert page.title() == f"{n_charts} of {n_charts}"  # those below the window, too
    assert (tmp_path / "report.pdf").read_bytes().count(b"/Subtype /Image") >= n_charts
