"""The keys of a federation on disk: an authority, a server, sites.

    DIR/authority/{ca.crt,ca.key}                                  stays with the coordinator
    DIR/server/{ca.crt,server.crt,server.key,sites.crt,revoked.crl}     goes to the server
    DIR/sites/NAME/{ca.crt,site.crt,site.toml,peers.crt}           goes to that site, which has made its site.key

A site makes its key and a request (PKCS#10); the coordinator signs it. The server identifies a site by its certificate
in sites.crt, a file of all certificates in the order in which they were signed, unless revoked.crl lists it; sites
identify the server by the authority's signature, and each other by peers.crt, the certificates that are not revoked.
Folders are written completely or not at all. Only their owner can read private keys.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from fedotp._files import cannot_write, held, write_atomically
from fedotp._values import write_tables
from fedotp.errors import FedotpError
from fedotp.flower._defaults import PORT, SERVER_DAYS, SITE_DAYS
from fedotp.flower.keys import _certificates as certificates
from fedotp.flower.keys._certificates import PrivateKey, check_dates, load_certificate, load_key, public_text
from fedotp.flower.keys._read_keys import Sites, current_time, require_made

_PEM = serialization.Encoding.PEM
_OWNER_ONLY, _READABLE = 0o600, 0o644


def make_keys(folder: Path, hosts: Sequence[str], sites: Sequence[str] = (), *, days: int = SERVER_DAYS) -> None:
    """Make an authority and a server certificate for `hosts` in a new folder, and for trials also keys of `sites`.

    The server certificate is valid for `days` days; the authority for ten years.
    """
    hosts = _check_hosts(hosts)
    _check_names(sites, Sites())
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FedotpError(f"{folder} already exists; choose another folder")
    authority_key, server_key = certificates.new_key(), certificates.new_key()
    ca = certificates.sign_authority(authority_key, current_time()).public_bytes(_PEM)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as near:
            made = Path(near) / "keys"
            _write_folder(made / "authority", {"ca.crt": ca, "ca.key": _pem(authority_key)})
            made.chmod(0o700)
            (made / "sites").mkdir(mode=0o700)
            (certificate,) = _sign(made, {"fedotp server": server_key.public_key()}, days, hosts)
            files = {"ca.crt": ca, "server.crt": certificate.public_bytes(_PEM), "server.key": _pem(server_key)}
            _write_folder(made / "server", {**files, "sites.crt": b""})
            _revoke(made, [])
            for site in sites:
                request_key(site, made / "sites" / site)
            keys = {site: load_key(made / "sites" / site / "site.key").public_key() for site in sites}
            _answer(made, _sign(made, keys, SITE_DAYS))
            made.rename(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error


def request_key(site: str, folder: Path) -> tuple[Path, str]:
    """Write a site's request for a certificate, with the key in `folder`, made if there is none.

    Return the request's path and the public key.
    """
    _check_names([site], Sites())
    path, request = folder / "site.key", folder / f"{site}.csr"
    if not path.exists():
        key = certificates.new_key()
        private = key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        _write_folder(folder, {"site.key": private})
    key = load_key(path)
    write_atomically(request, certificates.request_certificate(site, key))
    return request, public_text(key.public_key())


def sign_request(folder: Path, path: Path, *, days: int = SITE_DAYS, replace: bool = False) -> tuple[str, str]:
    """Sign the request in the file `path`, and write the answer to `folder`; return the site's name and public key.

    Another key of a known site requires `replace`, which revokes the old one.
    """
    name, key = certificates.load_request(path)
    with _alone(folder):
        known = _known_sites(folder)
        text = public_text(key)
        if text in known.revoked_keys:
            raise FedotpError(f"{path}: this key is revoked; make a new one with `fedotp keys request` in a new folder")
        others = {other: site for site, other in known.keys.items()}
        if others.get(text, name) != name:
            raise FedotpError(f"{path}: site {others[text]} has this key; every site needs its own")
        if name not in known.newest:
            _check_names([name], known)
        is_new = name in known.keys and known.keys[name] != text
        if is_new and not replace:
            raise FedotpError(f"{path}: site {name} has another key; use --replace to revoke it")
        signed = _sign(folder, {name: key}, days)
        if is_new:
            _revoke(folder, _serials(known, name))
            (folder / "sites" / name / "site.key").unlink(missing_ok=True)  # the old one, of a trial
        _answer(folder, signed)
    return name, text


def revoke_site(folder: Path, site: str) -> None:
    """Revoke all certificates of a site; the server refuses its keys as soon as it reads the new revoked.crl."""
    with _alone(folder):
        known = _known_sites(folder)
        if site not in known.keys:
            names = ", ".join(known.keys) or "none"
            raise FedotpError(f"{folder} has no site '{site}' to revoke; its sites are: {names}")
        _revoke(folder, _serials(known, site))
        shutil.rmtree(folder / "sites" / site, ignore_errors=True)
        _answer(folder, [])


def renew_server(folder: Path, hosts: Sequence[str] = (), *, days: int = SERVER_DAYS) -> None:
    """Sign a new certificate for the server's key, by default for the same hosts; sites keep their files."""
    hosts = _check_hosts(hosts or _hosts(require_made(folder)))
    key = load_key(folder / "server" / "server.key").public_key()
    (renewed,) = _sign(folder, {"fedotp server": key}, days, hosts)
    write_atomically(folder / "server" / "server.crt", renewed.public_bytes(_PEM))


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Exclude other commands that sign or revoke; otherwise one would undo another's revocation."""
    busy = f"another command is changing {folder}; repeat this one"
    return held(require_made(folder) / "server" / "ca.crt", busy)


def _check_hosts(hosts: Sequence[str]) -> list[str]:
    if not hosts:
        raise FedotpError("specify at least one host: the name or IP address at which sites reach the server")
    return [certificates.check_host(host) for host in hosts]


def _hosts(folder: Path) -> list[str]:
    return certificates.certified_hosts(load_certificate(folder / "server" / "server.crt"))


def _check_names(sites: Sequence[str], known: Sites) -> None:
    seen = {name.casefold() for name in known.newest}  # some file systems ignore case
    for site in sites:
        if not certificates.SITE.fullmatch(site):
            raise FedotpError(
                f"'{site}' is not a valid site name: must be up to 64 letters, digits, - _ . and not begin with - or ."
            )
        if site.casefold() in seen:
            raise FedotpError(f"site '{site}' already exists; choose a unique name")
        seen.add(site.casefold())


def _sign(
    folder: Path, keys: Mapping[str, EllipticCurvePublicKey], days: int, hosts: Sequence[str] = ()
) -> list[x509.Certificate]:
    """Sign certificates of `days` days with the authority in `folder`, for the server if `hosts` are given."""
    authority, key = _authority(folder)
    now = current_time()
    left = (authority.not_valid_after_utc - now).days
    if not 1 <= days <= left:
        raise FedotpError(f"--days must be from 1 to {left}, when the authority expires, got {days}")
    return [
        certificates.sign(name, public, authority, key, hosts=hosts, days=days, now=now)
        for name, public in keys.items()
    ]


def _answer(folder: Path, signed: Sequence[x509.Certificate]) -> None:
    """Add newly signed certificates to the server's, and write the answers to their sites, and peers.crt to all."""
    path = folder / "server" / "sites.crt"
    old = path.read_bytes() if path.exists() else b""
    write_atomically(path, old + b"".join(each.public_bytes(_PEM) for each in signed))
    known = _known_sites(folder)
    host, ca = _hosts(folder)[0], (folder / "authority" / "ca.crt").read_bytes()
    address = f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}"
    for certificate in signed:
        name = certificates.common_name(certificate, path)
        files = {"ca.crt": ca, "site.crt": certificate.public_bytes(_PEM)}
        _write_folder(folder / "sites" / name, {**files, "site.toml": write_tables({"server": address})})
    peers = b"".join(known.newest[name].public_bytes(_PEM) for name in known.keys)
    for name in known.keys:
        if (folder / "sites" / name).is_dir():
            write_atomically(folder / "sites" / name / "peers.crt", peers)


def _revoke(folder: Path, serials: Sequence[int]) -> None:
    """Write the list of revoked certificates, extended by those with `serials`."""
    authority, key = _authority(folder)
    path = folder / "server" / "revoked.crl"
    before = certificates.load_revoked(path, authority) if path.exists() else []
    listed = certificates.sign_revoked(before, serials, authority, key, current_time())
    write_atomically(path, listed.public_bytes(_PEM))


def _serials(known: Sites, site: str) -> list[int]:
    return [certificate.serial_number for name, certificate in known.certificates if name == site]


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _authority(folder: Path) -> tuple[x509.Certificate, PrivateKey]:
    path = folder / "authority" / "ca.crt"
    authority = load_certificate(path)
    check_dates(authority, path, current_time(), cure="make new keys: fedotp keys make")
    return authority, load_key(path.with_name("ca.key"))


def _known_sites(folder: Path) -> Sites:
    """Return all sites that the authority has signed."""
    server = require_made(folder) / "server"
    return Sites.read(server / "sites.crt", load_certificate(server / "ca.crt"), server / "revoked.crl")


def _write_folder(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write files into a folder (mode 0700 if new); files named *.key have mode 0600."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for name, content in files.items():
        write_atomically(folder / name, content, mode=_OWNER_ONLY if name.endswith(".key") else _READABLE)
