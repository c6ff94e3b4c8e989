"""Reading and checking the keys of a server or a site, and a summary of a folder of keys.

Fingerprints are for comparison over the telephone.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509

from fedotp._text import one_line
from fedotp._values import parse_toml
from fedotp.errors import FedotpError
from fedotp.flower.keys._certificates import (
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
    load_request,
    load_revoked,
    public_text,
    read_file,
)

REVOKED = "this key is revoked"
EXPIRED = "the certificate of this key has expired"
"""Reasons why the server refuses a site's key."""

Fact = tuple[str, str, str]  # object, fingerprint, remark


@dataclass(frozen=True)
class Sites:
    """All certificates of sites, oldest first, with their names, and the serial numbers of the revoked ones.

    The newest certificate of a site counts.
    """

    certificates: tuple[tuple[str, x509.Certificate], ...] = ()
    revoked: frozenset[int] = frozenset()

    @classmethod
    def read(cls, path: Path, authority: x509.Certificate, revoked: Path | None = None) -> "Sites":
        """Read the certificates in the file `path`, and the list `revoked`; `authority` must have signed all."""
        owners: dict[str, str] = {}
        found = []
        for certificate in load_certificates(path):
            check_issuer(certificate, authority, path)
            if not is_known_curve(certificate.public_key()):
                raise FedotpError(f"{path}: every key must be on the curve P-384")
            name, key = common_name(certificate, path), public_text(certificate.public_key())
            if owners.setdefault(key, name) != name:
                raise FedotpError(f"{path}: {owners[key]} and {name} have the same key; every site needs its own")
            found.append((name, certificate))
        listed = [] if revoked is None else load_revoked(revoked, authority)
        return cls(tuple(found), frozenset(each.serial_number for each in listed))

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
        if (folder / "server").is_dir():
            raise FedotpError(f"{folder} is not the folder of a server; use {folder / 'server'}")
        path, ca, sites = (folder / name for name in ("server.crt", "ca.crt", "sites.crt"))
        certificate, authority = load_certificate(path), load_certificate(ca)
        check_pair(certificate, load_key(folder / "server.key"), path)
        check_issuer(certificate, authority, path)
        now = current_time()
        check_dates(certificate, path, now, cure="sign a new one: fedotp keys renew FOLDER")
        check_dates(authority, ca, now, cure="make new keys: fedotp keys make")
        held = cls(ca, path, folder / "server.key", Sites.read(sites, authority, folder / "revoked.crl"))
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
        if (folder / "sites").is_dir():
            raise FedotpError(f"{folder} is not the folder of a site; use the folder of one site in {folder / 'sites'}")
        key, path, ca = (folder / name for name in ("site.key", "site.crt", "ca.crt"))
        if not key.exists():
            raise FedotpError(f"{folder} has no site.key; make it with `fedotp keys request`")
        if not path.exists():
            raise FedotpError(f"{folder} has no site.crt; copy the coordinator's answer, the folder sites/NAME, here")
        certificate, authority = load_certificate(path), load_certificate(ca)
        check_pair(certificate, load_key(key), path)
        check_issuer(certificate, authority, path)
        cure = "repeat `fedotp keys request` and send the request to the coordinator"
        check_dates(certificate, path, current_time(), cure=cure)
        peers = folder / "peers.crt"
        known = Sites.read(peers, authority).keys if peers.exists() else None
        return cls(ca, key, common_name(certificate, path), _server_address(folder / "site.toml"), known)


def _named(*paths: Path) -> Iterator[tuple[str, x509.Certificate]]:
    yield from ((str(path), load_certificate(path)) for path in paths)


def key_facts(folder: Path) -> list[Fact]:
    """Summarise the keys in `folder`: of a federation, a server or a site; or a site's request, a file."""
    if folder.is_file():
        name, key = load_request(folder)
        return [(f"request of site {name}", key_fingerprint(public_text(key)), "")]
    if not folder.exists():
        raise FedotpError(f"{folder}: no such file or folder")
    if (folder / "site.key").is_file():
        return list(_site_facts(folder))
    return list(_server_facts(folder if (folder / "sites.crt").is_file() else require_made(folder) / "server"))


def certified_keys(folder: Path) -> set[tuple[str, str]]:
    """Return names and public keys of all sites that the authority has certified, also of revoked ones.

    `folder` contains the keys of a federation or of a server, or of a site, which knows the keys in force only.
    """
    folder = folder if (folder / "ca.crt").is_file() else require_made(folder) / "server"
    path = folder / ("peers.crt" if (folder / "site.crt").exists() else "sites.crt")
    listed = Sites.read(path, load_certificate(folder / "ca.crt")).certificates
    return {(name, public_text(certificate.public_key())) for name, certificate in listed}


def require_made(folder: Path) -> Path:
    """Return `folder` if it is one that `make_keys` made."""
    if not (folder / "server" / "ca.crt").is_file():
        raise FedotpError(f"{folder} must be a folder made by `fedotp keys make`")
    return folder


def _site_facts(folder: Path) -> Iterator[Fact]:
    own = key_fingerprint(public_text(load_key(folder / "site.key").public_key()))
    if not (folder / "site.crt").exists():
        yield "site", own, "not signed yet"
        return
    yield _certificate_fact("authority", folder / "ca.crt")
    name = common_name(load_certificate(folder / "site.crt"), folder / "site.crt")
    expires = _certificate_fact("", folder / "site.crt")[2]
    yield f"site {name}", own, f"{expires}, connects to {_server_address(folder / 'site.toml')}"
    if (folder / "peers.crt").exists():
        for peer, key in Sites.read(folder / "peers.crt", load_certificate(folder / "ca.crt")).keys.items():
            if peer != name:
                yield f"peer {peer}", key_fingerprint(key), ""


def _server_facts(folder: Path) -> Iterator[Fact]:
    yield _certificate_fact("authority", folder / "ca.crt")
    name, digest, expires = _certificate_fact("server", folder / "server.crt")
    yield name, digest, f"{expires}, for {', '.join(certified_hosts(load_certificate(folder / 'server.crt')))}"
    sites = Sites.read(folder / "sites.crt", load_certificate(folder / "ca.crt"), folder / "revoked.crl")
    for name, certificate in sites.newest.items():
        remark = _expiry(certificate) if name in sites.keys else "REVOKED"
        yield f"site {name}", key_fingerprint(public_text(certificate.public_key())), remark


def _certificate_fact(name: str, path: Path) -> Fact:
    certificate = load_certificate(path)
    return name, fingerprint(certificate), _expiry(certificate)


def _expiry(certificate: x509.Certificate) -> str:
    end = certificate.not_valid_after_utc
    return f"{'expires' if current_time() <= end else 'EXPIRED'} {end:%Y-%m-%d}"


def current_time() -> datetime:
    """Return the time of this machine's clock."""
    return datetime.now(UTC)


def _server_address(path: Path) -> str:
    """Read `HOST:PORT` of the server from a site.toml."""
    try:
        server = parse_toml(read_file(path).decode()).get("server")
    except ValueError as error:  # not UTF-8, a number of too many digits, brackets without end
        raise FedotpError(f"{path} is not valid TOML: {one_line(error)}") from error
    if not (isinstance(server, str) and server):
        raise FedotpError(f'{path} must contain server = "HOST:PORT"')
    return server


def key_fingerprint(public_key: str) -> str:
    """Return the fingerprint that `ssh-keygen -lf site.key` prints, of a public key in OpenSSH format."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def digest_of_keys(fingerprints: Mapping[str, str]) -> str:
    """Return a digest of the sites' names and fingerprints, to compare two lists without sending them."""
    return hashlib.sha256(json.dumps(sorted(fingerprints.items())).encode()).hexdigest()
