"""`fedotp demo`, as a newcomer runs it, on the embedded backbone; here with fewer images, sites and rounds."""

import csv
import re
from pathlib import Path

import pytest
from cli_made import Fedotp

from fedotp.cli import demo
from fedotp.config import load_config
from fedotp.report.page import is_page


@pytest.fixture(autouse=True)
def small(small_box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two splits of four sites, one round."""
    monkeypatch.chdir(tmp_path)
    changes = [f"data.dataset={small_box}", "partition.n_clients=4", "federation.rounds=1", "evaluation.every=0"]
    Path("small.toml").write_text(load_config(demo.PRESET).override(changes).to_toml())
    monkeypatch.setattr(demo, "PRESET", "small.toml")
    monkeypatch.setattr(demo, "SPLITS", range(2))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened in the browser."""
    found: list[str] = []
    monkeypatch.setattr("webbrowser.open", found.append)
    return found


def test_the_demo_ends_with_intervals_and_a_page_and_repeats_itself(
    fedotp: Fedotp, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fedotp("demo", "--quiet", "--open")
    assert done.status == 0, done.err
    with open(tmp_path / "runs/demo/table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows][:3] == ["Personal ridge", "FedOTP", "PromptFL"]
    assert float(rows[5]["with_prior_mean"]) > 0
    assert re.search(r"CoOp \(local\) +[-+]\d+\.\d\d +[-+]\d+\.\d\d to [-+]\d+\.\d\d +2 ", done.out)  # an interval
    page = tmp_path / "runs/demo/report.html"
    assert is_page(page)
    assert f"\n{page.as_uri()}\n" in done.out
    text = page.read_text()
    assert '"sites":[{' in text  # pictures of sites
    for words in (
        "serve runs/demo/personal-ridge,seed=0",
        "evaluate runs/demo/fedotp,seed=0 --set method.mass=0.5",
        "compare demo --splits 0..2 --seeds 0",
    ):
        assert f"  fedotp {words}\n" in done.out.partition("Next steps:")[2]
    assert opened == []  # there is no display

    monkeypatch.setenv("DISPLAY", ":0")
    again = fedotp("demo", "--quiet", "--open")  # nothing is run anew
    assert again.out == done.out
    assert opened == [page.as_uri()]
