"""Removal of clients by replaying the federation without them.

Rounds are replayed from the first with the same random draws, which depend on seed, purpose, round and client: the
result is bit-equal to a run with `federation.without`.

A certificate names the removed clients and the digests of both runs, so that anyone can check that the run beside it is
the replay. Digests of two runs are equal if all their numbers are bit-equal.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedotp._files import json_digest
from fedotp.config import Config, difference
from fedotp.errors import FedotpError, listed, nearest
from fedotp.federation import Checkpoint
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import directory_name
from fedotp.runs.one import prepare, resume, run
from fedotp.runs.watch import Observer


def forget(
    path: str | Path,
    sites: Sequence[str],
    out: str | Path | None = None,
    *,
    observer: Observer | None = None,
    progress: bool | None = None,
) -> tuple[RunDirectory, dict[str, Any] | None]:
    """Repeat the run in `path` without `sites`, in the directory `out` (default: beside it).

    Returns the new run and its certificate, which is written to `forgotten.json` in it. If interrupted, call it again.
    A run of real sites is only prepared here, since they have the images: replay it with `fedotp server --resume`, then
    call this again for the certificate; until then, it is None.

    The run must be complete, and its data, backbone and method must be unchanged.

    Examples:
        >>> from fedotp.runs.leaving import forget                                   # doctest: +SKIP
        >>> left, certificate = forget("runs/demo", ["client-3"])                    # doctest: +SKIP
    """
    before = RunDirectory.open(path)
    config = _without(before, sites)
    beside = before.path.resolve().with_name(
        directory_name([f"{before.path.resolve().name}-without-{sites[0]}", *sites[1:]])
    )
    after = RunDirectory(beside if out is None else out)
    if after.is_begun:
        if differing := difference(after.config, config):
            raise FedotpError(f"{after.path} is another run: {next(iter(differing))} differs; choose another --out")
    else:
        after.require_new()
        with before.reading():  # method, backbone and images must be unchanged
            before.require_same_code(before.config.method)
            if not before.is_deployed:
                prepare(before.config, observer, before)
    if before.is_deployed:
        if not after.is_begun:
            _prepare_deployed(before, after, config, sites)
    elif after.is_begun:
        resume(after.path, observer=observer, progress=progress)
    else:
        run(config, after.path, observer=observer, progress=progress, partition=before.partition)
    if not after.is_complete:
        return after, None
    after = RunDirectory.open(after.path)
    return after, after.finding(_NAME) or write_certificate(before, after, sites)


def _without(before: RunDirectory, sites: Sequence[str]) -> Config:
    """Return the configuration of a run without `sites`."""
    config, names = before.config, before.manifest["clients"]
    if not before.is_complete:
        raise FedotpError(f"{before.path} is not complete; resume it with `{before.resume_command}`, then forget")
    away = config.federation.without
    there = [name for name in names if name not in away]
    for site in sites:
        if site not in there:
            gone = "is already excluded from this run" if site in away else "is not in this run"
            meant = f"; did you mean {near}?" if site not in away and (near := nearest(site, there)) else ""
            raise FedotpError(f"--client {site}: {gone}{meant or f'; its clients are {listed(there)}'}")
    if {*sites} == {*there}:
        raise FedotpError(f"--client {', '.join(sites)}: these are all {len(there)} clients; at least one must remain")
    return replace(config, federation=replace(config.federation, without=(*away, *dict.fromkeys(sites))))


def _prepare_deployed(before: RunDirectory, after: RunDirectory, config: Config, sites: Sequence[str]) -> None:
    """Write a directory for `fedotp server --resume`: the same sites, numbers and classes, and no state.

    The run has a new name, so that the sites start with new private prompts.
    """
    manifest = {key: value for key, value in before.manifest.items() if key != "config"}
    deployment = manifest["deployment"]
    images = {name: n for name, n in deployment["train_images"].items() if name not in sites}
    manifest["deployment"] = {**deployment, "run": uuid.uuid4().hex, "train_images": images}
    manifest["data"] = {**manifest["data"], "train_images": sum(images.values())}
    manifest["started"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    after.create(config, manifest, None)


_TIMES = "seconds"
_BY_NUMBER = ("sampled", "answered", "clients")  # in the lines of metrics.jsonl
_OF_ALL = (("global", "global"), ("novel", "global"))  # views without clients: the number 0 in them is no client
_NAME = "forgotten"  # of the certificate among the findings about a run
_VERSIONS = ("fedotp", "commit", "python", "torch", "numpy", "platform", "device", "threads")


def digests_of(run: RunDirectory) -> dict[str, str]:
    """Return the SHA-256 of each part of a complete run, without times and paths."""
    with run.reading():
        found = {
            "configuration": json_digest(run.fixed_settings),
            "backbone": run.manifest["backbone"]["digest"],
            "data": run.manifest["data"]["content"],
            "partition": run.manifest["partition"],
            "state": Checkpoint.read(run.checkpoint).digest(run.kept),
            "metrics": json_digest([_timeless(record) for record in run.metrics()]),
            "summary": json_digest(_timeless(run.summary)),
        }
        if run.has_predictions:
            found["predictions"] = json_digest(
                {name: column.tolist() for name, column in vars(run.predictions()).items()}
            )
        return found


def _timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != _TIMES}


def traces(run: RunDirectory, sites: Sequence[str]) -> list[str]:
    """List the places in a complete run that contain data of `sites`; empty if they never participated."""
    with run.reading():
        return list(_found(run, sites))


def _found(run: RunDirectory, sites: Sequence[str]) -> Iterator[str]:
    numbers = {run.manifest["clients"].index(site) for site in sites if site in run.manifest["clients"]}
    present = [site for site in sites if site not in run.config.federation.without]
    if present:
        yield f"config.toml: {', '.join(present)} can participate"
    for line, record in enumerate(run.metrics(), 1):
        if (record.get("view"), record.get("model")) in _OF_ALL:
            continue
        named = {*record.get("faults", {}), *record.get("shortened", {})}
        if named & {*sites} or any(numbers.intersection(record.get(key, ())) for key in _BY_NUMBER):
            yield f"metrics.jsonl, line {line}: {record['kind']} of round {record['round']}"
    clients, _ = Checkpoint.read(run.checkpoint).rows(run.kept)
    if numbers.intersection(clients.tolist()):
        yield "state: a private prompt"
    if run.has_predictions and numbers.intersection(run.predictions().client.tolist()):
        yield "predictions.npz"
    if {*_named(run.summary)} & {*sites}:
        yield "summary.json"
    for site in sites:
        if (run.path / "joined" / site).exists():
            yield f"joined/{site}"


def _named(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the clients named in a summary."""
    for part in (summary, summary.get("joined", {})):
        yield from (client["name"] for client in part.get("clients", ()))
    yield from summary.get("privacy", {}).get("clients", ())
    for key in ("malicious", "faults", "refused", "shortened", "weights", "capped"):
        yield from summary.get(key, ())


def write_certificate(before: RunDirectory, after: RunDirectory, sites: Sequence[str]) -> dict[str, Any]:
    """Write a certificate that the complete run `after` is `before` without `sites`; return it."""
    if found := traces(after, sites):
        raise FedotpError(f"{after.path} still contains {', '.join(sites)}: {found[0]}; choose another --out")
    digests = {"before": digests_of(before), "after": digests_of(after)}
    if digests["before"]["state"] == digests["after"]["state"]:
        raise FedotpError(
            f"{after.path} has the same prompts as {before.path}: {', '.join(sites)} did not contribute, so there is "
            "nothing to certify"
        )
    with before.reading():
        number = {site: before.manifest["clients"].index(site) for site in sites}
        answered = [(record["round"], record["answered"]) for record in before.metrics("round")]
    versions = {key: (before.manifest.get(key), after.manifest.get(key)) for key in _VERSIONS}
    content = {
        "forgotten": list(sites),
        "without": list(after.config.federation.without),
        "rounds_taken_part_in": {site: [n for n, who in answered if number[site] in who] for site in sites},
        "replayed": {"from_round": 0, "rounds": after.summary["rounds"], "real_sites": after.is_deployed},
        "seed": after.config.seed,
        "partition_seed": after.config.partition.seed,
        "before": {"run": before.path.resolve().name, "digests": digests["before"]},
        "after": {"run": after.path.resolve().name, "digests": digests["after"]},
        "made_with": {key: now for key, (_, now) in versions.items()},
        "made_with_before": {key: was for key, (was, now) in versions.items() if was != now},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    after.save_finding(_NAME, content)
    return read_certificate(after.path)


def read_certificate(path: str | Path) -> dict[str, Any]:
    """Read a certificate from its file or the run's directory, and check its digest."""
    run = _run_of(path)
    if (content := run.finding(_NAME)) is None:
        raise FedotpError(f"{run.path} has no certificate: {_NAME}.json is missing")
    return content


def _run_of(path: str | Path) -> RunDirectory:
    """Return the run whose directory or certificate is at `path`."""
    if Path(path).is_dir():
        return RunDirectory(path)
    if Path(path).name != f"{_NAME}.json":
        raise FedotpError(f"{path} is not a certificate: give the directory of a run or its {_NAME}.json")
    return RunDirectory(Path(path).parent)


def check_certificate(path: str | Path, against: str | Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """Read and check a certificate; return it with a list of problems, which is empty if it is valid.

    It must name forgotten clients, and the states before and after must differ. The run beside it must have the
    certified digests and contain nothing of these clients. `against` is an independent run without them, which must
    have the same digests.
    """
    certificate = read_certificate(path)
    run = RunDirectory.open(_run_of(path).path)
    with run.reading():
        named: dict[str, str] = certificate["after"]["digests"]
        sites: list[str] = certificate["forgotten"]
        if not (isinstance(sites, list) and sites and all(isinstance(site, str) for site in sites)):
            raise FedotpError(f"{path} is invalid: its list of forgotten clients must contain names")
        wrong = [f"{run.path}: mismatch with the certificate: {part}" for part in _differing(named, digests_of(run))]
        if certificate["before"]["digests"]["state"] == named["state"]:
            wrong.append(f"{run.path}: the states before and after are the same: nothing was removed")
        wrong += [f"{run.path} contains traces of {', '.join(sites)}: {where}" for where in traces(run, sites)]
    if against is not None:
        other = digests_of(RunDirectory.open(against))
        wrong += [f"{against}: mismatch with the certificate: {part}" for part in _differing(named, other)]
    return certificate, wrong


def _differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return [part for part in {**one, **other} if one.get(part) != other.get(part)]
