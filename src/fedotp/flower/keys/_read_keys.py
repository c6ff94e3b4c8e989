"""Reading and checking the keys of a server or a site, and a summary of a folder of keys.

Fingerprints are for comparison over the telephone.
"""

import base64
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp._values import parse_toml
from fedotp.errors import FedotpError
from fedotp.flower.keys._certificates import (
    PrivateKey,
    certified_hosts,
    check_dates,
    check_issuer,
    check_pair,
    common_name,
    fingerprint,
    is_known_curve,
    load_certificate,
    load_certificates,
    load_key,
    load_revoked,
    public_text,
)

REVOKED = "this key is revoked"
EXPIRED = "the certificate of this key has expired"
"""Reasons why the server refuses a site's key."""

Fact = tuple[str, str, str]  # object, fingerprint, remark
_MOST_BYTES = 8 << 20  # of a key, or of the certificates of a thousand sites over some years


@dataclass(frozen=True)
class Sites:
    """All certificates of sites, oldest first, with their names, and the serial numbers of the revoked ones.

    The newest certificate of a site counts.
    """

    certificates: tuple[tuple[str, x509.Certificate], ...] = ()
    revoked: frozenset[int] = frozenset()

    @classmethod
    def read(cls, path: Path, authority: x509.Certificate | None, revoked: frozenset[int] = frozenset()) -> "Sites":
        """Read the certificates in the file `path`, which `authority` must have signed."""
        owners: dict[str, str] = {}
        found = []
        for certificate in load_certificates(path):
            if authority is not None:
                check_issuer(certificate, authority, path)
            if not is_known_curve(certificate.public_key()):
                raise FedotpError(f"{path}: every key must be on the curve P-384")
            name, key = common_name(certificate, path), public_text(certificate.public_key())
            if owners.setdefault(key, name) != name:
                raise FedotpError(f"{path}: {owners[key]} and {name} have the same key; every site needs its own")
            found.append((name, certificate))
        return cls(tuple(found), revoked)

    @cached_property
    def newest(self) -> dict[str, x509.Certificate]:
        """The newest certificates by the sites' names, in the order in which the sites got their first."""
        return dict(self.certificates)

    @cached_property
    def keys(self) -> dict[str, str]:
        """The public keys of the newest certificates that are not revoked, by the sites' names."""
        keys = {name: public_text(certificate.public_key()) for name, certificate in self.newest.items()}
        return {name: key for name, key in keys.items() if key not in self.revoked_keys}

    @cached_property
    def revoked_keys(self) -> dict[str, str]:
        """The names of the sites by their revoked public keys."""
        listed = self.certificates
        return {public_text(each.public_key()): name for name, each in listed if each.serial_number in self.revoked}

    def refused(self, now: datetime) -> dict[str, tuple[str, str]]:
        """Return the names of the sites with refused keys, and why, by public key."""
        expired = [name for name, each in self.newest.items() if now > each.not_valid_after_utc and name in self.keys]
        return {
            **{self.keys[name]: (name, EXPIRED) for name in expired},
            **{key: (name, REVOKED) for key, name in self.revoked_keys.items()},
        }


@dataclass(frozen=True)
class ServerKeys:
    """The server's keys: certificates, its key, and the sites' certificates."""

    ca: Path
    certificate: Path
    key: Path
    listed: Sites

    @property
    def sites(self) -> dict[str, str]:
        """The public keys of the accepted sites, by name."""
        refused = self.listed.refused(current_time())
        return {name: key for name, key in self.listed.keys.items() if key not in refused}

    @property
    def hosts(self) -> list[str]:
        """The host names and addresses of the server, as in its certificate."""
        return certified_hosts(load_certificate(self.certificate))

    def certificates(self) -> Iterator[tuple[str, x509.Certificate]]:
        """Yield the certificates in force, with names for messages."""
        yield from _named(self.ca, self.certificate)
        yield from ((f"the certificate of site {name}", self.listed.newest[name]) for name in self.sites)

    @classmethod
    def read(cls, folder: Path) -> "ServerKeys":
        """Read and check the server's folder."""
        origin = "copy the whole folder server/ that `fedotp keys make` wrote"
        if (folder / "server").is_dir():
            origin = f"use {folder / 'server'}"
        path, ca, key_path, sites, revoked = (
            present(folder / name, origin=origin)
            for name in ("server.crt", "ca.crt", "server.key", "sites.crt", "revoked.crl")
        )
        certificate, authority = load_certificate(path), load_certificate(ca)
        check_pair(certificate, load_private(key_path), path)
        check_issuer(certificate, authority, path)
        now = current_time()
        check_dates(certificate, path, now, cure="sign a new one: fedotp keys renew")
        check_dates(authority, ca, now, cure="make new keys: fedotp keys make")
        held = cls(ca, path, key_path, Sites.read(sites, authority, read_revoked(revoked, authority)))
        if not held.sites:
            raise FedotpError(f"{sites} contains no valid certificate; sign the request of a site: fedotp keys sign")
        return held


@dataclass(frozen=True)
class SiteKeys:
    """A site's keys: its authority, its key and certificate, its name and `HOST:PORT` of the server.

    `peers` are the public keys of all sites, by name; None without a peers.crt.
    """

    ca: Path
    key: Path
    name: str
    server: str
    peers: dict[str, str] | None = None

    def certificates(self) -> Iterator[tuple[str, x509.Certificate]]:
        """Yield the certificates in the files, which may have been renewed, with names for messages."""
        yield from _named(self.ca, self.ca.with_name("site.crt"))

    @classmethod
    def read(cls, folder: Path) -> "SiteKeys":
        """Read and check a site's folder."""
        origin = "make it with `fedotp keys request`"
        if (folder / "sites").is_dir():
            origin = f"use the folder of one site in {folder / 'sites'}"
        key = load_private(present(folder / "site.key", origin=origin))
        origin = "copy the coordinator's answer, the folder sites/NAME of `fedotp keys sign`, here"
        ca, path, config = (present(folder / name, origin=origin) for name in ("ca.crt", "site.crt", "site.toml"))
        certificate, authority = load_certificate(path), load_certificate(ca)
        check_pair(certificate, key, path)
        check_issuer(certificate, authority, path)
        cure = "repeat `fedotp keys request` and send the request to the coordinator"
        check_dates(certificate, path, current_time(), cure=cure)
        server = _read_toml(config).get("server")
        if not (isinstance(server, str) and server):
            raise FedotpError(f'{config} must contain server = "HOST:PORT"')
        peers = folder / "peers.crt"
        known = Sites.read(present(peers, origin=origin), authority).keys if peers.exists() else None
        return cls(ca, folder / "site.key", common_name(certificate, path), server, known)


def _named(*paths: Path) -> Iterator[tuple[str, x509.Certificate]]:
    yield from ((str(path), load_certificate(path)) for path in paths)


def read_revoked(path: Path, authority: x509.Certificate) -> frozenset[int]:
    """Read the serial numbers of revoked certificates."""
    return frozenset(each.serial_number for each in load_revoked(path, authority))


def key_facts(folder: Path) -> list[Fact]:
    """Summarise the keys in `folder`: of a federation, a server or a site."""
    if (folder / "site.key").is_file():
        return list(_site_facts(folder))
    if (folder / "sites.crt").is_file():
        return list(_server_facts(folder))
    origin = f"{folder} must be a folder made by `fedotp keys make`, or its part for the server or for a site"
    present(folder / "server" / "server.crt", origin=origin)
    return list(_server_facts(folder / "server"))


def _site_facts(folder: Path) -> Iterator[Fact]:
    key = public_text(load_key(present(folder / "site.key", origin="copy the whole folder again")).public_key())
    if not (folder / "site.crt").exists():
        yield "site", key_fingerprint(key), "not signed yet"
        return
    yield _certificate_fact("authority", folder / "ca.crt")
    name = common_name(load_certificate(folder / "site.crt"), folder / "site.crt")
    remark = _certificate_fact("", folder / "site.crt")[2]
    server = _read_toml(present(folder / "site.toml", origin="copy the whole folder again")).get("server")
    yield f"site {name}", key_fingerprint(key), f"{remark}, connects to {server}"
    if (folder / "peers.crt").exists():
        peers = Sites.read(present(folder / "peers.crt", origin=""), None)
        for peer, public in peers.keys.items():
            if peer != name:
                yield f"peer {peer}", key_fingerprint(public), ""


def _server_facts(folder: Path) -> Iterator[Fact]:
    yield _certificate_fact("authority", folder / "ca.crt")
    name, digest, expires = _certificate_fact("server", folder / "server.crt")
    yield name, digest, f"{expires}, for {', '.join(certified_hosts(load_certificate(folder / 'server.crt')))}"
    authority = load_certificate(folder / "ca.crt")
    revoked, path = folder / "revoked.crl", folder / "sites.crt"
    sites = Sites.read(path, authority, read_revoked(present(revoked, origin="copy it again"), authority))
    for name, certificate in sites.newest.items():
        remark = _expiry(certificate) if name in sites.keys else "REVOKED"
        yield f"site {name}", key_fingerprint(public_text(certificate.public_key())), remark


def _certificate_fact(name: str, path: Path) -> Fact:
    certificate = load_certificate(present(path, origin="copy the whole folder again"))
    return name, fingerprint(certificate), _expiry(certificate)


def _expiry(certificate: x509.Certificate) -> str:
    end = certificate.not_valid_after_utc
    return f"{'expires' if current_time() <= end else 'EXPIRED'} {end:%Y-%m-%d}"


def present(path: Path, *, origin: str) -> Path:
    """Return `path` if it is a readable regular file; `origin` is the advice in the error if it is missing."""
    try:
        read_regular(path, _MOST_BYTES)
        return path
    except FileNotFoundError:
        raise FedotpError(f"{path.parent} has no {path.name}; {origin}") from None
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror or error}") from error


def load_private(path: Path) -> PrivateKey:
    """Read a private key; like ssh, refuse one that others can read, except the group of another user's (root's)."""
    if os.name == "posix":
        status = path.stat()
        forbidden = 0o077 if status.st_uid == os.getuid() else 0o007
        if stat.S_IMODE(status.st_mode) & forbidden:
            raise FedotpError(f"permissions of the private key {path} are too open; run: chmod 600 '{path}'")
    return load_key(path)


def current_time() -> datetime:
    """Return the time of this machine's clock."""
    return datetime.now(UTC)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, a number of too many digits, brackets without end
        raise FedotpError(f"{path} is not valid TOML: {one_line(error)}") from error


def key_fingerprint(public_key: str) -> str:
    """Return the fingerprint that `ssh-keygen -lf site.key` prints, of a public key in OpenSSH format."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
