"""A certificate: what was forgotten, and by which digests anybody can tell that the run beside it is the replay."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedotp._files import write_atomically
from fedotp.errors import FedotpError
from fedotp.runs._directory import RunDirectory, reading
from fedotp.runs._seal import read_sealed, sealed
from fedotp.runs.leaving._digests import digests_of
from fedotp.runs.leaving._traces import rounds_of_site, traces

NAME = "forgotten.json"
_FORMAT = "fedotp-forgotten-1"
_VERSIONS = ("fedotp", "commit", "python", "torch", "numpy", "platform", "device", "threads")


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
