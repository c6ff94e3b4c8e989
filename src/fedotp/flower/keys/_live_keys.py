"""Keys of a running process: the server reads its folder again when files change; both sides warn before expiry."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from cryptography import x509

from fedotp._text import counted
from fedotp.errors import FedotpError
from fedotp.flower._events import record
from fedotp.flower.keys._certificates import load_certificate, load_revoked
from fedotp.flower.keys._read_keys import ServerKeys, current_time, key_fingerprint

_SOON = timedelta(days=30)
_DAY = 86_400.0  # seconds between warnings


class LiveKeys:
    """The server's keys and which sites they accept now; not thread-safe.

    `accepted` are the public keys of sites by name; `refused` the names of sites and reasons by public key.
    `is_damaged` is True while the files could not be read, and older ones are in use; `expiry` warns.
    """

    def __init__(self, held: ServerKeys, log: logging.Logger) -> None:
        self.held, self._log = held, log
        self._folder, self.is_damaged = held.ca.parent, False
        self._stamp = self._stamped()
        self._own = load_certificate(held.certificate)
        self.accepted, self.refused = held.sites, held.listed.refused(current_time())
        self.expiry = ExpiryWarnings(log, lambda: self.held.certificates())

    def refresh(self) -> bool:
        """Read changed files, and apply the current time; return True if anything has changed.

        After an error the old keys stay. A certificate that was revoked once stays revoked, whatever the files contain.
        """
        stamp = self._stamped()
        has_changed = stamp != self._stamp
        if has_changed:
            self._read()
            self._stamp = stamp
        before, self.accepted = self.accepted, self.held.sites
        self.refused = self.held.listed.refused(current_time())
        for name in before.keys() | self.accepted.keys():
            if name not in self.accepted:
                why = self.refused.get(before[name], ("", "it has no certificate any more"))[1]
                self._log.warning("site %s is refused from now on: %s", name, why)
                record("configuration", what="keys", site=name, refused=why)
            elif before.get(name) != self.accepted[name]:
                self._log.info("site %s is accepted from now on", name)
                record("configuration", what="keys", site=name, accepted=key_fingerprint(self.accepted[name]))
        return has_changed or before != self.accepted

    def _read(self) -> None:
        revoked, self.is_damaged = self.held.listed.revoked, False
        try:
            fresh = ServerKeys.read(self._folder)
        except FedotpError as error:
            self._log.error("%s; continuing with the keys read before", error)
            fresh, self.is_damaged = self.held, True
            with suppress(FedotpError):
                listed = load_revoked(self._folder / "revoked.crl", load_certificate(fresh.ca))
                revoked |= {each.serial_number for each in listed}
        self.held = replace(fresh, listed=replace(fresh.listed, revoked=fresh.listed.revoked | revoked))
        if not self.is_damaged and (own := load_certificate(fresh.certificate)) != self._own:
            self._own, end = own, f"{own.not_valid_after_utc:%Y-%m-%d}"
            self._log.info("the server has a new certificate, which expires on %s", end)
            record("configuration", what="server.crt", expires=end)

    def _stamped(self) -> list[tuple[int, ...]]:
        """Return what changes when a file of the folder is written."""
        stamps: list[tuple[int, ...]] = []
        for name in ("ca.crt", "server.crt", "server.key", "sites.crt", "revoked.crl"):
            with suppress(OSError):
                status = (self._folder / name).stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return stamps


class ExpiryWarnings:
    """Warns on the first call, and then once a day, of certificates that expire within 30 days."""

    def __init__(self, log: logging.Logger, certificates: Callable[[], Iterable[tuple[str, x509.Certificate]]]) -> None:
        self._log, self._certificates = log, certificates
        self._next = 0.0

    def check(self) -> None:
        """Warn if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _DAY
        try:
            for warning in self.soon():
                self._log.warning("%s", warning)
        except (FedotpError, OSError) as error:
            self._log.warning("cannot check when certificates expire: %s", error)

    def soon(self) -> Iterator[str]:
        """Yield the warnings."""
        now = current_time()
        for what, certificate in self._certificates():
            end = certificate.not_valid_after_utc
            if end < now:
                yield f"{what} expired on {end:%Y-%m-%d}; renew it"
            elif end - now < _SOON:
                yield f"{what} expires on {end:%Y-%m-%d}, in {counted((end - now).days, 'day')}; renew it"
