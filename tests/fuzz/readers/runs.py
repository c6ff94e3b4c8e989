"""Configurations, and everything a run leaves in its directory."""

import contextlib
import hashlib
import json
import shutil
import zlib
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

import fedotp as package
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters
from fedotp.runs.watch import Observer
from fuzz.reader import Reader, fedotp, inputs_of
from report.findings import a_probe, an_audit
from runs.toy_run import COLOURS, make_config, make_inputs

_MODEST = {"federation.rounds": 1, "federation.local_epochs": 1, "data.crops": 0, "federation.join_epochs": 1}
_QUICK = {"holdout_clients": 0, "participation": 1.0, "join_epochs": 0}
_CHECKSUMS = ("sha256", "metrics")
_JSON = ("config.toml", "manifest.json", "summary.json", "metrics.jsonl", "partition.json", "predictions.npz")


class StoppedError(Exception):
    """The run is killed."""


class Deadly(Observer):
    """Kills a run after its first round."""

    def on_round(self, report: object) -> None:
        raise StoppedError


def toy_inputs(folder: Path) -> Path:
    """A backbone with CLIP's vocabulary and a few coloured squares, made once."""
    toy = inputs_of(folder) / "toy"
    if not toy.is_dir():
        toy.mkdir(parents=True)
        make_inputs(toy)
    return toy


def _config(folder: Path, **sections: object) -> package.Config:
    return make_config(toy_inputs(folder), evaluation={"clients": 0}, **sections)


def complete_run(folder: Path) -> Path:
    """A run that has ended, with a client that joined it later; copied from the first that was made."""
    made = inputs_of(folder) / "complete"
    if not made.is_dir():
        package.run(_config(folder, federation={"rounds": 1}), made)
        fedotp("join", made, "--data", toy_inputs(folder) / "data" / "day", "--name", "late", "--quiet")
    shutil.copytree(made, folder / "run")
    return folder / "run"


def _looked_into(folder: Path) -> None:
    """The same run, audited and probed."""
    run = package.RunDirectory(complete_run(folder))
    run.save_finding("audit", an_audit())
    run.save_finding("probe", a_probe())


def _left_run(folder: Path) -> Path:
    """A run without a client of the complete one, with its certificate."""
    made = inputs_of(folder) / "left"
    if not made.is_dir():
        whole = inputs_of(folder) / "whole"
        package.run(_config(folder, federation={**_QUICK, "rounds": 1}), whole)
        fedotp("forget", whole, "--client", "client-1", "--out", made, "--quiet")
    shutil.copytree(made, folder / "run")
    return folder / "run"


def _check(folder: Path) -> None:
    fedotp("forget", "--check", folder / "run")


def _make_config(folder: Path) -> None:
    (folder / "config.toml").write_text(_config(folder).to_toml())


def _run_config(folder: Path) -> None:
    """A run, which asks for no more than a round whatever the file says."""
    changes = [word for key, value in _MODEST.items() for word in ("--set", f"{key}={value}")]
    changes += ["--set", f"data.store={folder / 'store'}"]
    fedotp("run", folder / "config.toml", *changes, "--out", folder / "out", "--quiet")


def _make_stopped(folder: Path) -> None:
    try:
        package.run(_config(folder, federation={**_QUICK, "rounds": 2}), folder / "run", observer=Deadly())
    except StoppedError:
        return
    raise AssertionError("the run was to be killed")


def _seal_checkpoint(folder: Path) -> None:
    """The checksum of a checkpoint, made right."""
    path = folder / "run" / "state" / "checkpoint.safetensors"
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = zlib.crc32(f"{facts['progress']} {facts['kept']}".encode())
        for name, value in sorted(tensors.items()):
            content = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            checksum = zlib.crc32(content, zlib.crc32(name.encode(), checksum))
        path.write_bytes(safetensors.torch.save(tensors, {**facts, "checksum": str(checksum)}))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, UnicodeEncodeError):
        return  # beyond repair


def _seal_partition(folder: Path) -> None:
    """The digest of a partition, made right."""
    path = folder / "run" / "partition.json"
    try:
        content = json.loads(path.read_bytes())
        content.pop("digest", None)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        path.write_text(json.dumps({"digest": hashlib.sha256(text.encode()).hexdigest(), **content}))
    except (OSError, ValueError, AttributeError, RecursionError, TypeError):
        return


def _seal_files(folder: Path) -> None:
    """The digests of JSON files and of the metrics, made right."""
    run = RunDirectory(folder / "run")
    for name in ("manifest", "summary", "audit", "probe", "forgotten"):
        path = run.path / f"{name}.json"
        try:
            content = json.loads(path.read_bytes())
            content = {key: value for key, value in content.items() if key not in _CHECKSUMS}
            if name == "summary":
                run.save_summary(content)
            else:
                run.save_finding(name, content)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, FedotpError):
            continue


def forge_run(folder: Path) -> None:
    """All that only says whether a file was changed, made right."""
    _seal_checkpoint(folder)
    _seal_partition(folder)
    _seal_files(folder)


def _show(folder: Path) -> None:
    fedotp("runs", "show", folder / "run", "--all")


def _report(folder: Path) -> None:
    fedotp("report", folder / "run", "--no-analysis", "--out", folder / "report.html")


def _resume(folder: Path) -> None:
    with contextlib.chdir(folder):  # the configuration may name another store, and a relative one is made here
        fedotp("run", "--resume", folder / "run", "--quiet")


def _stored(folder: Path) -> None:
    StoredParameters.of(folder / "run")


def _evaluate(folder: Path) -> None:
    fedotp("evaluate", folder / "run", "--set", f"data.store={folder / 'store'}", "--quiet")


def _predict(folder: Path) -> None:
    image = toy_inputs(folder) / "data" / "day" / next(iter(COLOURS)) / "0.png"
    fedotp("predict", folder / "run", image, "--client", "client-0")


_SHOWN = tuple(f"run/{name}" for name in _JSON)

READERS = [
    Reader("config", _make_config, _run_config),
    Reader("runs-list", complete_run, lambda folder: fedotp("runs", "list", folder), files=_SHOWN, seal=forge_run),
    Reader("findings", _looked_into, _report, files=("run/audit.json", "run/probe.json"), seal=forge_run),
    Reader("runs-show", complete_run, _show, files=_SHOWN, seal=forge_run),
    Reader("report", complete_run, _report, files=(*_SHOWN, "run/joined/*/result.json"), seal=forge_run),
    Reader("certificate", _left_run, _check, files=("run/forgotten.json",), seal=forge_run),
    Reader("resume", _make_stopped, _resume, files=("run/*.*", "run/state/*"), seal=forge_run),
    Reader("checkpoint", _make_stopped, _stored, files=("run/state/*",), seal=forge_run),
    Reader(
        "evaluate",
        complete_run,
        _evaluate,
        files=("run/config.toml", "run/manifest.json", "run/partition.json", "run/state/*"),
        seal=forge_run,
    ),
    Reader(
        "predict-run",
        complete_run,
        _predict,
        files=("run/config.toml", "run/manifest.json", "run/state/*", "run/joined/*/private.safetensors"),
        seal=forge_run,
    ),
]
