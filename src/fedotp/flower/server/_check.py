"""`fedotp server --check`: what would stop the server or keep sites from it, found before it starts."""

import ctypes
import logging
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedotp._files import require_writable
from fedotp._system import available_memory
from fedotp._text import counted
from fedotp._web import is_loopback
from fedotp.clip import CLIP
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError, listed
from fedotp.flower._findings import CautionError, Finding, UncheckedError, examine, needed
from fedotp.flower.keys import ExpiryWarnings, ServerKeys, key_facts
from fedotp.flower.link import ConnectionLimits, Listener
from fedotp.flower.server._serve import agreement_of, require_enough
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._supported import require_servable
from fedotp.runs.directory import RunDirectory, free_name
from fedotp.runs.one import load_backbone, make_task
from fedotp.runs.tables import n_bytes

log = logging.getLogger("fedotp.server")

_LEAST_FREE = 1 << 30  # bytes
_KEYS, _CONFIGURED = "requires the keys", "requires a valid configuration"
_COPIES = 6  # of a site's update in memory: message, parts, arrays, float64, transcript, file
_PER_SITE = 4  # connections that a site may have open at once
_TIME_ERROR, _TIMEX_BYTES = 5, 512  # of adjtimex: the state of a clock that is not synchronised; at least its structure


def check_server(
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
) -> Iterator[Finding]:
    """Check the set-up of a server without starting it; the arguments are those of `run_server`."""
    check = _Check(settings, host, port, keys, classes)
    return examine(
        [
            ("keys", check.keys),
            ("host names", check.hosts),
            ("port", check.free_port),
            ("connections", check.connections),
            ("clock", check.clock),
            ("configuration", lambda: check.configuration(source, changes, resume)),
            ("sites", check.sites),
            ("classes", check.known_classes),
            ("backbone", check.backbone),
            ("run directory", lambda: check.directory(out)),
            ("memory, disk", check.resources),
        ]
    )


class _Check:
    """The checks of a server; each uses what those before it have found."""

    def __init__(
        self, settings: ServerSettings, host: str, port: int, folder: Path | None, classes: tuple[str, ...]
    ) -> None:
        self.settings, self.host, self.port, self.folder, self.classes = settings, host, port, folder, classes
        self.held: ServerKeys | None = None
        self.config: Config | None = None
        self.run: RunDirectory | None = None
        self.clip: CLIP | None = None
        self.place, self.digest = Path(), ""

    @property
    def names(self) -> tuple[str, ...]:
        """The sites with accepted keys."""
        return tuple(self.held.sites) if self.held else ()

    def keys(self) -> str:
        held = self.held = ServerKeys.read(needed(self.folder, "--insecure"))
        expired = [f"the certificate of site {name} has expired" for name in held.listed.keys if name not in held.sites]
        if soon := [*ExpiryWarnings(log, held.certificates).soon(), *expired]:
            raise CautionError("; ".join(soon))
        remark = next(remark for what, _, remark in key_facts(held.ca.parent) if what == "server")
        revoked = listed(sorted(held.listed.revoked_keys.values())) or "none"
        return f"server {remark}; {counted(len(held.sites), 'site')} accepted; revoked: {revoked}"

    def hosts(self) -> str:
        hosts = [host for host in needed(self.held, _KEYS).hosts if not is_loopback(host)]
        here = [host for host in hosts if _is_here(host)]
        text = f"the certificate is for {listed(hosts) or 'this machine only'}"
        if is_loopback(self.host):
            raise CautionError(f"{text}; --host {self.host} cannot be reached from other machines")
        if not here:
            raise CautionError(
                f"{text}: no address of this machine that others can use; forward the port to it, or sign a "
                "certificate for the host name that sites use: fedotp keys renew FOLDER --server HOST"
            )
        return f"{text}; this machine is {listed(here)}"

    def free_port(self) -> str:
        Listener(ConnectionLimits(), self.host, self.port).close()
        return f"{self.host}:{self.port} is free"

    def connections(self) -> str:
        most, n = ConnectionLimits().most, _PER_SITE * max(len(self.names), 1)
        if most < n:
            raise FedotpError(f"at most {most} at once, {n} are needed; allow more open files: ulimit -n")
        return f"at most {most} at once"

    def clock(self) -> str:
        adjust = getattr(ctypes.CDLL(None), "adjtimex", None)  # only on Linux, and not in every container
        state = adjust(ctypes.create_string_buffer(_TIMEX_BYTES)) if adjust else -1
        if state < 0:
            raise UncheckedError("this system does not report whether its clock is synchronised; use NTP")
        if state == _TIME_ERROR:
            raise CautionError("not synchronised, so sites may be refused; use NTP (timedatectl)")
        return "synchronised"

    def configuration(self, source: str, changes: Sequence[str], resume: Path | None) -> str:
        if resume is not None:
            self.run = RunDirectory.open(resume)
            if not self.run.is_deployed or self.run.is_complete:
                raise FedotpError(f"{resume} {'is complete' if self.run.is_deployed else 'was simulated'}")
            with self.run.reading():
                manifest = self.run.manifest
                self.classes, self.digest = tuple(manifest["data"]["classes"]), manifest["backbone"]["digest"]
        config = self.run.config if self.run else load_config(source).override(list(changes))
        require_servable(config, self.settings, self.names)
        self.config = config
        return f"{config.method.title}, {counted(config.federation.rounds, 'round')}"

    def sites(self) -> str:
        require_enough(self.settings, len(needed(self.held, _KEYS).sites), self.folder or Path())
        return f"starts when {self.settings.min_sites or len(self.names)} of {listed(self.names)} are ready"

    def known_classes(self) -> str:
        if not self.classes:
            raise CautionError("without --classes, all sites must have the same classes")
        return f"{len(self.classes)}: {listed(self.classes)}"

    def backbone(self) -> str:
        config = needed(self.config, _CONFIGURED)
        clip = load_backbone(config.backbone.source, config.compute.device)
        if self.digest not in ("", clip.digest):
            raise FedotpError(f"{config.backbone.name} {clip.digest[:12]} differs from the run's; install the original")
        self.clip = clip
        return f"{config.backbone.name} {clip.digest[:12]}"

    def directory(self, out: Path | None) -> str:
        self.place = self.run.path if self.run else out or free_name(needed(self.config, _CONFIGURED), Path("runs"))
        if self.run is None:
            RunDirectory(self.place).require_new()
        elif self.run.is_running:
            raise FedotpError(f"{self.place} is in use by another process; stop it")
        require_writable(self.place)
        return f"{self.place} {'can be resumed' if self.run else 'is new and writable'}"

    def resources(self) -> str:
        config, clip = needed(self.config, _CONFIGURED), needed(self.clip, "no backbone")
        agreement = agreement_of(config, "", self.classes or ("one", "other"), self.settings)
        task = make_task(config, clip, agreement.classes, agreement.template)
        sent = config.method.send(config.method.shared(task, 1), None, 1)
        updates = max(len(self.names), 1) * sum(value.nbytes for value in sent.values())
        there = next(place for place in (self.place, *self.place.absolute().parents) if place.exists())
        texts = []
        for what, size, free in (
            ("memory", _COPIES * updates, available_memory()),
            ("disk", config.federation.rounds * updates, shutil.disk_usage(there).free),
        ):
            texts.append(f"{n_bytes(size)} of {what} for updates, {'?' if free is None else n_bytes(free)} free")
            if free is not None and free < max(size, _LEAST_FREE):
                kind = FedotpError if free < size else CautionError
                raise kind(f"{texts[-1]}; provide more {what}")
        return "; ".join(texts)


def _is_here(host: str) -> bool:
    """True if the host is this machine: only its own addresses can be bound."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True
