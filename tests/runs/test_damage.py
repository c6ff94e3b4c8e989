"""Damaged, foreign or busy run directories: one line that says what and where, and nothing overwritten."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from toy_run import assert_same_outcome, make_config, make_inputs, outcome

import fedotp
from fedotp.clip import CLIP, TINY, save
from fedotp.errors import FedotpError
from fedotp.federation import RoundReport
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one._inputs import _load_once
from fedotp.runs.watch import Observer


class StopAfter(Observer):
    def __init__(self, round_: int) -> None:
        self.round = round_

    def on_round(self, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def stopped(inputs: Path, tmp_path: Path) -> RunDirectory:
    """A run after two of three rounds."""
    return fedotp.run(make_config(inputs), tmp_path / "run", observer=StopAfter(2))


def snapshot(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def refused(run: RunDirectory, message: str) -> None:
    before = snapshot(run.path)
    with pytest.raises(FedotpError, match=message) as caught:
        fedotp.resume(run.path)
    assert "\n" not in str(caught.value)
    assert snapshot(run.path) == before


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_damaged_private_prompt_is_refused(stopped: RunDirectory) -> None:
    content = stopped.kept.read_bytes()
    for at in range(0, len(content), 256):  # wherever somebody wrote
        if content[at]:
            flip(stopped.kept, at)
    refused(stopped, r"private.bin: what client \d keeps is damaged")


def test_missing_private_prompts_are_refused(stopped: RunDirectory) -> None:
    stopped.kept.unlink()
    refused(stopped, r"cannot read .*private.bin")


@pytest.mark.parametrize("keep", [0, 9, 500])
def test_a_truncated_checkpoint_is_refused(stopped: RunDirectory, keep: int) -> None:
    stopped.checkpoint.write_bytes(stopped.checkpoint.read_bytes()[:keep])
    refused(stopped, r"checkpoint .*checkpoint.safetensors")


def test_a_flipped_bit_in_the_checkpoint_is_refused(stopped: RunDirectory) -> None:
    flip(stopped.checkpoint, -10)
    refused(stopped, r"checkpoint.safetensors is damaged")


def test_a_shortened_record_of_metrics_is_refused(stopped: RunDirectory) -> None:
    os.truncate(stopped.path / "metrics.jsonl", 100)
    refused(stopped, r"metrics.jsonl has 100 bytes where \d+ were written")


def test_a_damaged_line_of_metrics_is_named(stopped: RunDirectory) -> None:
    path = stopped.path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    with pytest.raises(FedotpError, match=r"metrics.jsonl, line 2 is damaged"):
        list(stopped.metrics())


def test_a_damaged_partition_or_manifest_is_refused(stopped: RunDirectory) -> None:
    for name in ("partition.json", "manifest.json"):
        path = stopped.path / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        refused(stopped, name)
        path.write_bytes(whole)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, text
    path.write_text(text.replace(before, after))


def test_an_edited_configuration_is_refused_by_the_key_that_changed(stopped: RunDirectory) -> None:
    path = stopped.path / "config.toml"
    edit(path, "rounds = 3\n", "rounds = 4\n")
    refused(stopped, r"config.toml was edited: federation.rounds is 4 now, and the run began with 3; put it back")
    with pytest.raises(FedotpError, match=r"was edited: federation.rounds is 4"):
        fedotp.evaluate_run(stopped.path)
    edit(path, "rounds = 4\n", "rounds = 3\n")
    assert fedotp.resume(stopped.path).is_complete


def test_where_things_are_may_be_edited(stopped: RunDirectory, tmp_path: Path) -> None:
    """Another machine has them elsewhere; their digests tell that they are the same."""
    (tmp_path / "elsewhere").mkdir()
    edit(stopped.path / "config.toml", f'store = "{stopped.config.data.store}"', f'store = "{tmp_path}/elsewhere"')
    assert fedotp.resume(stopped.path).is_complete


def test_a_changed_number_in_the_metrics_is_refused(stopped: RunDirectory) -> None:
    path = stopped.path / "metrics.jsonl"
    edit(path, '"kind":"round","round":2', '"kind":"round","round":3')
    refused(stopped, r"metrics.jsonl is damaged or was edited: its digest does not match")
    with pytest.raises(FedotpError, match=r"metrics.jsonl is damaged or was edited"):
        list(stopped.metrics())
    edit(path, '"kind":"round","round":3', '"kind":"round","round":2')
    done = fedotp.resume(stopped.path)
    assert [record["round"] for record in done.metrics("round")] == [1, 2, 3]
    for damaged in (path.read_text().replace('"round":1,', '"round":0,', 1), path.read_text() + '{"kind":"x"}\n'):
        whole = path.read_text()
        path.write_text(damaged)
        with pytest.raises(FedotpError, match=r"metrics.jsonl is damaged or was edited"):
            list(done.metrics())
        path.write_text(whole)


def test_no_flipped_bit_in_manifest_or_summary_goes_unnoticed(inputs: Path, tmp_path: Path) -> None:
    done = fedotp.run(make_config(inputs), tmp_path / "run")
    for name in ("manifest", "summary"):
        path = done.path / f"{name}.json"
        content, expected = path.read_bytes(), getattr(RunDirectory(done.path), name)
        for at in range(0, len(content), 13):
            flip(path, at)
            with contextlib.suppress(FedotpError):
                assert getattr(RunDirectory(done.path), name) == expected, content[at - 9 : at + 9]  # white space
            path.write_bytes(content)


def test_a_manifest_without_its_checksum_is_refused(stopped: RunDirectory) -> None:
    path = stopped.path / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in content.items() if key != "sha256"}))
    refused(stopped, r"manifest.json is damaged or was edited: its digest does not match")


DEEP = b"[" * 100_000
FOREIGN = (DEEP + b"\n", b"a = " + DEEP, b'{"kind": "\xff"}\n', b"[]\n", b"1\n", b'"x"\n', b"null\n")


def test_json_nested_without_end_and_text_that_is_none_are_one_line(inputs: Path, tmp_path: Path) -> None:
    done = fedotp.run(make_config(inputs), tmp_path / "run")
    read = {
        "manifest.json": lambda run: run.manifest,
        "summary.json": lambda run: run.summary,
        "partition.json": lambda run: run.partition,
        "metrics.jsonl": lambda run: list(run.metrics()),
        "config.toml": lambda run: run.config,
    }
    for name, ask in read.items():
        whole = (done.path / name).read_bytes()
        for content in FOREIGN:
            (done.path / name).write_bytes(content)
            with pytest.raises(FedotpError, match=name) as caught:
                ask(RunDirectory(done.path))
            assert "\n" not in str(caught.value)
        (done.path / name).write_bytes(whole)


@pytest.mark.parametrize("keep", [0, 10, 300])
def test_damaged_predictions_are_one_line(inputs: Path, tmp_path: Path, keep: int) -> None:
    done = fedotp.run(make_config(inputs), tmp_path / "run")
    path = done.path / "predictions.npz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FedotpError, match=r"cannot read .*predictions.npz"):
        done.predictions()


def test_a_run_in_progress_is_not_resumed_by_another(stopped: RunDirectory) -> None:
    expected = snapshot(stopped.path)
    with stopped.locked(), pytest.raises(FedotpError, match="is being run by another process"):
        fedotp.resume(stopped.path)
    assert snapshot(stopped.path) == expected
    assert fedotp.resume(stopped.path).is_complete  # afterwards


def test_the_lock_holds_between_processes(stopped: RunDirectory) -> None:
    code = "import sys, fedotp\ntry:\n fedotp.resume(sys.argv[1])\nexcept fedotp.FedotpError as e:\n print(e)"
    with stopped.locked():
        done = subprocess.run(
            [sys.executable, "-c", code, str(stopped.path)], capture_output=True, text=True, check=True
        )
    assert "is being run by another process" in done.stdout


def test_an_existing_directory_is_never_overwritten(inputs: Path, stopped: RunDirectory, tmp_path: Path) -> None:
    before = snapshot(stopped.path)
    with pytest.raises(FedotpError, match=r"exists already; resume it with .*choose another"):
        fedotp.run(make_config(inputs), stopped.path)
    assert snapshot(stopped.path) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(FedotpError, match=r"exists already; choose another"):
        fedotp.run(make_config(inputs), tmp_path / "other")
    with pytest.raises(FedotpError, match="is not a run"):
        fedotp.resume(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").read_text() == "precious"


@pytest.fixture
def own_inputs(tmp_path: Path) -> Path:
    """Inputs that a test may change."""
    (tmp_path / "own").mkdir()
    return make_inputs(tmp_path / "own")


def forget_backbones() -> None:
    """What a new process would not remember."""
    _load_once.cache_clear()


def test_another_backbone_is_refused(own_inputs: Path, tmp_path: Path) -> None:
    forget_backbones()
    stopped = fedotp.run(make_config(own_inputs), tmp_path / "run", observer=StopAfter(1))
    weights = (own_inputs / "tiny.safetensors").read_bytes()
    (own_inputs / "tiny.safetensors").unlink()
    save(CLIP.random(TINY, seed=1), own_inputs / "tiny.safetensors")
    forget_backbones()
    refused(stopped, r"the run began with backbone .*; give the one it began with")
    with pytest.raises(FedotpError, match="the run began with backbone"):
        fedotp.evaluate_run(stopped.path)
    (own_inputs / "tiny.safetensors").write_bytes(weights)
    forget_backbones()
    assert fedotp.resume(stopped.path).is_complete


def test_other_data_are_refused(own_inputs: Path, tmp_path: Path) -> None:
    stopped = fedotp.run(make_config(own_inputs), tmp_path / "run", observer=StopAfter(1))
    extra = own_inputs / "data" / "day" / "red" / "extra.png"
    Image.new("RGB", (32, 32), (200, 0, 0)).save(extra)
    refused(stopped, r"data")
    extra.unlink()
    assert fedotp.resume(stopped.path).is_complete


def test_an_image_changed_under_its_name_is_noticed(own_inputs: Path, tmp_path: Path) -> None:
    stopped = fedotp.run(make_config(own_inputs), tmp_path / "run", observer=StopAfter(1))
    image = min((own_inputs / "data" / "day" / "red").iterdir())
    before = image.read_bytes()
    Image.new("RGB", (32, 32), (1, 2, 3)).save(image)
    refused(stopped, r"the run began with data .*; give the one it began with")
    image.write_bytes(before)
    assert fedotp.resume(stopped.path).is_complete


def test_a_run_refused_before_it_begins_leaves_nothing(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, federation={"holdout_clients": 5})
    with pytest.raises(FedotpError, match="holdout_clients = 5"):
        fedotp.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


_FULL = """
import resource, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import fedotp
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    fedotp.resume(sys.argv[1])
except fedotp.FedotpError as error:
    print(error)
    sys.exit(3)
"""


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(
    inputs: Path, tmp_path: Path, stopped: RunDirectory
) -> None:
    """The metrics do not fit: they are longer than anything else a round writes."""
    size = (stopped.path / "metrics.jsonl").stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(stopped.path), str(size + 10)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("cannot write")
    assert len(done.stdout.splitlines()) == 1
    expected = outcome(fedotp.run(make_config(inputs), tmp_path / "whole"))
    assert_same_outcome(outcome(fedotp.resume(stopped.path)), expected)


def test_a_read_only_place_is_one_line(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FedotpError, match="cannot write"):
        fedotp.run(make_config(inputs), tmp_path / "file" / "run")
