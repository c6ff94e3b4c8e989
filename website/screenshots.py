"""Take the screenshots of the documentation in Chromium (Playwright): `python website/screenshots.py FOLDER`.

They show the demo's runs, made below FOLDER, in the report and in the page of `fedotp serve`.
"""

import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from fedotp.classifier import open_classifiers
from fedotp.cli import demo
from fedotp.config import load_config
from fedotp.report import analyse
from fedotp.report.page import write_page
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import by_method, run_many
from fedotp.serve import make_server

REPORT = (("light", 1280, "#top"), ("dark", 1280, "#accuracy"), ("phone", 390, "#top"), ("sites", 1280, "#sites"))


def main(folder: Path) -> None:
    """Make the runs and all pictures."""
    trials = by_method(load_config(demo.PRESET), demo.METHODS, [0], demo.SPLITS)
    runs = [outcome.directory for outcome in run_many(trials, folder / "demo")]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        report(browser, runs, folder)
        serve(browser, runs[0], folder)


def opened(browser: Browser, url: str, name: str, width: int) -> Page:
    """Open a page in the colours and size of the picture `name`."""
    scheme = "dark" if name == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce")
    page.goto(url)
    return page


def report(browser: Browser, runs: list[RunDirectory], folder: Path) -> None:
    """Take pictures of the report: report-*.png."""
    analyses = [analyse(runs[0].path).as_dict(), *[None] * (len(runs) - 1)]
    url = write_page(runs, folder / "report.html", analyses).as_uri()
    for name, width, place in (*REPORT, ("prompts", 1280, "#analysis")):
        page = opened(browser, url, name, width)
        for chart in page.locator(".chart:visible").all():
            chart.scroll_into_view_if_needed()
            chart.locator("canvas").first.wait_for()
        page.locator(place).evaluate("node => node.scrollIntoView()")
        page.wait_for_timeout(400)
        page.screenshot(path=folder / f"report-{name}.png")


def serve(browser: Browser, run: RunDirectory, folder: Path) -> None:
    """Take pictures of the page of `fedotp serve`: serve-*.png."""
    server = make_server(open_classifiers(run.path, calibrate="test"), host="127.0.0.1", port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, width in (("light", 1280), ("dark", 1280), ("phone", 390)):
        page = opened(browser, server.url, name, width)
        page.locator("#samples button img").first.click()
        page.wait_for_selector("#best li")
        page.wait_for_timeout(400)
        page.screenshot(path=folder / f"serve-{name}.png", full_page=True)
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
