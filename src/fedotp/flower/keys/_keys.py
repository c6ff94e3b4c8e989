"""The keys of a federation, on disk: an authority, a server, sites.

    DIR/authority/{ca.crt,ca.key}                          stays with whoever made it
    DIR/server/{ca.crt,server.crt,server.key,sites.toml}   goes to the server
    DIR/sites/NAME/{ca.crt,site.key,site.pub,site.toml,peers.toml}    goes to that site

Sites know the server by the authority's signature; the server knows a site by its public key in sites.toml, and sites
know each other by those in peers.toml, which is the same list.
"""

import base64
import contextlib
import hashlib
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedotp._files import write_atomically
from fedotp._toml import show_key, write_tables
from fedotp.errors import FedotpError
from fedotp.flower._start import PORT, SERVER_DAYS
from fedotp.flower.keys import _certificates as certificates
from fedotp.flower.keys._certificates import PrivateKey
from fedotp.flower.keys._files import present, read_toml, refuse_if_shared, whole_folder, write_folder

_SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class ServerKeys:
    """What the server needs: certificates and its key, and the public key of every site, by name."""

    ca: Path
    certificate: Path
    key: Path
    sites: dict[str, str]


@dataclass(frozen=True)
class SiteKeys:
    """What a site needs: the authority it trusts, its key, its name and `HOST:PORT` of the server.

    `peers` are the public keys of all sites, by name; None where the site was not given them.
    """

    ca: Path
    key: Path
    name: str
    server: str
    peers: dict[str, str] | None = None


def make_keys(folder: Path, hosts: Sequence[str], sites: Sequence[str], *, days: int = SERVER_DAYS) -> None:
    """Make an authority, a server certificate for `hosts` and a key for every site in a new folder.

    `days` is how long the server certificate is valid; the authority is valid for ten years.
    """
    hosts = _check_hosts(hosts)
    _check_sites(sites, known=())
    _check_days(days)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FedotpError(f"{folder} is there already and nothing is overwritten; choose another folder")
    now = _now()
    authority_key, server_key = certificates.new_key(), certificates.new_key()
    authority = certificates.sign_authority(authority_key, now)
    certificate = certificates.sign_server(server_key.public_key(), hosts, authority, authority_key, days=days, now=now)
    ca = authority.public_bytes(_PEM)
    with whole_folder(folder) as made:
        write_folder(made / "authority", {"ca.crt": ca, "ca.key": _pem(authority_key)})
        (made / "sites").mkdir(mode=0o700)
        known = {site: _write_site(made / "sites" / site, site, hosts[0], ca) for site in sites}
        files: dict[str, bytes | str] = {
            "ca.crt": ca,
            "server.crt": certificate.public_bytes(_PEM),
            "server.key": _pem(server_key),
            "sites.toml": _sites_toml(known),
        }
        write_folder(made / "server", files)
        _write_peers(made, known)


def add_sites(folder: Path, sites: Sequence[str]) -> None:
    """Make keys for further sites; they may connect once the server was started again with the new sites.toml."""
    known = _known_sites(folder)
    _check_sites(sites, known=known)
    for site in sites:
        if (folder / "sites" / site).exists():
            raise FedotpError(f"{folder / 'sites' / site} is there already and nothing is overwritten; remove it first")
    ca = _own(folder, "authority", "ca.crt").read_bytes()
    host = certificates.certified_hosts(certificates.load_certificate(_own(folder, "server", "server.crt")))[0]
    with contextlib.ExitStack() as undo:
        for site in sites:
            with whole_folder(folder / "sites" / site) as made:
                known[site] = _write_site(made, site, host, ca)
            undo.callback(shutil.rmtree, folder / "sites" / site)
        _write_peers(folder, known)
        write_atomically(folder / "server" / "sites.toml", _sites_toml(known))
        undo.pop_all()


def remove_site(folder: Path, site: str) -> None:
    """Forget a site's key; the server refuses the site once it was started again with the new sites.toml."""
    known = _known_sites(folder)
    if site not in known:
        raise FedotpError(f"{folder} has no site '{site}'; it has {', '.join(known) or 'none'}")
    del known[site]
    write_atomically(folder / "server" / "sites.toml", _sites_toml(known))
    shutil.rmtree(folder / "sites" / site, ignore_errors=True)
    _write_peers(folder, known)


def renew_server(folder: Path, hosts: Sequence[str] = (), *, days: int = SERVER_DAYS) -> None:
    """Sign a new certificate for the server's key, for the same hosts if none are given; sites need nothing new."""
    _check_days(days)
    old = certificates.load_certificate(_own(folder, "server", "server.crt"))
    hosts = _check_hosts(hosts or certificates.certified_hosts(old))
    ca, now = _own(folder, "authority", "ca.crt"), _now()
    authority = certificates.load_certificate(ca)
    authority_key = _load_private(_own(folder, "authority", "ca.key"))
    left = (authority.not_valid_after_utc - now).days
    if days > left:
        raise FedotpError(f"{ca} is valid for {max(left, 0)} more days: give fewer --days, or make new keys")
    key = _load_private(_own(folder, "server", "server.key")).public_key()
    renewed = certificates.sign_server(key, hosts, authority, authority_key, days=days, now=now)
    write_atomically(folder / "server" / "server.crt", renewed.public_bytes(_PEM))


def read_server_keys(folder: Path) -> ServerKeys:
    """Read and check the folder that the server was given."""
    origin = "copy the whole folder server/ that `fedotp keys make` wrote"
    if (folder / "server").is_dir():
        origin = f"give {folder / 'server'}"
    path, ca, key_path, sites_path = (
        present(folder / name, origin=origin) for name in ("server.crt", "ca.crt", "server.key", "sites.toml")
    )
    certificate, authority = certificates.load_certificate(path), certificates.load_certificate(ca)
    certificates.check_pair(certificate, _load_private(key_path), authority, folder)
    now = _now()
    certificates.check_dates(certificate, path, now, cure="have a new one signed: fedotp keys renew")
    certificates.check_dates(authority, ca, now, cure="make new keys: fedotp keys make")
    sites = read_sites(sites_path)
    if not sites:
        raise FedotpError(f"{sites_path} names no site; add one: fedotp keys add")
    return ServerKeys(ca, path, key_path, sites)


def read_site_keys(folder: Path) -> SiteKeys:
    """Read and check the folder that a site was given."""
    origin = "copy the whole folder sites/NAME/ that `fedotp keys` wrote"
    if (folder / "sites").is_dir():
        origin = f"give the folder of one site in {folder / 'sites'}"
    key, ca, path = (present(folder / name, origin=origin) for name in ("site.key", "ca.crt", "site.toml"))
    _load_private(key)
    cure = "ask the coordinator for new keys"
    certificates.check_dates(certificates.load_certificate(ca), ca, _now(), cure=cure)
    values = read_toml(path)
    name, server = values.get("name"), values.get("server")
    if not (isinstance(name, str) and _SITE.fullmatch(name) and isinstance(server, str) and server):
        raise FedotpError(f'{path} must have name = "SITE" and server = "HOST:PORT"')
    peers = folder / "peers.toml"
    known = read_sites(present(peers, origin=origin)) if peers.exists() else None
    return SiteKeys(ca, key, name, server, known)


def read_sites(path: Path) -> dict[str, str]:
    """Read sites.toml: the public key of every site, by name, in the order of the file."""
    sites = read_toml(path).get("sites")
    if not isinstance(sites, dict):
        raise FedotpError(f"{path} must have a table [sites] with a public key for every name")
    owners: dict[bytes, str] = {}
    for name, text in sites.items():
        if not _SITE.fullmatch(name):
            raise FedotpError(f"{path}: {show_key(name)} cannot be a site's name")
        point = _public_point(text)
        if point is None:
            raise FedotpError(f'{path}: the key of {name} must be "ecdsa-sha2-nistp384 AAAA...", as in its site.pub')
        if point in owners:
            raise FedotpError(f"{path}: {owners[point]} and {name} have the same key; every site needs its own")
        owners[point] = name
    return dict(sites)


def key_fingerprint(public_key: str) -> str:
    """Return what `ssh-keygen -lf site.pub` prints of a public key in OpenSSH's one-line text."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _now() -> datetime:
    return datetime.now(UTC)


def _check_hosts(hosts: Sequence[str]) -> list[str]:
    if not hosts:
        raise FedotpError("name at least one host: the name or IP address under which sites reach the server")
    return [certificates.check_host(host) for host in hosts]


def _check_sites(sites: Sequence[str], *, known: Collection[str]) -> None:
    if not sites:
        raise FedotpError("name at least one site")
    seen = {name.casefold() for name in known}  # some file systems do not tell A from a
    for site in sites:
        if not _SITE.fullmatch(site):
            raise FedotpError(
                f"'{site}' cannot be a site's name: up to 64 letters, digits, - _ . and first a letter, a digit or _"
            )
        if site.casefold() in seen:
            raise FedotpError(f"there is a site '{site}' already; every site needs a name of its own")
        seen.add(site.casefold())


def _check_days(days: int) -> None:
    if not 1 <= days <= certificates.AUTHORITY_DAYS:
        raise FedotpError(f"a server certificate is valid for 1 to {certificates.AUTHORITY_DAYS} days, not {days}")


def _write_site(folder: Path, site: str, host: str, ca: bytes) -> str:
    """Write a site's folder; return its public key in one line."""
    key = certificates.new_key()
    private = key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    address = f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}"
    config = write_tables({"name": site, "server": address})
    write_folder(folder, {"ca.crt": ca, "site.key": private, "site.pub": f"{public} {site}\n", "site.toml": config})
    return public


def _write_peers(folder: Path, known: Mapping[str, str]) -> None:
    """Tell every site whose folder is there the public keys of all."""
    for site in known:
        if (folder / "sites" / site).is_dir():
            write_atomically(folder / "sites" / site / "peers.toml", _sites_toml(known))


def _sites_toml(sites: Mapping[str, str]) -> str:
    return write_tables({"sites": {show_key(name): key for name, key in sites.items()}})


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _own(folder: Path, part: str, name: str) -> Path:
    """A file in the folder that `make_keys` made."""
    return present(folder / part / name, origin=f"{folder} must be a folder that `fedotp keys make` made")


def _known_sites(folder: Path) -> dict[str, str]:
    return read_sites(_own(folder, "server", "sites.toml"))


def _load_private(path: Path) -> PrivateKey:
    refuse_if_shared(path)
    return certificates.load_key(path)


def _public_point(text: object) -> bytes | None:
    """The point on the curve that a public key in OpenSSH's text stands for; None where it is not one."""
    if not isinstance(text, str):
        return None
    try:
        key = serialization.load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm, NotImplementedError):
        return None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return None
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
