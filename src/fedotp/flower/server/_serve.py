"""Run a federation of real sites into a run directory, or resume one.

The server has its own SuperLink and the sites' keys (`run_server`), or is a ServerApp on an existing SuperLink (`app`).
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import flwr
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedotp._files import cache_folder, require_writable
from fedotp._system import Interrupt, listen
from fedotp._web import is_loopback
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress
from fedotp.flower._agreement import PROTOCOL, Agreement
from fedotp.flower._defaults import quiet_flower
from fedotp.flower._events import record, recording_life
from fedotp.flower._log import start_logging
from fedotp.flower.keys import KeyIdentity, ServerKeys
from fedotp.flower.link import superlink
from fedotp.flower.records import security_log
from fedotp.flower.secure import Terms
from fedotp.flower.server._deployed import Deployed
from fedotp.flower.server._registration import Member, Registration, Registry
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._supported import require_servable, require_summable
from fedotp.flower.status import Status, StatusAddress, serve_status
from fedotp.runs.directory import RunDirectory, free_name
from fedotp.runs.one import Loop, load_backbone, made_with, make_task, template_of

log = logging.getLogger("fedotp.server")


def serve(
    grid: Grid,
    config: Config,
    settings: ServerSettings,
    out: Path,
    *,
    classes: tuple[str, ...] = (),
    nodes: dict[int, str] | None = None,
    public_keys: Mapping[str, str] | None = None,
    interrupt: Interrupt | None = None,
    on_agreed: Callable[[Agreement], object] = lambda _: None,
) -> RunDirectory:
    """Run the federation that `config` describes with the sites that connect, in the new directory `out`.

    Args:
        grid: Flower's connection to the sites.
        classes: names of the classes, in order; if empty, those that all sites have.
        nodes: names of the sites by Flower's nodes, in the order of the sites' numbers. Without them, the names that
            sites send are trusted.
        public_keys: the sites' keys by name, in OpenSSH format, to check their signatures.
        interrupt: ends the wait for the first sites.
        on_agreed: receives the agreement, first perhaps without classes.
    """
    config = config.resolved  # sites receive all values, independent of the defaults of their versions
    directory, names = RunDirectory(out), tuple((nodes or {}).values())
    directory.require_new()
    require_servable(config, settings, names)
    registry = Registry([Member(name) for name in names], nodes, without=config.federation.without)
    agreement = agreement_of(config, uuid.uuid4().hex, classes, settings)
    on_agreed(agreement)
    registration = Registration(grid, registry, agreement, settings)
    federation = _federation(config, directory, registration, public_keys, interrupt)
    on_agreed(registration.agreement)
    directory.create(config, _manifest(config, registration), None)
    with directory.locked():
        Loop(config, directory, federation, Progress(), federation).go()
    return directory


def resume_serving(
    grid: Grid,
    path: Path,
    settings: ServerSettings,
    *,
    nodes: dict[int, str] | None = None,
    public_keys: Mapping[str, str] | None = None,
    interrupt: Interrupt | None = None,
    on_agreed: Callable[[Agreement], object] = lambda _: None,
) -> RunDirectory:
    """Resume the run of real sites in `path` from its last checkpoint; see `serve`."""
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
        names = list(dict.fromkeys([*manifest["clients"], *(nodes or {}).values()]))  # last, those with new keys
        require_summable(config, settings, len(nodes or {}))
        directory.require_same_code(config.method)
        agreed = manifest["deployment"]["train_images"]
        members = [Member(name, agreed=agreed.get(name, 0)) for name in names]
        registry = Registry(members, nodes, without=config.federation.without)
        agreement = agreement_of(config, manifest["deployment"]["run"], tuple(manifest["data"]["classes"]), settings)
        on_agreed(agreement)
        before = manifest["backbone"]
        if before["digest"] != agreement.backbone:
            raise FedotpError(
                f"{path}: expected the run's backbone {before['name']} {before['digest'][:12]}, got "
                f"{agreement.backbone[:12]}; install the original file"
            )
        with directory.reading():
            progress, n_averages = _recall(directory, registry)
        registration = Registration(grid, registry, agreement, settings, begun=True)
        counts = {"n_sites": manifest["deployment"]["sites"], "n_averages": n_averages}
        federation = _federation(config, directory, registration, public_keys, interrupt, **counts)
        if directory.checkpoint.is_file():
            Checkpoint.read(directory.checkpoint).restore(federation)
        log.info("resuming after round %d", federation.round)
        Loop(config, directory, federation, progress, federation).go()
    return directory


def _federation(
    config: Config,
    directory: RunDirectory,
    registration: Registration,
    public_keys: Mapping[str, str] | None,
    interrupt: Interrupt | None,
    **counts: int,
) -> Deployed:
    """Wait for the sites, and make their federation; `counts` are those of a resumed run."""
    registration.gather(interrupt)
    agreement = registration.agreement
    facts = {"method": config.method.name, "rounds": config.federation.rounds}
    record("configuration", run=agreement.run, digest=agreement.digest, **facts)
    clip = load_backbone(config.backbone.source, config.compute.device)
    task = make_task(config, clip, agreement.classes, agreement.template)
    return Deployed(config, task, registration, directory, KeyIdentity(None, public_keys), **counts)


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
            registry.members[registry.names.index(name)].fail(why)
        for name in line.get("shortened", {}):
            registry.members[registry.names.index(name)].shortened += 1
    return progress, averages


def agreement_of(config: Config, run: str, classes: tuple[str, ...], settings: ServerSettings) -> Agreement:
    clip = load_backbone(config.backbone.source, config.compute.device)
    config = replace(config, federation=replace(config.federation, without=()))  # hide removed sites from the others
    terms = Terms(float(settings.secure_threshold), settings.secure_range) if settings.secure else None
    return Agreement(run, config, classes, template_of(config, config.data.dataset, clip), clip.digest, terms)


def _manifest(config: Config, registration: Registration) -> dict[str, Any]:
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
            "settings": asdict(registration.settings),
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
    if held is None and not is_loopback(host):
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
                known: dict[str, Any] = {"nodes": link.nodes, "public_keys": link.public_keys} if held else {}
                known |= {"interrupt": interrupt, "on_agreed": lambda agreed: link.describe(agreed.text)}
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
