"""A certificate: what was forgotten, and by which digests anybody can tell that the run beside it is the replay.

Digests are equal for two runs whose numbers are equal to the last bit; traces are what there is of a client in a run.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedotp._files import write_atomically
from fedotp.errors import FedotpError
from fedotp.federation import load_rows, state_digest
from fedotp.runs._directory import PLACES, RunDirectory, reading
from fedotp.runs._seal import read_sealed, sealed

_TIMES = "seconds"
_BY_NUMBER = ("sampled", "answered", "clients")  # in the lines of metrics.jsonl
_OF_ALL = (("global", "global"), ("novel", "global"))  # views of no client: the number 0 in them is not one's
NAME = "forgotten.json"
_FORMAT = "fedotp-forgotten-1"
_VERSIONS = ("fedotp", "commit", "python", "torch", "numpy", "platform", "device", "threads")


def digests_of(run: RunDirectory) -> dict[str, str]:
    """SHA-256 of each part of a complete run, without times and places."""
    with reading(run):
        found = {
            "configuration": _digest(_settings(run)),
            "backbone": run.manifest["backbone"]["digest"],
            "data": run.manifest["data"]["content"],
            "partition": run.manifest["partition"],
            "state": state_digest(run.checkpoint, run.kept),
            "metrics": _digest([_timeless(record) for record in run.metrics()]),
            "summary": _digest(_timeless(run.summary)),
        }
        if run.has_predictions:
            found["predictions"] = _digest({name: column.tolist() for name, column in vars(run.predictions()).items()})
        return found


def _settings(run: RunDirectory) -> dict[str, Any]:
    """All settings but those that say where things are."""
    tables = run.config.to_dict()
    sections = {key: table if isinstance(table, dict) else {"": table} for key, table in tables.items()}
    flat = {f"{section}.{key}": value for section, table in sections.items() for key, value in table.items()}
    return {key: value for key, value in flat.items() if key not in PLACES}


def _timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != _TIMES}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def traces(run: RunDirectory, sites: Sequence[str]) -> list[str]:
    """Where anything of `sites` is in a complete run, in words; nothing if they never had a part in it."""
    with reading(run):
        return list(_found(run, sites))


def rounds_of_site(run: RunDirectory, site: str) -> list[int]:
    """The rounds in which a client's update counted, in ascending order."""
    with reading(run):
        number = run.manifest["clients"].index(site)
        return [record["round"] for record in run.metrics("round") if number in record["answered"]]


def _found(run: RunDirectory, sites: Sequence[str]) -> Iterator[str]:
    numbers = {run.manifest["clients"].index(site) for site in sites if site in run.manifest["clients"]}
    present = [site for site in sites if site not in run.config.federation.without]
    if present:
        yield f"config.toml: {', '.join(present)} may take part"
    for line, record in enumerate(run.metrics(), 1):
        if (record.get("view"), record.get("model")) in _OF_ALL:
            continue
        told = {*record.get("faults", {}), *record.get("shortened", {})}
        if told & {*sites} or any(numbers.intersection(record.get(key, ())) for key in _BY_NUMBER):
            yield f"metrics.jsonl, line {line}: {record['kind']} of round {record['round']}"
    clients, _ = load_rows(run.checkpoint, run.kept)
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
    """The clients that a summary speaks of."""
    for told in (summary, summary.get("joined", {})):
        yield from (client["name"] for client in told.get("clients", ()))
    yield from summary.get("privacy", {}).get("clients", ())
    for key in ("malicious", "faults", "refused", "shortened", "weights", "capped"):
        yield from summary.get(key, ())


def write_certificate(before: RunDirectory, after: RunDirectory, sites: Sequence[str]) -> dict[str, Any]:
    """Write down that the complete run `after` is `before` without `sites`; return what was written."""
    if found := traces(after, sites):
        raise FedotpError(f"{after.path} is no run without {', '.join(sites)}: {found[0]}; begin again elsewhere")
    digests = {"before": digests_of(before), "after": digests_of(after)}
    if digests["before"]["state"] == digests["after"]["state"]:
        raise FedotpError(
            f"{after.path} has the same prompts as {before.path}: {', '.join(sites)} had no part in them, and there is "
            "nothing to certify"
        )
    versions = {key: (before.manifest.get(key), after.manifest.get(key)) for key in _VERSIONS}
    content = {
        "format": _FORMAT,
        "forgotten": list(sites),
        "without": list(after.config.federation.without),
        "rounds_taken_part_in": {site: rounds_of_site(before, site) for site in sites},
        "replayed": {"from_round": 0, "rounds": after.summary["rounds"], "real_sites": after.is_deployed},
        "seed": after.config.seed,
        "partition_seed": after.config.partition.seed,
        "before": {"run": before.path.resolve().name, "digests": digests["before"]},
        "after": {"run": after.path.resolve().name, "digests": digests["after"]},
        "made_with": {key: now for key, (_, now) in versions.items()},
        "made_with_before": {key: was for key, (was, now) in versions.items() if was != now},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    write_atomically(after.path / NAME, sealed(content))
    return content


def read_certificate(path: str | Path) -> dict[str, Any]:
    """A certificate, given as its file or as the run's directory; one that was edited is refused."""
    file = Path(path) / NAME if Path(path).is_dir() else Path(path)
    content = read_sealed(file)
    if content.get("format") != _FORMAT:
        raise FedotpError(f"{file} is not a certificate: it should say format {_FORMAT!r}")
    return content


def check_certificate(path: str | Path, against: str | Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """What a certificate says, and what does not hold of it, in words: nothing, if all does.

    It must name clients that were forgotten, and a state before that is not the one after. The run beside it must have
    the digests it names, and nothing of these clients. `against` is a run made without them and without fedotp's help:
    it must have the same digests.
    """
    certificate = read_certificate(path)
    run = RunDirectory.open(path if Path(path).is_dir() else Path(path).parent)
    with reading(run):
        named: dict[str, str] = certificate["after"]["digests"]
        sites: list[str] = certificate["forgotten"]
        if not (isinstance(sites, list) and sites and all(isinstance(site, str) for site in sites)):
            raise FedotpError(f"{path} certifies nothing: its list of forgotten clients is empty or no list of names")
        wrong = [f"{run.path}: its {part} is not the one certified" for part in _differing(named, digests_of(run))]
        if certificate["before"]["digests"]["state"] == named["state"]:
            wrong.append(f"{run.path}: the state before and the state now are the same: nothing was removed")
        wrong += [f"{run.path} has something of {', '.join(sites)}: {where}" for where in traces(run, sites)]
    if against is not None:
        other = digests_of(RunDirectory.open(against))
        wrong += [f"{against}: its {part} is another" for part in _differing(named, other)]
    return certificate, wrong


def _differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return [part for part in {**one, **other} if one.get(part) != other.get(part)]
