"""Make the screenshots of the documentation: the report of the demo, and the page of `fedotp serve`.

    fedotp demo --out runs/demo
    fedotp run demo --out runs/first
    python website/screenshots.py runs/demo runs/first

Needs Debian's chromium and playwright (`make install`).
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
WIDE, PHONE = {"width": 1280, "height": 844}, {"width": 390, "height": 844}
REPORT = (  # file, section at the top ("" for the start of the page), colour scheme, size
    ("report-light", "", "light", WIDE),
    ("report-sites", "sites", "light", WIDE),
    ("report-dark", "accuracy", "dark", WIDE),
    ("report-prompts", "analysis", "light", WIDE),
    ("report-phone", "", "light", PHONE),
)
SERVE = (("serve-light", "light", WIDE), ("serve-dark", "dark", WIDE), ("serve-phone", "light", PHONE))


def shoot(page: Page, name: str, *, whole: bool = False) -> None:
    """Save a screenshot when charts and images have been drawn."""
    page.wait_for_timeout(1500)
    page.screenshot(path=DOCS / f"{name}.png", full_page=whole)
    print(DOCS / f"{name}.png")


def main() -> None:
    """Write all of them."""
    demo, first = (Path(argument).resolve() for argument in sys.argv[1:])
    path = shutil.which("chromium") or shutil.which("google-chrome")
    subprocess.run(["fedotp", "report", demo, "--out", demo / "report.html"], check=True)
    server = subprocess.Popen(
        ["fedotp", "serve", first, "--calibrate", "test", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, section, scheme, size in REPORT:
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(f"file://{demo}/report.html")
            page.get_by_label("In detail").select_option(label="FedOTP, split 6")
            if section:
                page.locator(f"#{section}").scroll_into_view_if_needed()
                page.evaluate("id => document.getElementById(id).scrollIntoView()", section)
            shoot(page, name)
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        for name, scheme, size in SERVE:
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(address)
            page.locator("#samples img, #samples button").first.click()
            page.wait_for_selector("#answer", state="visible")
            shoot(page, name, whole=True)
        browser.close()
    server.terminate()


if __name__ == "__main__":
    main()
