"""What the documentation shows works as shown."""

import doctest
import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

import fedotp.clip
from fedotp.clip import CLIP, TINY

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "module", ["fedotp.ot._solve", "fedotp.clip._model", "fedotp.prompts._encode", "fedotp.matching"]
)
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0


def test_python_in_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as printed, with a toy in place of the backbone that would be downloaded."""
    monkeypatch.setattr(fedotp.clip, "load", lambda name: CLIP.random(TINY))
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = {"pixels": torch.randn(30, 3, 32, 32), "labels": torch.randint(0, 2, (10, 3))}
    exec(first, names)
    assert names["scores"].shape == (10, 3, 2)
    assert names["context"].grad.abs().sum() > 0
    names = {"cost": torch.rand(4, 9, 2)}
    exec(second, names)
    assert names["result"].plan.shape == (4, 9, 2)


def test_the_quickstart_learns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    importlib.import_module("quickstart").main()
    sys.modules.pop("quickstart")
    shown = capsys.readouterr().out
    rounds = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+) +(\d+)% +(\d+)%$", shown, re.MULTILINE)
    first, last = ([float(x) for x in rounds[i]] for i in (0, -1))
    assert last[0] < first[0] / 2
    assert last[1] < first[1] / 2
    assert min(last[2:]) > 95
    on_block = re.search(r"(\d+)% lies on the coloured block", shown)
    assert on_block is not None
    assert int(on_block[1]) > 40  # a plan that ignored the image would have 25 %
