"""However a run ends, its observers are called, once."""

from pathlib import Path

import pytest

from fedotp.config import Config
from fedotp.federation import RoundReport
from fedotp.runs.one import resume, run
from fedotp.runs.watch import Observer, Observers
from runs.toy_run import make_config, make_inputs


class _Heard(Observer):
    """Writes down how it began and ended."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self.words.append("start")

    def on_end(self, path: Path) -> None:
        self.words.append("end")

    def on_failure(self, path: Path) -> None:
        self.words.append(f"failure of {path.name}")


class _Fails(Observer):
    """Raises an error, or Ctrl-C's, in the second round, and has more to complain of then."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def on_round(self, report: RoundReport) -> None:
        if report.round == 2:
            raise self.error("in round 2")

    def on_failure(self, path: Path) -> None:
        raise OSError("no space left")


class _NeverStarts(Observer):
    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        raise ConnectionError("no answer")


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_run_that_fails_says_so_and_goes_on(tmp_path: Path, error: type[BaseException]) -> None:
    heard = _Heard()
    config = make_config(make_inputs(tmp_path))
    with pytest.raises(error, match="in round 2"):
        run(config, tmp_path / "one", observer=Observers(_Fails(error), heard))
    assert heard.words == ["start", "failure of one"]
    with pytest.raises(ConnectionError, match="no answer"):
        resume(tmp_path / "one", observer=Observers(heard, _NeverStarts()))
    assert heard.words[2:] == ["start", "failure of one"]
    assert resume(tmp_path / "one", observer=heard).is_complete
    assert heard.words[4:] == ["start", "end"]
    with pytest.raises(error, match="in round 2"):  # without other observers
        run(config, tmp_path / "two", observer=_Fails(error))
