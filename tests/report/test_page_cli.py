"""`fedotp report` through the real command line."""

from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest

import fedotp.report
from cli.cli_made import command
from fedotp.errors import FedotpError
from invented_run import invent_run

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """The command in an empty folder: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: astuple(command("report", *words))


def test_a_run_and_a_folder_of_runs_have_their_page_and_no_other_is_overwritten(report: Report, tmp_path: Path) -> None:
    for name in ("one/a", "one/b", "two/a", "two/b"):
        invent_run(tmp_path / name)
    for folder in ("one", "two", "one/a", "one"):  # its own page it overwrites
        assert report(folder, "--no-analysis") == (0, f"report  {folder}/report.html\n", "")
    assert not (tmp_path / "report.html").exists()
    assert report("one/a", "one/b", "one", "--no-analysis") == (0, "report  report.html\n", "")
    before, written = (tmp_path / "report.html").read_text(), (tmp_path / "report.html").stat().st_mtime_ns
    assert "<title>2 runs on farm</title>" in before  # each run once
    line = "report.html already exists; choose another --out, or overwrite it with --out report.html"
    assert report("two/a", "two/b", "--no-analysis") == (2, "", f"error: {line}\n")
    assert (tmp_path / "report.html").read_text() == before
    assert report("two/a", "two/b", "--no-analysis", "--out", "report.html")[0] == 0
    assert (tmp_path / "report.html").stat().st_mtime_ns > written
    assert report("two/a", "--no-analysis", "--out", "new/report.html")[0] == 0


def test_a_run_that_cannot_be_analysed_says_why(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Path) -> None:
        raise FedotpError(f"{run}: no images <here>")

    monkeypatch.setattr(fedotp.report, "analyse", refuse)
    invent_run(tmp_path / "a")
    assert report("a") == (0, "report  a/report.html\n", "analysing a\n")
    assert '"analysis":"a: no images \\u003chere\\u003e"' in (tmp_path / "a" / "report.html").read_text()
    report("a", "--no-analysis")
    assert '"analysis":null' in (tmp_path / "a" / "report.html").read_text()


def test_bad_input_is_one_line(report: Report, tmp_path: Path) -> None:
    invent_run(tmp_path / "a")
    invent_run(tmp_path / "damaged").path.joinpath("metrics.jsonl").write_text("{\n")
    (tmp_path / "mine.html").write_text("mine")
    (tmp_path / "empty").mkdir()
    cases = {
        ("nowhere",): "nowhere is not a run: it has no config.toml; list runs with `fedotp runs list`",
        ("a", "--out", "mine.html"): "mine.html exists and is not a report; choose another --out",
        ("a", "--out", "empty"): "empty exists and is not a report; choose another --out",
        ("damaged", "--no-analysis"): (
            "damaged/metrics.jsonl, line 1 is corrupt: "
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        ),
    }
    for words, line in cases.items():
        assert report(*words) == (2, "", f"error: {line}\n")
    assert (tmp_path / "mine.html").read_text() == "mine"
    assert not list(tmp_path.rglob("report.html"))
