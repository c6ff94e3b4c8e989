"""The keys of a federation on disk: an authority, a server, sites.

    DIR/authority/{ca.crt,ca.key}                          stays with the coordinator
    DIR/server/{ca.crt,server.crt,server.key,sites.toml}   goes to the server
    DIR/sites/NAME/{ca.crt,site.key,site.pub,site.toml,peers.toml}    goes to that site

Sites identify the server by the authority's signature; the server identifies sites by their public keys in sites.toml,
and sites identify each other by those in peers.toml, which is the same list. Folders are written completely or not at
all. Only their owner can read private keys.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from fedotp._files import cannot_write, write_atomically
from fedotp._values import show_key, write_tables
from fedotp.errors import FedotpError
from fedotp.flower._defaults import PORT, SERVER_DAYS
from fedotp.flower.keys import _certificates as certificates
from fedotp.flower.keys._certificates import PrivateKey
from fedotp.flower.keys._read_keys import SITE, current_time, load_private, present, read_sites

_PEM = serialization.Encoding.PEM
_OWNER_ONLY, _READABLE = 0o600, 0o644


def make_keys(folder: Path, hosts: Sequence[str], sites: Sequence[str], *, days: int = SERVER_DAYS) -> None:
    """Make an authority, a server certificate for `hosts` and a key for every site in a new folder.

    The server certificate is valid for `days` days; the authority for ten years.
    """
    hosts = _check_hosts(hosts)
    _check_sites(sites, known=())
    _check_days(days)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FedotpError(f"{folder} already exists; choose another folder")
    now = current_time()
    authority_key, server_key = certificates.new_key(), certificates.new_key()
    authority = certificates.sign_authority(authority_key, now)
    certificate = certificates.sign_server(server_key.public_key(), hosts, authority, authority_key, days=days, now=now)
    ca = authority.public_bytes(_PEM)
    with _whole_folder(folder) as made:
        _write_folder(made / "authority", {"ca.crt": ca, "ca.key": _pem(authority_key)})
        (made / "sites").mkdir(mode=0o700)
        known = {site: _write_site(made / "sites" / site, site, hosts[0], ca) for site in sites}
        files: dict[str, bytes | str] = {
            "ca.crt": ca,
            "server.crt": certificate.public_bytes(_PEM),
            "server.key": _pem(server_key),
            "sites.toml": _sites_toml(known),
        }
        _write_folder(made / "server", files)
        _write_peers(made, known)


def add_sites(folder: Path, sites: Sequence[str]) -> None:
    """Make keys for further sites, which can connect after the server was restarted with the new sites.toml."""
    known = _known_sites(folder)
    _check_sites(sites, known=known)
    for site in sites:
        if (folder / "sites" / site).exists():
            raise FedotpError(f"{folder / 'sites' / site} already exists; remove it first")
    ca = _own(folder, "authority", "ca.crt").read_bytes()
    host = certificates.certified_hosts(certificates.load_certificate(_own(folder, "server", "server.crt")))[0]
    with contextlib.ExitStack() as undo:
        for site in sites:
            with _whole_folder(folder / "sites" / site) as made:
                known[site] = _write_site(made, site, host, ca)
            undo.callback(shutil.rmtree, folder / "sites" / site)
        _write_peers(folder, known)
        write_atomically(folder / "server" / "sites.toml", _sites_toml(known))
        undo.pop_all()


def remove_site(folder: Path, site: str) -> None:
    """Remove a site's key; the server refuses the site after a restart with the new sites.toml."""
    known = _known_sites(folder)
    if site not in known:
        raise FedotpError(f"{folder} has no site '{site}'; its sites are: {', '.join(known) or 'none'}")
    del known[site]
    write_atomically(folder / "server" / "sites.toml", _sites_toml(known))
    shutil.rmtree(folder / "sites" / site, ignore_errors=True)
    _write_peers(folder, known)


def renew_server(folder: Path, hosts: Sequence[str] = (), *, days: int = SERVER_DAYS) -> None:
    """Sign a new certificate for the server's key, by default for the same hosts; sites keep their files."""
    _check_days(days)
    old = certificates.load_certificate(_own(folder, "server", "server.crt"))
    hosts = _check_hosts(hosts or certificates.certified_hosts(old))
    ca, now = _own(folder, "authority", "ca.crt"), current_time()
    authority = certificates.load_certificate(ca)
    authority_key = load_private(_own(folder, "authority", "ca.key"))
    left = (authority.not_valid_after_utc - now).days
    if days > left:
        raise FedotpError(f"{ca} expires in {max(left, 0)} days: decrease --days, or make new keys")
    key = load_private(_own(folder, "server", "server.key")).public_key()
    renewed = certificates.sign_server(key, hosts, authority, authority_key, days=days, now=now)
    write_atomically(folder / "server" / "server.crt", renewed.public_bytes(_PEM))


def _check_hosts(hosts: Sequence[str]) -> list[str]:
    if not hosts:
        raise FedotpError("specify at least one host: the name or IP address at which sites reach the server")
    return [certificates.check_host(host) for host in hosts]


def _check_sites(sites: Sequence[str], *, known: Collection[str]) -> None:
    if not sites:
        raise FedotpError("specify at least one site")
    seen = {name.casefold() for name in known}  # some file systems ignore case
    for site in sites:
        if not SITE.fullmatch(site):
            raise FedotpError(
                f"'{site}' is not a valid site name: must be up to 64 letters, digits, - _ . and not begin with - or ."
            )
        if site.casefold() in seen:
            raise FedotpError(f"site '{site}' already exists; choose a unique name")
        seen.add(site.casefold())


def _check_days(days: int) -> None:
    if not 1 <= days <= certificates.AUTHORITY_DAYS:
        raise FedotpError(f"--days must be from 1 to {certificates.AUTHORITY_DAYS}, got {days}")


def _write_site(folder: Path, site: str, host: str, ca: bytes) -> str:
    """Write a site's folder, and return its public key."""
    key = certificates.new_key()
    private = key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    address = f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}"
    config = write_tables({"name": site, "server": address})
    _write_folder(folder, {"ca.crt": ca, "site.key": private, "site.pub": f"{public} {site}\n", "site.toml": config})
    return public


def _write_peers(folder: Path, known: Mapping[str, str]) -> None:
    """Write the public keys of all sites into each existing site's folder."""
    for site in known:
        if (folder / "sites" / site).is_dir():
            write_atomically(folder / "sites" / site / "peers.toml", _sites_toml(known))


def _sites_toml(sites: Mapping[str, str]) -> str:
    return write_tables({"sites": {show_key(name): key for name, key in sites.items()}})


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _own(folder: Path, part: str, name: str) -> Path:
    """Return the path of a file in the folder that `make_keys` made."""
    return present(folder / part / name, origin=f"{folder} must be a folder made by `fedotp keys make`")


def _known_sites(folder: Path) -> dict[str, str]:
    return read_sites(_own(folder, "server", "sites.toml"))


@contextlib.contextmanager
def _whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `folder` at the end and removed after a failure."""
    made: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # 0700
        yield made
        os.rename(made, folder)
    except BaseException as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(folder, error) from error
        raise


def _write_folder(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write new files into a new folder (mode 0700); files named *.key have mode 0600."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in files.items():
        mode = _OWNER_ONLY if name.endswith(".key") else _READABLE
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
