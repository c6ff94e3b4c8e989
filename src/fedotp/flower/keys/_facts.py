"""What a folder of keys has, in words: to compare fingerprints over the telephone, to see what expires."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from fedotp.flower.keys._certificates import certified_hosts, fingerprint, load_certificate, load_key
from fedotp.flower.keys._files import present, read_toml
from fedotp.flower.keys._keys import key_fingerprint, read_sites

Fact = tuple[str, str, str]  # of what, its fingerprint, a remark


def key_facts(folder: Path) -> list[Fact]:
    """Return what is in `folder`: all keys of a federation, or the server's part of them, or a site's."""
    if (folder / "site.toml").is_file():
        return list(_site_facts(folder))
    if (folder / "sites.toml").is_file():
        return list(_server_facts(folder))
    origin = f"{folder} must be a folder that `fedotp keys make` made, or the part of it for the server or for a site"
    present(folder / "server" / "sites.toml", origin=origin)
    return list(_server_facts(folder / "server", sites=folder / "sites"))


def _site_facts(folder: Path) -> Iterator[Fact]:
    yield _certificate_fact("authority", folder / "ca.crt")
    key = load_key(present(folder / "site.key", origin="copy the whole folder again")).public_key()
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    values = read_toml(folder / "site.toml")
    yield f"site {values.get('name')}", key_fingerprint(text), f"connects to {values.get('server')}"
    if (folder / "peers.toml").exists():
        peers = read_sites(present(folder / "peers.toml", origin="copy the whole folder again"))
        for name, public in peers.items():
            if name != values.get("name"):
                yield f"peer {name}", key_fingerprint(public), ""


def _server_facts(folder: Path, sites: Path | None = None) -> Iterator[Fact]:
    yield _certificate_fact("authority", folder / "ca.crt")
    name, digest, expires = _certificate_fact("server", folder / "server.crt")
    yield name, digest, f"{expires}, for {', '.join(certified_hosts(load_certificate(folder / 'server.crt')))}"
    for name, key in read_sites(folder / "sites.toml").items():
        gone = sites is not None and not (sites / name / "site.key").is_file()
        yield f"site {name}", key_fingerprint(key), "its private key is not here" if gone else ""


def _certificate_fact(name: str, path: Path) -> Fact:
    certificate = load_certificate(present(path, origin="copy the whole folder again"))
    end = certificate.not_valid_after_utc
    return name, fingerprint(certificate), f"{'expires' if datetime.now(UTC) <= end else 'EXPIRED'} {end:%Y-%m-%d}"
