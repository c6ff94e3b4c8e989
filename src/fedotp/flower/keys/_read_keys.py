"""Reading and checking the keys of a server or a site, and a summary of a folder of keys.

Fingerprints are for comparison over the telephone.
"""

import base64
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp._values import parse_toml, show_key
from fedotp.errors import FedotpError
from fedotp.flower.keys._certificates import (
    PrivateKey,
    certified_hosts,
    check_dates,
    check_pair,
    fingerprint,
    load_certificate,
    load_key,
)

SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""A site's name."""

Fact = tuple[str, str, str]  # object, fingerprint, remark
_MOST_BYTES = 1 << 20  # of a key, a certificate, or a list of a thousand sites


@dataclass(frozen=True)
class ServerKeys:
    """The server's keys: certificates, its key, and the public keys of the sites, by name."""

    ca: Path
    certificate: Path
    key: Path
    sites: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> "ServerKeys":
        """Read and check the server's folder."""
        origin = "copy the whole folder server/ that `fedotp keys make` wrote"
        if (folder / "server").is_dir():
            origin = f"use {folder / 'server'}"
        path, ca, key_path, sites_path = (
            present(folder / name, origin=origin) for name in ("server.crt", "ca.crt", "server.key", "sites.toml")
        )
        certificate, authority = load_certificate(path), load_certificate(ca)
        check_pair(certificate, load_private(key_path), authority, folder)
        now = current_time()
        check_dates(certificate, path, now, cure="sign a new one: fedotp keys renew")
        check_dates(authority, ca, now, cure="make new keys: fedotp keys make")
        sites = read_sites(sites_path)
        if not sites:
            raise FedotpError(f"{sites_path} contains no site; add one: fedotp keys add")
        return cls(ca, path, key_path, sites)


@dataclass(frozen=True)
class SiteKeys:
    """A site's keys: its authority, its key, its name and `HOST:PORT` of the server.

    `peers` are the public keys of all sites, by name; None without a peers.toml.
    """

    ca: Path
    key: Path
    name: str
    server: str
    peers: dict[str, str] | None = None

    @classmethod
    def read(cls, folder: Path) -> "SiteKeys":
        """Read and check a site's folder."""
        origin = "copy the whole folder sites/NAME/ that `fedotp keys` wrote"
        if (folder / "sites").is_dir():
            origin = f"use the folder of one site in {folder / 'sites'}"
        key, ca, path = (present(folder / name, origin=origin) for name in ("site.key", "ca.crt", "site.toml"))
        load_private(key)
        cure = "ask the coordinator for new keys"
        check_dates(load_certificate(ca), ca, current_time(), cure=cure)
        values = _read_toml(path)
        name, server = values.get("name"), values.get("server")
        if not (isinstance(name, str) and SITE.fullmatch(name) and isinstance(server, str) and server):
            raise FedotpError(f'{path} must contain name = "SITE" and server = "HOST:PORT"')
        peers = folder / "peers.toml"
        known = read_sites(present(peers, origin=origin)) if peers.exists() else None
        return cls(ca, key, name, server, known)


def read_sites(path: Path) -> dict[str, str]:
    """Read sites.toml: the public keys of the sites, by name, in the order of the file."""
    sites = _read_toml(path).get("sites")
    if not isinstance(sites, dict):
        raise FedotpError(f"{path} must contain a table [sites] with a public key for every name")
    owners: dict[bytes, str] = {}
    for name, text in sites.items():
        if not SITE.fullmatch(name):
            raise FedotpError(f"{path}: {show_key(name)} is not a valid site name")
        point = _public_point(text)
        if point is None:
            raise FedotpError(f'{path}: the key of {name} must be "ecdsa-sha2-nistp384 AAAA...", as in its site.pub')
        if point in owners:
            raise FedotpError(f"{path}: {owners[point]} and {name} have the same key; every site needs its own")
        owners[point] = name
    return dict(sites)


def key_facts(folder: Path) -> list[Fact]:
    """Summarise the keys in `folder`: of a federation, a server or a site."""
    if (folder / "site.toml").is_file():
        return list(_site_facts(folder))
    if (folder / "sites.toml").is_file():
        return list(_server_facts(folder))
    origin = f"{folder} must be a folder made by `fedotp keys make`, or its part for the server or for a site"
    present(folder / "server" / "sites.toml", origin=origin)
    return list(_server_facts(folder / "server", sites=folder / "sites"))


def _site_facts(folder: Path) -> Iterator[Fact]:
    yield _certificate_fact("authority", folder / "ca.crt")
    key = load_key(present(folder / "site.key", origin="copy the whole folder again")).public_key()
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    values = _read_toml(folder / "site.toml")
    yield f"site {values.get('name')}", _key_fingerprint(text), f"connects to {values.get('server')}"
    if (folder / "peers.toml").exists():
        peers = read_sites(present(folder / "peers.toml", origin="copy the whole folder again"))
        for name, public in peers.items():
            if name != values.get("name"):
                yield f"peer {name}", _key_fingerprint(public), ""


def _server_facts(folder: Path, sites: Path | None = None) -> Iterator[Fact]:
    yield _certificate_fact("authority", folder / "ca.crt")
    name, digest, expires = _certificate_fact("server", folder / "server.crt")
    yield name, digest, f"{expires}, for {', '.join(certified_hosts(load_certificate(folder / 'server.crt')))}"
    for name, key in read_sites(folder / "sites.toml").items():
        gone = sites is not None and not (sites / name / "site.key").is_file()
        yield f"site {name}", _key_fingerprint(key), "private key not in this folder" if gone else ""


def _certificate_fact(name: str, path: Path) -> Fact:
    certificate = load_certificate(present(path, origin="copy the whole folder again"))
    end = certificate.not_valid_after_utc
    return name, fingerprint(certificate), f"{'expires' if current_time() <= end else 'EXPIRED'} {end:%Y-%m-%d}"


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


def _key_fingerprint(public_key: str) -> str:
    """Return the fingerprint that `ssh-keygen -lf site.pub` prints for a public key in OpenSSH format."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _public_point(text: object) -> bytes | None:
    """Return the curve point of a public key in OpenSSH format; None if it is invalid."""
    if not isinstance(text, str):
        return None
    try:
        key = serialization.load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm, NotImplementedError):
        return None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return None
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
