"""The HTML page of a large run: 100 clients, 150 rounds, evaluated after each; its size, and how soon it is drawn.

"Drawn" is the time from navigation to a file on disk until every chart in the window is on the screen, in headless
chromium at 1280 x 900; the median of several fresh tabs.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from tests.invented_run import invent_run

from fedotp.report.page._page import make_page

_REPEATS = 7
_DRAWN = """() => {
  const charts = [...document.querySelectorAll('.chart')];
  const inside = charts.filter((chart) => chart.getBoundingClientRect().top < innerHeight);
  return inside.length > 0 && inside.every((chart) => 'drawn' in chart.dataset);
}"""


def cannot_run() -> str | None:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return None if shutil.which("chromium") else "there is no chromium"


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        clients, classes = [f"client-{i}" for i in range(100)], [f"thing {k}" for k in range(100)]
        made = invent_run(Path(folder) / "run", clients=clients, classes=classes, n_rounds=150, n_test=100)
        start = time.perf_counter()
        text = make_page([made])
        seconds = time.perf_counter() - start
        path = Path(folder) / "report.html"
        path.write_text(text)
        drawn = _open(path)
    return {
        "100 clients x 150 rounds: page, MB": len(text.encode()) / 1e6,
        "100 clients x 150 rounds: making the page, seconds": seconds,
        "100 clients x 150 rounds: navigation to visible charts drawn, seconds": statistics.median(drawn),
        "100 clients x 150 rounds: the same, slowest tab, seconds": max(drawn),
    }


def _open(path: Path) -> list[float]:
    """Seconds until the visible charts are drawn, in one tab after the other."""
    from playwright.sync_api import sync_playwright

    seconds = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(_REPEATS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            start = time.perf_counter()
            page.goto(path.as_uri(), wait_until="commit")
            page.wait_for_function(_DRAWN, polling="raf")
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            seconds.append(time.perf_counter() - start)
            page.close()
        browser.close()
    return seconds
