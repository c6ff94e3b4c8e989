"""`fedotp server --check`: what would stop the server or keep sites from it, found before it starts."""

import ctypes
import ipaddress
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from fedotp._files import require_writable
from fedotp._system import available_memory, memory_left
from fedotp._text import counted
from fedotp.clip import CLIP
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError, listed
from fedotp.flower._findings import CautionError, Finding, UncheckedError, examine, needed
from fedotp.flower.keys import ServerKeys, certified_hosts, expiring, load_certificate, load_private, present
from fedotp.flower.link import ConnectionLimits, Listener
from fedotp.flower.server._serve import agreement_of, require_enough
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._supported import require_servable
from fedotp.runs.directory import RunDirectory, free_name
from fedotp.runs.one import load_backbone, make_task

_GIB = 1 << 30
_COPIES = 6  # of every site's update in memory: message, parts, arrays, float64, transcript, file
_PER_SITE = 4  # connections that a site may have open at once
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex
_LARGEST_TIMEX = 512  # bytes; more than the structure has on any platform
_NO_CONFIG = "requires a valid configuration"


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
    check = _Check(settings, host, port, keys)
    for item, work in (
        ("key", check.key),
        ("certificates", check.certificates),
        ("revoked keys", check.revoked),
        ("host names", check.hosts),
        ("port", check.free_port),
        ("connections", check.connections),
        ("clock", check.clock),
        ("configuration", lambda: check.configuration(source, changes, resume)),
        ("sites", check.sites),
        ("classes", lambda: check.classes(classes)),
        ("backbone", check.backbone),
        ("run directory", lambda: check.directory(out)),
        ("memory", check.memory),
        ("disk", check.disk),
    ):
        yield examine(item, work)


class _Check:
    """The checks of a server; each uses what those before it have found."""

    def __init__(self, settings: ServerSettings, host: str, port: int, folder: Path | None) -> None:
        self.settings, self.host, self.port, self.folder = settings, host, port, folder
        self.keys: ServerKeys | None = None
        self.config: Config | None = None
        self.run: RunDirectory | None = None
        self.clip: CLIP | None = None
        self.names: tuple[str, ...] = ()  # of classes
        self.place = Path()

    # Keys and network -----------------------------------------------------------------------------------------------

    def key(self) -> str:
        path = present(needed(self.folder, "--insecure") / "server.key", origin="create it with `fedotp keys make`")
        load_private(path)
        return f"{path}: readable by its owner only"

    def certificates(self) -> str:
        self.keys = ServerKeys.read(needed(self.folder, "--insecure"))
        if soon := list(expiring(self.keys.certificates())):
            raise CautionError("; ".join(soon))
        end = load_certificate(self.keys.certificate).not_valid_after_utc
        if expired := [name for name in self.keys.listed.keys if name not in self.keys.sites]:
            raise CautionError(f"the certificates of these sites have expired: {listed(expired)}; sign new requests")
        return f"the server's is valid until {end:%Y-%m-%d}; {counted(len(self.keys.sites), 'site')} accepted"

    def revoked(self) -> str:
        revoked = self._keys().listed.revoked_keys.values()
        return f"{counted(len(revoked), 'key')} refused{f': {listed(sorted(revoked))}' if revoked else ''}"

    def hosts(self) -> str:
        hosts = certified_hosts(load_certificate(self._keys().certificate))
        found = {host: _addresses(host) for host in hosts}
        local = {host for host, at in found.items() if any(map(_is_local, at))}
        public = {host for host in local if not all(ipaddress.ip_address(at).is_loopback for at in found[host])}
        listening = _addresses(self.host)
        text = f"the certificate is for {listed(hosts)}"
        if all(ipaddress.ip_address(at).is_loopback for at in listening) and listening:
            raise CautionError(f"{text}; --host {self.host} is reached from this machine only")
        if not any(ipaddress.ip_address(at).is_unspecified for at in listening):
            public = {host for host in public if set(found[host]) & set(listening)}
        if not public:
            raise CautionError(
                f"{text}; none is an address of this machine that --host {self.host} serves. If nothing forwards the "
                "port to this machine, make a certificate for its name: fedotp keys renew --server HOST"
            )
        return f"{text}; of these, this machine is {listed(sorted(public))}"

    def free_port(self) -> str:
        Listener(ConnectionLimits(), self.host, self.port).close()
        return f"{self.host}:{self.port} is free"

    def connections(self) -> str:
        most, n = ConnectionLimits().most, _PER_SITE * max(len(self.keys.sites) if self.keys else 0, 1)
        text = f"{most} at once"
        if most < n:
            raise FedotpError(f"{text}, {n} are needed; allow this process more open files (ulimit -n)")
        return text

    def clock(self) -> str:
        state = -1
        with suppress(OSError, AttributeError):  # only Linux can say
            state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_LARGEST_TIMEX))
        if state < 0:
            raise UncheckedError("this system does not say whether its clock is synchronised; use NTP")
        if state == _UNSYNCHRONISED:
            raise CautionError(
                "not synchronised; sites whose clocks differ too much are refused: use NTP (timedatectl)"
            )
        return "synchronised"

    # The run --------------------------------------------------------------------------------------------------------

    def configuration(self, source: str, changes: Sequence[str], resume: Path | None) -> str:
        if resume is not None:
            self.run = RunDirectory.open(resume)
            if not self.run.is_deployed:
                raise FedotpError(f"{resume} was simulated; resume it with `fedotp run --resume {resume}`")
        config = self.run.config if self.run else load_config(source).override(list(changes))
        require_servable(config, self.settings, tuple(self.keys.sites) if self.keys else ())
        self.config = config
        return f"{config.method.title}, {counted(config.federation.rounds, 'round')}"

    def sites(self) -> str:
        keys = self._keys()
        require_enough(self.settings, len(keys.sites), keys.ca.parent)
        return f"starts when {self.settings.min_sites or len(keys.sites)} of {listed(list(keys.sites))} are ready"

    def classes(self, given: tuple[str, ...]) -> str:
        self.names = tuple(self.run.manifest["data"]["classes"]) if self.run else given
        if not self.names:
            raise CautionError("--classes is not given: all sites must have the same classes")
        return f"{len(self.names)}: {listed(self.names)}"

    def backbone(self) -> str:
        config = needed(self.config, _NO_CONFIG)
        self.clip = load_backbone(config.backbone.source, config.compute.device)
        name, digest = config.backbone.name, self.clip.digest
        if self.run and self.run.manifest["backbone"]["digest"] != digest:
            raise FedotpError(f"{name} {digest[:12]}: the run began with another one; install the original file")
        return f"{name} {digest[:12]}"

    def directory(self, out: Path | None) -> str:
        config = needed(self.config, _NO_CONFIG)
        if self.run:
            self.place = self.run.path
            require_writable(self.place)
            if self.run.is_complete:
                raise FedotpError(f"{self.place} is complete")
            if self.run.is_running:
                raise FedotpError(f"{self.place} is in use by another process; stop it")
            return f"{self.place} can be resumed"
        self.place = out or free_name(config, Path("runs"))
        RunDirectory(self.place).require_new()
        require_writable(self.place)
        return f"{self.place} is new and writable"

    def memory(self) -> str:
        n_bytes, free = _COPIES * self._round_bytes(), [available_memory(), memory_left()]
        return _enough("memory", n_bytes, min((each for each in free if each is not None), default=None))

    def disk(self) -> str:
        n_bytes = needed(self.config, _NO_CONFIG).federation.rounds * self._round_bytes()
        there = next(place for place in (self.place, *self.place.absolute().parents) if place.exists())
        return _enough("disk space", n_bytes, shutil.disk_usage(there).free)

    def _round_bytes(self) -> int:
        """Return the bytes of the updates of all sites in a round."""
        config, clip = needed(self.config, _NO_CONFIG), needed(self.clip, "requires the backbone")
        agreement = agreement_of(config, "", self.names or ("one", "other"), self.settings)
        task = make_task(config, clip, agreement.classes, agreement.template)
        sent = config.method.send(config.method.shared(task, 1), None, 1)
        return max(len(self.keys.sites) if self.keys else 1, 1) * sum(each.nbytes for each in sent.values())

    def _keys(self) -> ServerKeys:
        return needed(self.keys, "requires the keys" if self.folder else "--insecure")


def _enough(what: str, n_bytes: int, free: int | None) -> str:
    """Require free bytes."""
    free = needed(free, f"this system does not report its free {what}")
    text = f"about {n_bytes / _GIB:.2g} GiB for updates, {free / _GIB:.1f} GiB free"
    if n_bytes > free:
        raise FedotpError(f"{text}; use a machine with more {what}")
    if free < _GIB:
        raise CautionError(f"{text}; less than 1 GiB")
    return text


def _addresses(host: str) -> list[str]:
    """Return the IP addresses of a host; none if its name is unknown here."""
    try:
        return sorted({str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, None)})
    except OSError:
        return []


def _is_local(address: str) -> bool:
    """True for an address of this machine: only these can be bound."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
