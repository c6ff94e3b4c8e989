"""A run is a directory; docs/architecture.md lists its files."""

import io
import json
import os
import shlex
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedotp._files import (
    cannot_write,
    held,
    is_held,
    opened_in_place,
    parse_json,
    read_file,
    read_regular,
    write_atomically,
)
from fedotp._imports import import_options
from fedotp._text import one_line
from fedotp.data.partition import Partition
from fedotp.errors import FedotpError
from fedotp.federation import Progress
from fedotp.runs.directory._checksum import RunningDigest, checksum_error, read_checked, with_checksum

if TYPE_CHECKING:  # they import torch, which commands that only show runs do not need
    from fedotp.config import Config
    from fedotp.federation.testing import Predictions
    from fedotp.methods import Method

_MOST_BYTES = 1 << 30  # size limit of the metrics and predictions of a run
_METRICS = "metrics"  # in summary.json: length and digest of metrics.jsonl
_FORMATS = {"forgotten": "fedotp-forgotten-1"}  # versions of findings
_PLACES = ("data.dataset", "data.root", "data.store", "backbone.name", "compute.device")
"""Settings of paths and devices, which can change: digests check the contents."""


class RunDirectory:
    """The files of one run, complete or not.

    `checkpoint` is the file of the latest checkpoint, `kept` that of the clients' private parameters.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint, self.kept = self._file("state/checkpoint.safetensors"), self._file("state/private.bin")
        self._lock, self._metrics_file = self._file("state/lock"), self._file("metrics.jsonl")
        self._written: RunningDigest | None = None  # metrics.jsonl as this process knows it

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else "not complete" if self.is_begun else "not begun"
        return f"<RunDirectory {self.path}: {state}>"

    @classmethod
    def open(cls, path: "str | Path | RunDirectory") -> "RunDirectory":
        """Open an existing run; do nothing if it is open already."""
        run = path if isinstance(path, RunDirectory) else cls(path)
        if not run._file("config.toml").is_file():
            raise FedotpError(f"{run.path} is not a run: it has no config.toml; list runs with `fedotp runs list`")
        return run

    def create(self, config: "Config", manifest: dict[str, Any], partition: Partition | None) -> None:
        """Write the files of a new run to an empty directory. A federation of real sites has no partition."""
        self.require_new()
        config = config.resolved
        self.save_manifest({**manifest, "config": config.to_dict()})
        if partition is not None:
            partition.save(self._file("partition.json"))
        write_atomically(self._file("config.toml"), config.to_toml())  # last: with it, the directory is a run

    def require_new(self) -> None:
        """Raise an error unless the directory is empty, but for files of a run killed in `create`."""
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        names = {name for name in names if not (name.startswith(".") and name.endswith(".tmp"))}
        never_begun = "manifest.json" in names and names <= {"manifest.json", "partition.json"}
        if (self.path.exists() and not self.path.is_dir()) or (names and not never_begun):
            is_run = self._file("config.toml").is_file() and self._file("manifest.json").is_file()
            how = f"resume it with `{self.resume_command}`, or " if is_run else ""
            raise FedotpError(f"{self.path} already exists; {how}choose another --out")

    def save_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest."""
        write_atomically(self._file("manifest.json"), with_checksum(manifest))

    @cached_property
    def config(self) -> "Config":
        """The resolved configuration; only paths and devices can have been edited since the run started."""
        from fedotp.config import Config, difference

        path = self._file("config.toml")
        self.require_method()
        config = Config.read(path)
        began = Config.from_dict(self.manifest.get("config", {}), str(self._file("manifest.json")))
        edited = {key: values for key, values in difference(began, config).items() if key not in _PLACES}
        for key, (before, now) in edited.items():
            raise FedotpError(f"{path} was edited: {key} was {before} and is now {now}; restore it or start a new run")
        return config

    @property
    def fixed_settings(self) -> dict[str, Any]:
        """All settings that must not be edited: all but paths and devices, by their keys."""
        from fedotp.config import flatten

        return {key: value for key, value in flatten(self.config).items() if key not in _PLACES}

    @property
    def title(self) -> str:
        """The title of its configuration, read without torch."""
        return str(self.manifest["method"]["title"])

    def require_method(self) -> None:
        """Raise an error if the run's method or partition scheme is unknown, with the option that imports it."""
        if not self._file("manifest.json").is_file():
            return
        from fedotp.data.partition import SCHEMES, find_scheme
        from fedotp.methods import find_method

        config = self.manifest.get("config", {})
        name, scheme = config.get("method", {}).get("name"), config.get("partition", {}).get("scheme")
        if isinstance(name, str) and find_method(name) is None:
            raise FedotpError(f"{self.path}: unknown method {name}; {_remedy(self._origin_of_method)}")
        if isinstance(scheme, str) and scheme not in SCHEMES and find_scheme(scheme) is None:
            remedy = _remedy(_texts(self.manifest.get("origins"), "partition"))
            raise FedotpError(f"{self.path}: unknown partition scheme {scheme}; {remedy}")

    def require_same_code(self, method: "Method") -> None:
        """Raise an error if the run's method was edited after the run started."""
        from fedotp.methods import origin_of

        before, now = self._origin_of_method, origin_of(type(method))
        if "sha256" in before and "sha256" in now and before["sha256"] != now["sha256"]:
            raise FedotpError(
                f"{self.path}: its method {method.name} was edited: expected SHA-256 {before['sha256'][:12]} of "
                f"{now['file']}, got {now['sha256'][:12]}; restore the file or start a new run"
            )

    @property
    def _origin_of_method(self) -> dict[str, str]:
        return _texts(self.manifest.get("method"), "origin")

    def require_same(self, what: str, name: str, digest: str, key: str = "digest") -> None:
        """Raise an error unless the run started with this backbone or data set."""
        with self.reading():
            recorded = self.manifest[what]
            if recorded[key] != digest:
                raise FedotpError(
                    f"{self.path}: {what} changed since the run started: expected {recorded['name']} "
                    f"{recorded[key][:12]}, got {name} {digest[:12]}"
                )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report missing or malformed contents of files as corruption."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise FedotpError(f"{self.path} is corrupt: {type(error).__name__} {one_line(error)}") from error

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Versions, digests, data and clients of the run."""
        return read_checked(self._file("manifest.json"))

    @cached_property
    def partition(self) -> Partition:
        """The images of each client."""
        return Partition.load(self._file("partition.json"))

    @property
    def is_deployed(self) -> bool:
        """True if the clients are real sites, whose images and private prompts are elsewhere."""
        return "deployment" in self.manifest

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        path = shlex.join([str(self.path), *import_options()])
        return f"fedotp server --resume {path} --keys DIR" if self.is_deployed else f"fedotp run --resume {path}"

    @property
    def is_begun(self) -> bool:
        """True if the directory contains a run."""
        return self._file("config.toml").is_file()

    @property
    def is_complete(self) -> bool:
        """True if the run has ended."""
        return self._file("summary.json").is_file()

    @property
    def is_running(self) -> bool:
        """True if a process has locked the run."""
        return is_held(self._lock)

    @property
    def summary(self) -> dict[str, Any]:
        """The final results."""
        if not self.is_complete:
            raise FedotpError(f"{self.path} is not complete; resume it with `{self.resume_command}`")
        return {key: value for key, value in self._summary.items() if key != _METRICS}

    def metrics(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of metrics.jsonl, of one `kind` ("round", "evaluation") or all.

        An incomplete last line, left by a killed process, is discarded.
        """
        n_bytes, digest = self._metrics_checksum()  # first: it stays valid if lines are appended meanwhile
        content = self._metrics_bytes()
        lines = content.split(b"\n")[:-1]
        records = [_record(line, self._metrics_file, number) for number, line in enumerate(lines, 1)]
        self._require_intact(content, n_bytes, digest)
        yield from (record for record in records if kind is None or record["kind"] == kind)

    def append_metrics(self, record: dict[str, Any]) -> tuple[int, str]:
        """Append a line and sync it to disk; return the length of the file and its digest."""
        line = metrics_line(record)
        written = self._running_digest()
        try:
            with open(opened_in_place(self._metrics_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(self._metrics_file, error) from error
        written.add(line)
        return written.n_bytes, written.digest

    def cut_metrics(self, n_bytes: int, digest: str) -> None:
        """Discard lines written after the last checkpoint, which recorded `n_bytes` and their `digest`."""
        content = self._metrics_bytes()
        self._require_intact(content, n_bytes, digest)
        if len(content) > n_bytes:
            write_atomically(self._metrics_file, content[:n_bytes])
        self._written = RunningDigest(content[:n_bytes])

    def save_predictions(self, predictions: "Predictions") -> None:
        """Write the last evaluation of each image."""
        content, columns = io.BytesIO(), vars(predictions).items()
        kinds = {name: np.float32 if name == "loss" else np.int32 for name, _ in columns}
        np.savez_compressed(content, **{name: values.astype(kinds[name]) for name, values in columns})
        write_atomically(self._file("predictions.npz"), content.getvalue())

    def predictions(self) -> "Predictions":
        """Read the last evaluation of each image."""
        from fedotp.federation.testing import Predictions

        path = self._file("predictions.npz")
        try:
            content = io.BytesIO(read_regular(path, _MOST_BYTES))
            with zipfile.ZipFile(content) as archive:
                if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
                    raise ValueError("its decompressed size exceeds the limit of 1 GiB")
            content.seek(0)
            with np.load(content, allow_pickle=False) as file:
                client, row, label, predicted = (
                    file[name].astype(np.int64) for name in ("client", "row", "label", "predicted")
                )
                return Predictions(client, row, label, predicted, file["loss"].astype(np.float64))
        except Exception as error:  # NumPy and zip raise many types
            raise FedotpError(f"cannot read {path}: {one_line(error)}") from error

    @property
    def has_predictions(self) -> bool:
        """True if the last evaluation of each image exists: not all sites report it."""
        return self._file("predictions.npz").exists()

    def save_summary(self, summary: dict[str, Any]) -> None:
        """Write the final results, which completes the run."""
        written = self._running_digest()
        metrics = {"bytes": written.n_bytes, "sha256": written.digest}
        write_atomically(self._file("summary.json"), with_checksum({**summary, _METRICS: metrics}))

    def save_finding(self, name: str, finding: dict[str, Any]) -> Path:
        """Write a later finding about the run, such as "audit" or "probe"; return the file."""
        path = self._file(f"{name}.json")
        version = {"format": _FORMATS[name]} if name in _FORMATS else {}
        write_atomically(path, with_checksum({**version, **finding}))
        return path

    def finding(self, name: str) -> dict[str, Any] | None:
        """Read a later finding about the run; None if there is none."""
        path = self._file(f"{name}.json")
        if not path.is_file():
            return None
        content = read_checked(path)
        if name in _FORMATS and content.get("format") != _FORMATS[name]:
            raise FedotpError(f"{path} has an unsupported version: format must be {_FORMATS[name]!r}")
        return content

    def require_as_written(self, name: str) -> None:
        """Raise an error unless a JSON file with a checksum is, to the byte, as fedotp wrote it."""
        path = self._file(name)
        if with_checksum(read_checked(path)).encode() != path.read_bytes():
            raise checksum_error(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run, so that no other process writes to it."""
        busy = f"{self.path} is locked by another process; wait for it to end"
        with held(self._lock, busy):
            yield

    def _file(self, name: str) -> Path:
        return self.path / name

    def _metrics_bytes(self) -> bytes:
        return read_file(self._metrics_file, _MOST_BYTES) if self._metrics_file.exists() else b""

    def _running_digest(self) -> RunningDigest:
        if self._written is None:
            self._written = RunningDigest(self._metrics_bytes())
        return self._written

    @property
    def _summary(self) -> dict[str, Any]:
        """The summary with the checksum of metrics.jsonl."""
        return read_checked(self._file("summary.json"))

    def _metrics_checksum(self) -> tuple[int, str]:
        """Return the last recorded length and digest of metrics.jsonl; 0 and "" if there are none."""
        if self.is_complete:
            recorded = self._summary[_METRICS]
            return recorded["bytes"], recorded["sha256"]
        if self.checkpoint.is_file():
            progress = Progress.load(self.checkpoint)
            return progress.metrics_bytes, progress.metrics_digest
        return 0, ""

    def _require_intact(self, content: bytes, n_bytes: int, digest: str) -> None:
        """Raise an error unless metrics begin with the recorded `n_bytes`; if complete, they must end there, too."""
        if len(content) < n_bytes:
            raise FedotpError(
                f"{self._metrics_file} is truncated: expected at least {n_bytes} bytes, got {len(content)}; "
                "restore it from a backup, or start a new run"
            )
        if self.is_complete:
            n_bytes = len(content)
        if digest and RunningDigest(content[:n_bytes]).digest != digest:
            raise checksum_error(self._metrics_file)


def metrics_line(record: dict[str, Any]) -> bytes:
    """Return a line of metrics.jsonl."""
    return (json.dumps(record, separators=(",", ":")) + "\n").encode()


def _record(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        record = parse_json(line.decode())
        if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
            raise ValueError("must be a JSON object with a kind")
    except ValueError as error:
        raise FedotpError(f"{path}, line {number} is corrupt: {error}") from error
    return record


def _texts(table: object, key: str) -> dict[str, str]:
    """Return the origin of external code under `key` of a table of the manifest; such code is never imported by it."""
    origin = table.get(key) if isinstance(table, dict) else None
    return {name: str(value) for name, value in origin.items()} if isinstance(origin, dict) else {}


def _remedy(origin: dict[str, str]) -> str:
    if "package" in origin:
        return f"install {origin['package']}, which defines it"
    module = origin.get("module", "")
    return f"give --import {shlex.quote(module if '.' in module else origin.get('file', 'FILE.py'))}, which defines it"


def free_name(config: "Config", parent: Path) -> Path:
    """Return a new directory in `parent`, named after data, method, partition and seed."""
    data = Path(config.data.dataset).name.replace(":", "-")
    stem = f"{data}-{config.method.name}-{config.partition.scheme}-seed{config.seed}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 10_000))
    return next(path for name in names if not (path := parent / name).exists())


def find_runs(parent: Path) -> list[RunDirectory]:
    """Find all runs in `parent`, including itself, and below, by path."""
    files = sorted(parent.rglob("config.toml"))
    return [RunDirectory(file.parent) for file in files if file.with_name("manifest.json").is_file()]
