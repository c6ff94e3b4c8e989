"""Forget a client: the federation as it would have been without it, by doing all of it again.

Nothing learned is corrected or subtracted. Rounds are replayed from the first one with the draws they had, which are
named by seed, purpose, round and client, so that the result is, bit for bit, that of a run with `federation.without`.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedotp.config import Config, difference
from fedotp.errors import FedotpError, listed, nearest
from fedotp.runs._directory import RunDirectory, reading
from fedotp.runs._observer import Observer
from fedotp.runs._origin import require_same_code
from fedotp.runs._prepare import prepare
from fedotp.runs._run import resume, run
from fedotp.runs._trials import directory_name
from fedotp.runs.leaving._certificate import NAME, read_certificate, write_certificate


def forget(
    path: str | Path,
    sites: Sequence[str],
    out: str | Path | None = None,
    *,
    observer: Observer | None = None,
    progress: bool | None = None,
) -> tuple[RunDirectory, dict[str, Any] | None]:
    """Make the run in `path` again without `sites`, in the directory `out` (beside it, if not given).

    Returns the new run and its certificate, which is written to `forgotten.json` in it. What was interrupted goes on
    when asked for again. A run of real sites is only prepared here, as they have the images: `fedotp server --resume`
    replays it, and asked for again when that is complete, the certificate is made; until then there is None.

    Refused: a run that is not complete, or whose data, backbone or method are not what they were.

    Examples:
        >>> from fedotp.runs import forget                                           # doctest: +SKIP
        >>> left, certificate = forget("runs/demo", ["client-3"])                    # doctest: +SKIP
    """
    before = RunDirectory.open(path)
    config = _without(before, sites)
    beside = before.path.resolve().with_name(
        directory_name([f"{before.path.resolve().name}-without-{sites[0]}", *sites[1:]])
    )
    after = RunDirectory(beside if out is None else out)
    if after.is_begun:
        _require_this(after, config)
    else:
        after.require_new()
        _require_replayable(before, observer)
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
    if (after.path / NAME).is_file():
        return after, read_certificate(after.path)
    return after, write_certificate(before, after, sites)


def _without(before: RunDirectory, sites: Sequence[str]) -> Config:
    """The configuration of a run in which `sites` have no part."""
    config, names = before.config, before.manifest["clients"]
    if not before.is_complete:
        raise FedotpError(f"{before.path} is not complete; go on with `{before.resume_command}`, then forget")
    away = config.federation.without
    there = [name for name in names if name not in away]
    for site in sites:
        if site not in there:
            gone = "has no part in this run already" if site in away else "is not in this run"
            meant = f"; did you mean {near}?" if site not in away and (near := nearest(site, there)) else ""
            raise FedotpError(f"--site {site}: {gone}{meant or f'; there are {listed(there)}'}")
    if {*sites} == {*there}:
        raise FedotpError(f"--site {', '.join(sites)}: these are all {len(there)} clients; somebody must be left")
    return replace(config, federation=replace(config.federation, without=(*away, *dict.fromkeys(sites))))


def _require_this(after: RunDirectory, config: Config) -> None:
    """Go on with a replay that was begun, and with nothing else."""
    if differing := difference(after.config, config):
        raise FedotpError(f"{after.path} holds another run: {next(iter(differing))} differs; choose another --out")


def _require_replayable(before: RunDirectory, observer: Observer | None) -> None:
    """Refuse a run whose method, backbone or images are not what they were."""
    with reading(before):
        require_same_code(before.manifest, before.config.method, before.path)
        if not before.is_deployed:
            prepare(before.config, observer, before)


def _prepare_deployed(before: RunDirectory, after: RunDirectory, config: Config, sites: Sequence[str]) -> None:
    """A directory that `fedotp server --resume` begins in: the same sites, numbers and classes, and no state.

    The run has a new name, under which no site keeps anything yet: their private prompts begin anew, too.
    """
    manifest = {key: value for key, value in before.manifest.items() if key != "config"}
    deployment = manifest["deployment"]
    images = {name: n for name, n in deployment["train_images"].items() if name not in sites}
    manifest["deployment"] = {**deployment, "run": uuid.uuid4().hex, "train_images": images}
    manifest["data"] = {**manifest["data"], "train_images": sum(images.values())}
    manifest["started"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    after.create(config, manifest, None)
