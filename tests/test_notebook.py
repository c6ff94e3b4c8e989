"""The notebook: its code runs, here as plain Python; in a kernel where Jupyter's parts are (`make test-extras`)."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first.ipynb"


def test_the_code_of_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")  # it is stored without output
        assert cell.get("execution_count") is None
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert "round 3: accuracy" in capsys.readouterr().out
    assert len(names["prediction"].labels) == 4
