"""Run a federation of real sites into a run directory, or resume one.

The server has its own SuperLink and the sites' keys (`run_server`), or is a ServerApp on an existing SuperLink (`app`).
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import flwr
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedotp._files import cache_folder, require_writable
from fedotp._system import Interrupt, listen
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress
from fedotp.flower._agreement import PROTOCOL, Agreement
from fedotp.flower._defaults import quiet_flower
from fedotp.flower._events import record, recording_life
from fedotp.flower._log import LogObserver, start_logging
from fedotp.flower.keys import KeyIdentity, ServerKeys
from fedotp.flower.link import Transport, superlink
from fedotp.flower.records import security_log
from fedotp.flower.secure import Terms
from fedotp.flower.server._deployed import Deployed
from fedotp.flower.server._registration import Fault, Member, Registration, Registry
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._supported import require_servable, require_summable
from fedotp.flower.status import Status, StatusAddress, serve_status
from fedotp.privacy import Releases
from fedotp.runs.directory import RunDirectory, free_name
from fedotp.runs.one import Loop, load_backbone, made_with, make_task, template_of
from fedotp.runs.watch import Observer, Observers

log = logging.getLogger("fedotp.server")

_RELEASES = "state/releases.jsonl"  # log of the private averages that were published


def serve(
    grid: Grid,
    config: Config,
    settings: ServerSettings,
    out: Path,
    *,
    classes: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    nodes: dict[int, str] | None = None,
    public_keys: Mapping[str, str] | None = None,
    observer: Observer | None = None,
    interrupt: Interrupt | None = None,
    on_agreed: Callable[[Agreement], object] = lambda _: None,
) -> RunDirectory:
    """Run the federation that `config` describes with the sites that connect, in the new directory `out`.

    Args:
        grid: Flower's connection to the sites.
        classes: names of the classes, in order; if empty, those that all sites have.
        names: names of the sites, in the order of their numbers; `nodes` maps Flower's nodes to names. Without
            them, the names that sites send are trusted.
        public_keys: the sites' keys by name, in OpenSSH format, to check their signatures.
        interrupt: ends the wait for the first sites.
        on_agreed: receives the agreement, first perhaps without classes.
    """
    config = config.resolved  # sites receive all values, independent of the defaults of their versions
    directory = RunDirectory(out)
    directory.require_new()
    require_servable(config, settings, names)
    registry = Registry([Member(name) for name in names], nodes, without=config.federation.without)
    agreement = agreement_of(config, uuid.uuid4().hex, classes, settings)
    on_agreed(agreement)
    registration = Registration(
        Transport(grid, registry.name_of, nodes), registry, agreement, new_counts=settings.allow_new_counts
    )
    registration.gather(settings, interrupt)
    on_agreed(registration.agreement)
    federation = _federation(config, directory, registration, settings, public_keys)
    directory.create(config, _manifest(config, registration, settings), None)
    with directory.locked():
        Loop(config, directory, federation, Progress(), Observers(observer or LogObserver(log), federation)).go()
    return directory


def resume_serving(
    grid: Grid,
    path: Path,
    settings: ServerSettings,
    *,
    names: tuple[str, ...] = (),
    nodes: dict[int, str] | None = None,
    public_keys: Mapping[str, str] | None = None,
    observer: Observer | None = None,
    interrupt: Interrupt | None = None,
    on_agreed: Callable[[Agreement], object] = lambda _: None,
) -> RunDirectory:
    """Resume the run of real sites in `path` from its last checkpoint."""
    directory = RunDirectory.open(path)
    if not directory.is_deployed:
        raise FedotpError(f"{path} was simulated; resume it with `fedotp run --resume {path}`")
    with directory.locked():
        if directory.is_complete:
            return directory
        config, manifest = directory.config, directory.manifest
        with directory.reading():
            _require_complete(manifest)
            settings = _as_before(settings, manifest["deployment"]["settings"])
        require_summable(config, settings, len(names))
        directory.require_same_code(config.method)
        registry = _known_sites(manifest, names, nodes, without=config.federation.without)
        agreement = agreement_of(config, manifest["deployment"]["run"], tuple(manifest["data"]["classes"]), settings)
        on_agreed(agreement)
        before = manifest["backbone"]
        if before["digest"] != agreement.backbone:
            raise FedotpError(
                f"{path}: expected the run's backbone {before['name']} {before['digest'][:12]}, got "
                f"{agreement.backbone[:12]}; install the original file"
            )
        registration = Registration(
            Transport(grid, registry.name_of, nodes),
            registry,
            agreement,
            begun=True,
            new_counts=settings.allow_new_counts,
        )
        with directory.reading():
            progress, n_averages = _recall(directory, registry)
        registration.gather(settings, interrupt)
        n_sites = manifest["deployment"]["sites"]
        federation = _federation(config, directory, registration, settings, public_keys, n_sites, n_averages)
        if directory.checkpoint.is_file():
            Checkpoint.read(directory.checkpoint).restore(federation)
        log.info("resuming after round %d", federation.round)
        Loop(config, directory, federation, progress, Observers(observer or LogObserver(log), federation)).go()
    return directory


def _federation(
    config: Config,
    directory: RunDirectory,
    registration: Registration,
    settings: ServerSettings,
    public_keys: Mapping[str, str] | None,
    n_sites: int | None = None,
    n_averages: int = 0,
) -> Deployed:
    """Make the federation of the registered sites; a resumed run began with `n_sites` and has released `n_averages`."""
    agreement = registration.agreement
    facts = {"method": config.method.name, "rounds": config.federation.rounds}
    record("configuration", run=agreement.run, digest=agreement.digest, **facts)
    clip = load_backbone(config.backbone.source, config.compute.device)
    return Deployed(
        config,
        make_task(config, clip, agreement.classes, agreement.template),
        registration,
        settings,
        n_sites=n_sites,
        releases=Releases(directory.path / _RELEASES, least=n_averages),
        identity=KeyIdentity(None, public_keys),
        on_save=partial(_write_names, directory, registration.registry),
    )


def _known_sites(
    manifest: dict[str, Any], names: tuple[str, ...], nodes: dict[int, str] | None, without: tuple[str, ...]
) -> Registry:
    """List the sites of a resumed run in the order of their numbers, then those with new keys."""
    known: list[str] = manifest["clients"]
    agreed: dict[str, int] = manifest["deployment"]["train_images"]
    everyone = [*known, *(name for name in names if name not in known)]
    return Registry([Member(name, agreed=agreed.get(name, 0)) for name in everyone], nodes, without=without)


def _require_complete(manifest: dict[str, Any]) -> None:
    """Raise ValueError if a field for runs of real sites is missing or invalid."""
    deployment, clients, classes = manifest["deployment"], manifest["clients"], manifest["data"]["classes"]
    images, backbone = deployment["train_images"], manifest["backbone"]
    fits = {
        "clients": _are_names(clients) and len(manifest["domains"]) == len(clients),
        "classes": _are_names(classes) and len(classes) > 1,
        "sites": type(deployment["sites"]) is int and 0 < deployment["sites"] <= len(clients),
        "train_images": all(type(n) is int and n >= 0 for n in images.values()),
        "run": isinstance(deployment["run"], str),
        "backbone": isinstance(backbone["digest"], str) and isinstance(backbone["name"], str),
    }
    if wrong := [name for name, right in fits.items() if not right]:
        raise ValueError(f"manifest.json: {wrong[0]} is missing or invalid")


def _are_names(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _write_names(directory: RunDirectory, registry: Registry) -> None:
    """Save names and image counts of sites that joined later: metrics refer to sites by number."""
    manifest = directory.manifest
    new = registry.members[len(manifest["clients"]) :]
    images: dict[str, int] = manifest["deployment"]["train_images"]
    counts = {m.name: m.agreed for m in registry.members if m.agreed != images.get(m.name, 0)}
    if new or counts:
        manifest["clients"] += [member.name for member in new]
        manifest["domains"] += [member.domain for member in new]
        images.update(counts)
        manifest["data"]["train_images"] = sum(images.values())
        directory.save_manifest(manifest)


def _as_before(settings: ServerSettings, before: dict[str, Any]) -> ServerSettings:
    """Return `settings` with those of secure sums from the start of the run, which cannot change."""
    for name in (names := ("secure", "secure_threshold", "secure_range")):
        value = getattr(settings, name)
        if value not in (getattr(ServerSettings, name), before[name]):
            option = name.replace("_", "-")
            raise FedotpError(f"{option} = {value!r}: a resumed run cannot change {before[name]!r}; remove {option}")
    return replace(settings, **{name: before[name] for name in names})


def _recall(directory: RunDirectory, registry: Registry) -> tuple[Progress, int]:
    """Load the progress of the run and its number of averages; restore the sites' accepted rounds and faults."""
    progress = Progress.load(directory.checkpoint) if directory.checkpoint.is_file() else Progress()
    directory.cut_metrics(progress.metrics_bytes, progress.metrics_digest)
    averages = 0
    for line in directory.metrics("round"):
        averages += len(line["answered"]) >= directory.config.federation.min_clients
        for number in line["answered"]:
            registry.members[number].accepted = line["round"]
        for name, why in line.get("faults", {}).items():
            registry.members[registry.names.index(name)].fail(Fault.read(why))
        for name in line.get("shortened", {}):
            registry.members[registry.names.index(name)].shortened += 1
    return progress, averages


def agreement_of(config: Config, run: str, classes: tuple[str, ...], settings: ServerSettings) -> Agreement:
    clip = load_backbone(config.backbone.source, config.compute.device)
    config = replace(config, federation=replace(config.federation, without=()))  # hide removed sites from the others
    terms = Terms(float(settings.secure_threshold), settings.secure_range) if settings.secure else None
    return Agreement(run, config, classes, template_of(config, config.data.dataset, clip), clip.digest, terms)


def _manifest(config: Config, registration: Registration, settings: ServerSettings) -> dict[str, Any]:
    registry, agreement = registration.registry, registration.agreement
    return {
        **made_with(config, load_backbone(config.backbone.source, config.compute.device)),
        "flower": flwr.__version__,
        "data": {
            "name": "the sites' own images",
            "digest": "",
            "content": "",
            "split": "each site's own",
            "classes": list(agreement.classes),
            "train_images": sum(member.train_images for member in registry.members),
            "test_images": sum(member.test_images for member in registry.members),
            "skipped": [],
        },
        "partition": "",
        "clients": list(registry.names),
        "domains": [member.domain for member in registry.members],
        "template": agreement.template,
        "deployment": {
            "run": agreement.run,
            "protocol": PROTOCOL,
            "sites": len(registry.members),
            "keys": registry.nodes is not None,
            "train_images": {m.name: m.agreed for m in registry.members},
            "settings": asdict(settings),
        },
    }


def require_enough(settings: ServerSettings, n_sites: int, keys: Path) -> None:
    """Raise FedotpError if the server would wait for more sites than have keys."""
    if settings.min_sites > n_sites:
        raise FedotpError(
            f"--min-sites {settings.min_sites}: only {n_sites} sites have keys in {keys}; "
            "decrease it, or sign the requests of more sites with `fedotp keys sign`"
        )


app = ServerApp()


def run_server(
    settings: ServerSettings,
    host: str,
    port: int,
    keys: Path | None,
    *,
    source: str,
    changes: Sequence[str],
    classes: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    log_to: Path | None = None,
    log_format: str = "text",
    status: StatusAddress | None = None,
) -> RunDirectory:
    """Listen at `host`:`port`, accept the sites in `keys` (without keys: any), and run, or `resume`.

    The security log is `log_to`, by default beside the run's directory. Return that directory, which may not exist if
    the run was stopped before its first round.
    """
    quiet_flower(cache_folder() / "flower")
    start_logging(log_format)
    held = None if keys is None else ServerKeys.read(keys)
    names = tuple(held.sites) if held else ()
    if keys is not None:
        require_enough(settings, len(names), keys)
    if resume is not None:
        path = RunDirectory.open(resume).path
    else:
        config = load_config(source).override(list(changes))
        require_servable(config, settings, names)
        path = out or free_name(config, Path("runs"))
        RunDirectory(path).require_new()
    require_writable(path)
    if held is None and host not in ("localhost", "::1") and not host.startswith("127."):
        log.warning("--insecure: any client that reaches %s:%d can participate and read messages", host, port)
    try:
        with (
            security_log(log_to or path.with_name(f"{path.name}.security.jsonl")),
            recording_life("server", address=f"{host}:{port}", sites=list(names)),
            listen(lambda: log.info("stopping")) as interrupt,
            superlink(host, port, held) as link,
        ):
            log.info("listening at %s:%d for %s", host, port, ", ".join(names) or "any site")
            with serve_status(status, Status("server", names, link.seen)), link.run() as grid:
                known: dict[str, Any] = {"names": names, "nodes": link.nodes, "interrupt": interrupt}
                known |= {"public_keys": link.public_keys, "on_agreed": lambda agreed: link.describe(agreed.text)}
                if resume is not None:
                    return resume_serving(grid, resume, settings, **known)
                return serve(grid, config, settings, path, classes=classes, **known)
    except KeyboardInterrupt:
        return RunDirectory(path)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation of the run configuration with the connected sites."""
    start_logging()
    given = context.run_config
    try:
        settings = ServerSettings.of(given)
        if resumed := str(given.get("resume", "")):
            resume_serving(grid, Path(resumed).expanduser(), settings)
            return
        config = load_config(str(given.get("config", "demo"))).override(str(given.get("set", "")).split())
        out = Path(str(given["out"])).expanduser() if given.get("out") else free_name(config, Path("runs"))
        classes = tuple(name.strip() for name in str(given.get("classes", "")).split(",") if name.strip())
        serve(grid, config, settings, out, classes=classes)
    except FedotpError as error:
        raise SystemExit(f"error: {error}") from error
