"""Damaged, forged or busy run directories: one line that says what and where, and nothing overwritten."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toy_run import assert_same_outcome, make_config, make_inputs, outcome
from typer.testing import CliRunner

import fedotp
from fedotp.cli import app
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


@pytest.fixture(scope="module")
def stopped_once(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedotp.run(make_config(inputs), tmp_path_factory.mktemp("stopped") / "run", observer=StopAfter(2)).path


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> RunDirectory:
    """A copy of a run after two of three rounds."""
    return RunDirectory(shutil.copytree(stopped_once, tmp_path / "run"))


@pytest.fixture
def done(complete: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of a complete run."""
    return RunDirectory(shutil.copytree(complete.path, tmp_path / "done"))


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


def flip_prompts(run: RunDirectory) -> None:
    content = run.kept.read_bytes()
    for at in range(0, len(content), 256):  # wherever a client has written
        if content[at]:
            flip(run.kept, at)


def cut(name: str, keep: int) -> Any:
    return lambda run: os.truncate(run.path / name, keep)


def without_checksum(run: RunDirectory) -> None:
    content = json.loads((run.path / "manifest.json").read_text())
    (run.path / "manifest.json").write_text(json.dumps({k: v for k, v in content.items() if k != "sha256"}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_prompts, r"private.bin: the row of client \d is corrupt"),
        (lambda run: run.kept.unlink(), r"cannot read .*private.bin"),
        (cut("state/checkpoint.safetensors", 0), r"checkpoint .*checkpoint.safetensors"),
        (lambda run: flip(run.checkpoint, -10), r"checkpoint.safetensors is corrupt"),
        (cut("metrics.jsonl", 100), r"metrics.jsonl is truncated: expected at least \d+ bytes, got 100"),
        (cut("partition.json", 100), "partition.json"),
        (cut("manifest.json", 100), "manifest.json"),
        (without_checksum, r"manifest.json is corrupt or was edited: its digest does not match"),
    ],
)
def test_a_damaged_run_is_refused(damage: Any, message: str, stopped: RunDirectory) -> None:
    damage(stopped)
    refused(stopped, message)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, text
    path.write_text(text.replace(before, after))


def test_an_edited_configuration_is_refused_by_the_key_that_changed(stopped: RunDirectory) -> None:
    path = stopped.path / "config.toml"
    edit(path, "rounds = 3\n", "rounds = 4\n")
    refused(stopped, r"config.toml was edited: federation.rounds was 3 and is now 4; restore it")
    with pytest.raises(FedotpError, match=r"was edited: federation.rounds was 3 and is now 4"):
        fedotp.evaluate_run(stopped.path)
    edit(path, "rounds = 4\n", "rounds = 3\n")
    assert fedotp.resume(stopped.path).is_complete


def test_where_things_are_may_be_edited(stopped: RunDirectory, tmp_path: Path) -> None:
    """Another machine has them elsewhere; their digests show that they are the same."""
    (tmp_path / "elsewhere").mkdir()
    edit(stopped.path / "config.toml", f'store = "{stopped.config.data.store}"', f'store = "{tmp_path}/elsewhere"')
    assert fedotp.resume(stopped.path).is_complete


def test_changed_metrics_are_refused(stopped: RunDirectory) -> None:
    path = stopped.path / "metrics.jsonl"
    edit(path, '"kind":"round","round":2', '"kind":"round","round":3')
    refused(stopped, r"metrics.jsonl is corrupt or was edited: its digest does not match")
    with pytest.raises(FedotpError, match=r"metrics.jsonl is corrupt or was edited"):
        list(stopped.metrics())
    edit(path, '"kind":"round","round":3', '"kind":"round","round":2')
    done = fedotp.resume(stopped.path)
    assert [record["round"] for record in done.metrics("round")] == [1, 2, 3]
    whole = path.read_text()
    for damaged in (whole.replace('"round":1,', '"round":0,', 1), whole + '{"kind":"x"}\n'):
        path.write_text(damaged)
        with pytest.raises(FedotpError, match=r"metrics.jsonl is corrupt or was edited"):
            list(done.metrics())
    lines = whole.splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    with pytest.raises(FedotpError, match=r"metrics.jsonl, line 2 is corrupt"):
        list(stopped.metrics())


def test_no_flipped_bit_in_manifest_or_summary_goes_unnoticed(done: RunDirectory) -> None:
    for name in ("manifest", "summary"):
        path = done.path / f"{name}.json"
        content, expected = path.read_bytes(), getattr(RunDirectory(done.path), name)
        for at in range(0, len(content), 13):
            flip(path, at)
            with contextlib.suppress(FedotpError):
                assert getattr(RunDirectory(done.path), name) == expected, content[at - 9 : at + 9]  # white space
            path.write_bytes(content)


DEEP = b"[" * 100_000
FOREIGN = (DEEP + b"\n", b"a = " + DEEP, b'{"kind": "\xff"}\n', b"[]\n", b"1\n", b'"x"\n', b"null\n")


@pytest.mark.parametrize(
    ("name", "contents", "read"),
    [
        ("manifest.json", FOREIGN, lambda run: run.manifest),
        ("summary.json", FOREIGN, lambda run: run.summary),
        ("partition.json", FOREIGN, lambda run: run.partition),
        ("metrics.jsonl", FOREIGN, lambda run: list(run.metrics())),
        ("config.toml", FOREIGN, lambda run: run.config),
        ("predictions.npz", (b"", b"PK\x03\x04 and more", *FOREIGN), lambda run: run.predictions()),
    ],
)
def test_foreign_content_is_one_line(name: str, contents: tuple[bytes, ...], read: Any, done: RunDirectory) -> None:
    """JSON nested without end, and text that is none."""
    for content in (*contents, (done.path / name).read_bytes()[:300]):
        (done.path / name).write_bytes(content)
        with pytest.raises(FedotpError, match=name) as caught:
            read(RunDirectory(done.path))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["metrics.jsonl", "state/private.bin", "state/lock"])
def test_a_link_in_a_run_does_not_lead_to_other_files_being_written(
    name: str, stopped: RunDirectory, tmp_path: Path
) -> None:
    other, path = tmp_path / "other", stopped.path / name
    shutil.move(path, other)
    path.symlink_to(other)
    before = other.read_bytes()
    with pytest.raises(FedotpError, match=f"cannot write .*{name}: Too many levels of symbolic links"):
        fedotp.resume(stopped.path)
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    "name",
    ["config.toml", "manifest.json", "partition.json", "metrics.jsonl", "state/checkpoint.safetensors", "state/lock"],
)
@pytest.mark.parametrize("place", ["a pipe", "an endless device"])
def test_a_file_of_a_run_that_never_ends_is_not_waited_for(name: str, place: str, stopped: RunDirectory) -> None:
    path, run = stopped.path / name, str(stopped.path)
    path.unlink()
    if place == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for words in (["runs", "list", run], ["runs", "show", run], ["run", "--resume", run, "--quiet"]):
        ended = CliRunner().invoke(app, words)
        assert ended.exception is None or isinstance(ended.exception, FedotpError | SystemExit), ended.exception


@pytest.mark.parametrize("key", ["digest", "content", "name"])
def test_a_manifest_that_lacks_a_digest_is_refused(key: str, stopped: RunDirectory) -> None:
    manifest = stopped.manifest
    if key == "name":
        manifest["data"]["digest"] = "0"  # only then is the name asked for
    del manifest["data"][key]
    stopped.save_manifest(manifest)
    with pytest.raises(FedotpError, match=f"is corrupt: KeyError '{key}'"):
        fedotp.resume(stopped.path)


def test_the_lock_holds_between_processes(stopped: RunDirectory) -> None:
    code = "import sys, fedotp\ntry:\n fedotp.resume(sys.argv[1])\nexcept fedotp.FedotpError as e:\n print(e)"
    with stopped.locked():
        refused(stopped, "is locked by another process")
        done = subprocess.run(
            [sys.executable, "-c", code, str(stopped.path)], capture_output=True, text=True, check=True
        )
    assert "is locked by another process" in done.stdout
    assert fedotp.resume(stopped.path).is_complete  # afterwards


def test_an_existing_directory_is_never_overwritten(inputs: Path, stopped: RunDirectory, tmp_path: Path) -> None:
    before = snapshot(stopped.path)
    with pytest.raises(FedotpError, match=r"already exists; resume it with .*choose another"):
        fedotp.run(make_config(inputs), stopped.path)
    assert snapshot(stopped.path) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(FedotpError, match=r"already exists; choose another"):
        fedotp.run(make_config(inputs), tmp_path / "other")
    with pytest.raises(FedotpError, match="is not a run"):
        fedotp.resume(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").read_text() == "precious"


def another_backbone(inputs: Path) -> Path:
    path = inputs / "tiny.safetensors"
    path.unlink()
    save(CLIP.random(TINY, seed=1), path)
    return path


def another_image(inputs: Path) -> Path:
    path = min((inputs / "data" / "day" / "red").iterdir())
    Image.new("RGB", (32, 32), (1, 2, 3)).save(path)
    return path


def one_more_image(inputs: Path) -> Path:
    path = inputs / "data" / "day" / "red" / "extra.png"
    Image.new("RGB", (32, 32), (200, 0, 0)).save(path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_backbone, r"backbone changed since the run started"),
        (another_image, r"data changed since the run started"),
        (one_more_image, "data"),
    ],
)
def test_other_inputs_than_the_run_began_with_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    """A new process does not remember the backbone, so the cache is emptied."""
    (tmp_path / "own").mkdir()
    inputs = make_inputs(tmp_path / "own")
    _load_once.cache_clear()
    stopped = fedotp.run(make_config(inputs), tmp_path / "run", observer=StopAfter(1))
    before = snapshot(inputs)
    changed = change(inputs)
    _load_once.cache_clear()
    refused(stopped, message)
    with pytest.raises(FedotpError, match=message):
        fedotp.evaluate_run(stopped.path)
    changed.unlink()
    if (name := str(changed.relative_to(inputs))) in before:
        changed.write_bytes(before[name])
    _load_once.cache_clear()
    assert fedotp.resume(stopped.path).is_complete


def test_a_run_refused_before_it_begins_leaves_nothing(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, federation={"holdout_clients": 5})
    with pytest.raises(FedotpError, match="holdout_clients = 5"):
        fedotp.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FedotpError, match="cannot write"):
        fedotp.run(make_config(inputs), tmp_path / "file" / "run")


_FULL = """
import resource, signal, sys
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


def test_a_full_disk_is_one_line_and_the_run_is_resumed_when_there_is_room(
    stopped: RunDirectory, expected: dict[str, Any]
) -> None:
    """The metrics do not fit: they are longer than anything else a round writes."""
    size = (stopped.path / "metrics.jsonl").stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(stopped.path), str(size + 10)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("cannot write")
    assert len(done.stdout.splitlines()) == 1
    assert_same_outcome(outcome(fedotp.resume(stopped.path)), expected)
