"""Processes of many runs, and their GPUs."""

import os
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch
from toy_run import make_config

from fedotp._imports import name_imports
from fedotp.runs.many import _workers, by_method, run_many
from fedotp.runs.many._workers import _gpus_to_share, _served

VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("count", "visible", "device", "gpus"),
    [
        (3, None, "auto", ["0", "1", "2"]),
        (2, "5, 7", "cuda", ["5", "7"]),
        (2, "GPU-1a,GPU-2b,GPU-wrong", "auto", ["GPU-1a", "GPU-2b"]),  # CUDA stops at the first it does not know
        (3, None, "cuda:1", [None]),
        (3, None, "cpu", [None]),
        (1, "3", "auto", [None]),
        (0, None, "auto", [None]),
    ],
)
def test_processes_share_gpus(
    count: int, visible: str | None, device: str, gpus: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv(VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    (trial,) = by_method(make_config(Path(), compute={"device": device}), ["coop"], [0])
    assert _gpus_to_share([[(trial, Path())]]) == gpus


@pytest.mark.parametrize(
    ("error", "usable"),
    [("", True), ("not enough memory (CUDA out of memory. Tried to)", True), ("CUDA error: device-side assert", False)],
)
def test_a_process_that_lost_cuda_takes_no_more_runs(error: str, usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = by_method(make_config(Path()), ["coop", "fedotp"], [0])
    monkeypatch.setattr(_workers, "run_group", lambda group, *_: zip(trials, [error, ""], strict=True))
    ours, theirs = Pipe()
    ours.send([])
    assert _served(theirs) is usable
    assert [ours.recv()[1] for _ in trials] == [error, ""]


def test_each_process_sees_a_gpu_of_its_own(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are made up: what a process sees is written down by a file of the user's that it imports."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(VISIBLE, "98,99")
    (tmp_path / "seen").mkdir()
    code = f"import os\nopen({str(tmp_path / 'seen')!r} + '/' + os.environ[{VISIBLE!r}], 'w').close()\n"
    (tmp_path / "look.py").write_text(code)
    monkeypatch.setenv("FEDOTP_IMPORT", "")  # as before, afterwards
    name_imports([str(tmp_path / "look.py")])
    trials = by_method(make_config(inputs, compute={"device": "auto"}), ["zeroshot"], [0, 1])
    outcomes = run_many(trials, tmp_path / "runs", jobs=2)
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert sorted(os.listdir(tmp_path / "seen")) == ["98", "98,99", "99"]  # this process sees both
