"""A progress bar at a terminal and in a notebook, nothing elsewhere."""

import io
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedotp.runs.one import resume, run
from fedotp.runs.watch import Observer, _live
from fedotp.runs.watch._live import LiveDisplay, NotebookDisplay, watched
from runs.toy_run import make_config, make_inputs


def at(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False, notebook: bool = False) -> io.StringIO:
    """Let the process be somewhere."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, force_jupyter=notebook, width=100)
    monkeypatch.setattr(_live, "Console", lambda **_: console)
    return screen


@pytest.mark.parametrize(
    ("where", "progress", "shown"),
    [
        ("nowhere", None, Observer),
        ("nowhere", False, Observer),
        ("nowhere", True, LiveDisplay),
        ("terminal", None, LiveDisplay),
        ("terminal", False, Observer),
        ("notebook", None, NotebookDisplay),
        ("notebook", False, Observer),
        ("notebook", True, NotebookDisplay),
    ],
)
def test_a_bar_at_a_terminal_and_in_a_notebook(
    where: str, progress: bool | None, shown: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, terminal=where == "terminal", notebook=where == "notebook")
    with watched(None, progress) as observer:
        assert type(observer) is shown


def test_a_given_observer_is_alone_unless_a_bar_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, terminal=True)
    own = Observer()
    with watched(own, None) as observer:
        assert observer is own
    with watched(own, True) as observer:
        assert [type(each) for each in observer.observers] == [LiveDisplay, Observer]


def test_a_run_from_python_draws_a_bar_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(make_inputs(tmp_path))
    screen = at(monkeypatch, terminal=True)
    run(config, tmp_path / "shown")
    assert "round 1 of 3" in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h")  # the cursor is back
    screen = at(monkeypatch)
    run(config, tmp_path / "quiet")
    assert screen.getvalue() == ""
    assert resume(tmp_path / "quiet", progress=True).is_complete


class Handle:
    """Stands for what IPython returns to write a line again."""

    lines: list[str]

    def __init__(self) -> None:
        Handle.lines = []

    def update(self, line: str) -> None:
        Handle.lines.append(line)


def test_a_notebook_has_one_line_that_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(line: str, display_id: bool) -> Any:
        assert display_id
        shown.append(line)
        return Handle()

    fake = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    at(monkeypatch, notebook=True)
    done = run(make_config(make_inputs(tmp_path)), tmp_path / "<b>run")
    assert len(shown) == 1
    last = Handle.lines[-1]
    assert last.startswith("<progress value=")
    assert "&lt;b&gt;run" in last  # names are no markup
    assert f"accuracy {100 * done.summary['final']['accuracy']:.1f} %" in last
    value, most = (int(word.split('"')[1]) for word in last.split()[1:3])
    assert value == most > 0
