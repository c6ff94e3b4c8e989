"""The documentation as a site: it builds without a warning, and reading it needs no network."""

import re
from pathlib import Path

import pytest

from own_process import python

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?\s(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)")

pytest.importorskip("mkdocs", reason="pip install 'fedotp[docs]'")
pytest.importorskip("mkdocstrings", reason="pip install 'fedotp[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = ("-m", "mkdocs", "build", "--strict", "-f", "website/mkdocs.yml", "-d", folder)
    done = python(*command, cwd=ROOT, PYTHONPATH="website", NO_MKDOCS_2_WARNING="1")
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"index", "CHANGELOG", "CONTRIBUTING", "SECURITY"}
    assert pages <= {path.stem for path in site.glob("*.html")}
    assert 'id="fedotp.ot.solve"' in (site / "api" / "fedotp.ot.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert LOADED.findall(page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\(\"?https?:|@import", sheet.read_text(encoding="utf-8")) == [], sheet.name


def test_links_to_pages_and_files_lead_to_them(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for link in ('href="methods.html#yours"', 'href="CHANGELOG.html"', 'src="idea.svg"'):  # docs/... in the README
        assert link in front
    assert 'href="../' not in (site / "methods.html").read_text(encoding="utf-8")  # files that are no pages
