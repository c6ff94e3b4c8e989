"""The notebook in a kernel of Jupyter's: bar, table, figures and pictures are there. `make test-extras`."""

import os
from pathlib import Path

import pytest

WHY = "it is not installed here; `make test-extras` has it"
nbclient = pytest.importorskip("nbclient", reason=WHY)
nbformat = pytest.importorskip("nbformat", reason=WHY)
pytest.importorskip("ipykernel", reason=WHY)
pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).parents[2]


def test_the_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(ROOT / "examples" / "first.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    complaints = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert not complaints, complaints
    shown = [output.data for output in outputs if "data" in output]
    texts = [data["text/plain"] for data in shown]
    assert any(text.startswith("<Dataset cifar10-mini: 10 classes") for text in texts)
    assert any(text.startswith("<RunDirectory ") and text.endswith("complete>") for text in texts)
    assert any(text.startswith("<Prediction of 4 images: ") for text in texts)
    (bar,) = (data["text/html"] for data in shown if "<progress" in data.get("text/html", ""))  # written again
    assert "accuracy" in bar
    assert sum("image/png" in data for data in shown) == 3
