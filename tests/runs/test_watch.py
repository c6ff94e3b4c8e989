"""Those who watch a run: what they are notified of, and where a bar is drawn."""

import io
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from toy_run import Stops, make_config

from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation, View
from fedotp.runs.one import resume, run
from fedotp.runs.watch import Observer, Observers, _live


class Heard(Observer):
    """Writes down everything."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.images = 0
        self.views: list[dict[str, Any]] = []

    def on_start(self, path: Path, config: object, *, round_: int, images_per_round: int) -> None:
        self.words.append(f"start {round_}")

    def on_images(self, n: int) -> None:
        self.images += n

    def on_round(self, report: RoundReport) -> None:
        self.words.append(f"round {report.round}")

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self.words.append(f"evaluation {round_}")

    def on_view(self, round_: int, view: View) -> None:
        self.views.append({"kind": "view", "round": round_, **view.as_dict()})

    def on_end(self, path: Path) -> None:
        self.words.append("end")

    def on_failure(self, path: Path) -> None:
        self.words.append(f"failure of {path.name}")


def test_observers_are_notified_of_everything(inputs: Path, tmp_path: Path) -> None:
    one, other = Heard(), Heard()
    config = make_config(
        inputs, federation={"rounds": 2, "holdout_clients": 0}, evaluation={"views": ["global"], "views_every": 1}
    )
    done = run(config, tmp_path / "run", observer=Observers(one, other))
    assert one.words == ["start 0", "evaluation 0", "round 1", "evaluation 1", "round 2", "evaluation 2", "end"]
    assert one.images == sum(record["images"] for record in done.metrics("round"))
    assert one.views == list(done.metrics("view")) != []
    assert vars(one) == vars(other)


class Fails(Stops):
    """Raises another error when it is notified of the failure."""

    def on_failure(self, path: Path) -> None:
        raise OSError("no space left")


class NeverStarts(Observer):
    def on_start(self, path: Path, config: object, *, round_: int, images_per_round: int) -> None:
        raise ConnectionError("no answer")


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_observers_are_notified_once_of_a_failure(inputs: Path, tmp_path: Path, error: type[BaseException]) -> None:
    first, second, third = Heard(), Heard(), Heard()
    with pytest.raises(error, match="in round 2"):
        run(make_config(inputs), tmp_path / "one", observer=Observers(Fails(2, error), first))
    assert [first.words[0], first.words[-1], first.words.count("failure of one")] == ["start 0", "failure of one", 1]
    with pytest.raises(ConnectionError, match="no answer"):
        resume(tmp_path / "one", observer=Observers(second, NeverStarts()))
    assert second.words == ["start 1", "failure of one"]
    assert resume(tmp_path / "one", observer=third).is_complete
    assert third.words[-1] == "end"
    with pytest.raises(error, match="in round 2"):
        run(make_config(inputs), tmp_path / "two", observer=Fails(2, error))


def at(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False, notebook: bool = False) -> io.StringIO:
    """Let the process run at a terminal, in a notebook, or at neither."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, force_jupyter=notebook, width=100)
    monkeypatch.setattr(_live, "Console", lambda **_: console)
    return screen


def test_a_run_from_python_draws_a_bar_at_a_terminal(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = at(monkeypatch, terminal=True)
    run(make_config(inputs), tmp_path / "shown")
    assert "round 1 of 3" in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h")  # the cursor is back
    screen = at(monkeypatch)
    run(make_config(inputs), tmp_path / "quiet")
    assert screen.getvalue() == ""


def test_a_notebook_has_one_line_that_is_written_again(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    updates: list[str] = []

    def display(line: str, display_id: bool) -> Any:
        assert display_id
        shown.append(line)
        return types.SimpleNamespace(update=updates.append)

    fake = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    at(monkeypatch, notebook=True)
    done = run(make_config(inputs), tmp_path / "<b>run")
    assert len(shown) == 1
    last = updates[-1]
    assert last.startswith("<progress value=")
    assert "&lt;b&gt;run" in last  # names are no markup
    assert f"accuracy {100 * done.summary['final']['accuracy']:.1f} %" in last
    value, most = (int(word.split('"')[1]) for word in last.split()[1:3])
    assert value == most > 0
