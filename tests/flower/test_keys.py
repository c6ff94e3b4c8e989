"""Keys of a federation: what TLS, OpenSSL, OpenSSH and Flower say of them, and what is refused."""

import logging
import os
import re
import shutil
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.errors import FedotpError
from fedotp.flower.keys import (
    EXPIRED,
    REVOKED,
    ExpiryWarnings,
    LiveKeys,
    ServerKeys,
    SiteKeys,
    _make_keys,
    _read_keys,
    key_facts,
    make_keys,
    renew_server,
    request_key,
    revoke_site,
    sign_request,
)
from fedotp.flower.keys._certificates import certified_hosts, load_certificate

SITES = ["north", "St.Mary_2", "east-1"]


def files(folder: Path) -> dict[str, str]:
    """Every path below a folder, with its permissions."""
    return {str(p.relative_to(folder)): stat.filemode(p.stat().st_mode) for p in folder.rglob("*")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "keys"
    before = os.umask(0o022)
    try:
        make_keys(folder, ["fl.example.org", "10.0.0.7", "::1"], SITES)
    finally:
        os.umask(before)
    return folder


@pytest.fixture
def keys(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(made, tmp_path / "keys"))


def test_the_layout(made: Path) -> None:
    owner = {"sites": "drwx------", "server": "drwx------", "authority": "drwx------"}
    expected = {"authority/ca.crt": "-rw-r--r--", "authority/ca.key": "-rw-------"}
    expected |= {f"server/{name}": "-rw-r--r--" for name in ("ca.crt", "server.crt", "sites.crt", "revoked.crl")}
    expected |= {"server/server.key": "-rw-------"}
    for site in SITES:
        owner[f"sites/{site}"] = "drwx------"
        names = ("ca.crt", "site.crt", "peers.crt", "site.toml", f"{site}.csr")
        expected |= {f"sites/{site}/{name}": "-rw-r--r--" for name in names}
        expected[f"sites/{site}/site.key"] = "-rw-------"
    assert files(made) == owner | expected
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert len({(made / path).read_bytes() for path in expected if path.endswith("ca.crt")}) == 1


def shake_hands(server: Path, ca: Path, host: str) -> None:
    """Let a TLS client connect to the server as `host`; raise what the client raises."""
    serving, connecting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=ca)
    serving.load_cert_chain(server / "server.crt", server / "server.key")
    connecting.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = connecting.wrap_bio(down, up, server_hostname=host)
    for side in (client, serving.wrap_bio(up, down, server_side=True), client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.getpeercert()


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.7", "::1", "localhost", "127.0.0.1"])
def test_tls_under_every_name(made: Path, host: str) -> None:
    shake_hands(made / "server", made / "sites" / "north" / "ca.crt", host)


def test_tls_refuses_another_name_and_another_authority(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.example\.org'"):
        shake_hands(made / "server", made / "server" / "ca.crt", "other.example.org")
    make_keys(tmp_path / "other", ["fl.example.org"], ["north"])
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate"):
        shake_hands(tmp_path / "other" / "server", made / "sites" / "north" / "ca.crt", "fl.example.org")


def test_an_expired_certificate_is_refused_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, today = tmp_path / "keys", datetime.now(UTC)
    with monkeypatch.context() as then:
        then.setattr(_make_keys, "current_time", lambda: today - timedelta(days=31))
        make_keys(folder, ["fl.example.org"], ["north"], days=30)
    key = (folder / "server" / "server.key").read_bytes()
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(folder / "server", folder / "authority" / "ca.crt", "localhost")
    with pytest.raises(FedotpError, match=r"server.crt expired on \d{4}-\d\d-\d\d; .*fedotp keys renew"):
        ServerKeys.read(folder / "server")
    assert [remark[:7] for whose, _, remark in key_facts(folder) if whose == "server"] == ["EXPIRED"]
    held = [("server.crt", load_certificate(folder / "server" / "server.crt"))]
    assert re.match(r"server.crt expired on .*; renew it", *ExpiryWarnings(logging.getLogger(), lambda: held).soon())
    renew_server(folder, days=10)
    ServerKeys.read(folder / "server")
    shake_hands(folder / "server", folder / "sites" / "north" / "ca.crt", "fl.example.org")
    renew_server(folder, ["new.example.org"])
    shake_hands(folder / "server", folder / "sites" / "north" / "ca.crt", "new.example.org")
    assert (folder / "server" / "server.key").read_bytes() == key
    with pytest.raises(FedotpError, match=r"--days must be from 1 to \d+, when the authority expires, got 3650"):
        renew_server(folder, days=3650)


def test_a_certificate_of_tomorrow_is_refused(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_read_keys, "current_time", lambda: datetime.now(UTC) - timedelta(hours=20))  # a slow clock
    ServerKeys.read(keys / "server")
    monkeypatch.setattr(_read_keys, "current_time", lambda: datetime.now(UTC) - timedelta(days=3))
    for read, part in ((ServerKeys.read, keys / "server"), (SiteKeys.read, keys / "sites" / "north")):
        with pytest.raises(FedotpError, match="check this machine's clock"):
            read(part)


def sign(keys: Path, site: str, folder: Path, **options: Any) -> str:
    """Make a request in `folder`, sign it, and bring the answer; the public key."""
    request, key = request_key(site, folder)
    assert sign_request(keys, request, **options) == (site, key)
    shutil.copytree(keys / "sites" / site, folder, dirs_exist_ok=True)
    return key


def test_sites_come_and_go(keys: Path, tmp_path: Path) -> None:
    before = ServerKeys.read(keys / "server").sites
    west = sign(keys, "west", tmp_path / "west")
    sign(keys, "0815", tmp_path / "0815")
    sites = ServerKeys.read(keys / "server").sites
    assert list(sites) == [*SITES, "west", "0815"]
    assert {name: sites[name] for name in SITES} == before
    assert sites["west"] == west
    assert SiteKeys.read(tmp_path / "west").server == "fl.example.org:8000"
    assert stat.S_IMODE((tmp_path / "west").stat().st_mode) == 0o700
    assert SiteKeys.read(tmp_path / "0815").peers == sites
    assert SiteKeys.read(keys / "sites" / "north").peers == sites
    revoke_site(keys, "west")
    assert list(ServerKeys.read(keys / "server").sites) == [*SITES, "0815"]
    assert not (keys / "sites" / "west").exists()
    assert list(SiteKeys.read(keys / "sites" / "north").peers or ()) == [*SITES, "0815"]
    with pytest.raises(FedotpError, match=r"no site 'west' to revoke; its sites are: north, St\.Mary_2, east-1, 0815"):
        revoke_site(keys, "west")
    with pytest.raises(FedotpError, match=r"west\.csr: this key is revoked; make a new one"):
        sign(keys, "west", tmp_path / "west")
    assert sign(keys, "west", tmp_path / "again") == ServerKeys.read(keys / "server").sites["west"] != west
    for name in [*SITES, "west", "0815"]:
        revoke_site(keys, name)
    with pytest.raises(FedotpError, match="contains no valid certificate"):
        ServerKeys.read(keys / "server")


def test_no_two_commands_change_a_folder_at_the_same_time(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def revoke_another(*arguments: Any) -> None:
        with pytest.raises(FedotpError, match="another command is changing"):
            revoke_site(keys, "St.Mary_2")
        write(*arguments)

    write = _make_keys.write_atomically
    with monkeypatch.context() as then:
        then.setattr(_make_keys, "write_atomically", revoke_another)
        revoke_site(keys, "north")
    assert list(ServerKeys.read(keys / "server").sites) == SITES[1:]


def test_another_key_of_a_site_replaces_its_old_one_only_on_request(keys: Path, tmp_path: Path) -> None:
    old = ServerKeys.read(keys / "server").sites["north"]
    before = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    with pytest.raises(FedotpError, match=r"north\.csr: site north has another key; use --replace to revoke it"):
        sign(keys, "north", tmp_path / "north")
    assert {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()} == before
    new = sign(keys, "north", tmp_path / "north", replace=True)
    held = ServerKeys.read(keys / "server")
    assert held.sites["north"] == new
    assert list(held.sites) == SITES
    assert held.listed.refused(datetime.now(UTC)) == {old: ("north", REVOKED)}
    SiteKeys.read(tmp_path / "north")
    assert not (keys / "sites" / "north" / "site.key").exists(), "the answer would overwrite the new key"
    stolen, _ = request_key("other", tmp_path / "north")
    with pytest.raises(FedotpError, match="site north has this key; every site needs its own"):
        sign_request(keys, stolen)


def test_a_certificate_is_renewed_with_the_same_key(keys: Path, tmp_path: Path, monkeypatch: Any) -> None:
    later = datetime.now(UTC) + timedelta(days=31)
    key = sign(keys, "west", tmp_path / "west", days=30)
    assert ServerKeys.read(keys / "server").sites["west"] == key
    for module in (_make_keys, _read_keys):
        monkeypatch.setattr(module, "current_time", lambda: later)
    held = ServerKeys.read(keys / "server")
    assert "west" not in held.sites
    assert held.listed.refused(later) == {key: ("west", EXPIRED)}
    with pytest.raises(FedotpError, match=r"site\.crt expired on .*; repeat `fedotp keys request`"):
        SiteKeys.read(tmp_path / "west")
    assert [remark[:7] for whose, _, remark in key_facts(keys) if whose == "site west"] == ["EXPIRED"]
    assert sign(keys, "west", tmp_path / "west") == key
    SiteKeys.read(tmp_path / "west")
    held = ServerKeys.read(keys / "server")
    assert held.sites["west"] == key
    assert not held.listed.refused(later)
    revoke_site(keys, "west")  # all its certificates
    held = ServerKeys.read(keys / "server")
    assert {each.serial_number for name, each in held.listed.certificates if name == "west"} == held.listed.revoked
    assert len(held.listed.revoked) == 2


def test_a_running_server_keeps_its_keys_if_files_are_lost_and_forgets_no_revocation(keys: Path, lines: Any) -> None:
    folder = keys / "server"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    live = LiveKeys(ServerKeys.read(folder), logging.getLogger("fedotp.server"))
    (folder / "revoked.crl").unlink()
    live.refresh()
    assert "server has no revoked.crl; copy the whole folder again; continuing with the keys read before" in lines.text
    (folder / "revoked.crl").write_bytes(before[folder / "revoked.crl"])
    revoke_site(keys, "north")
    (folder / "server.crt").unlink()  # the rest of the folder is not read, but the list of revoked certificates is
    assert live.refresh()
    assert list(live.accepted) == SITES[1:]
    for path, content in before.items():
        path.write_bytes(content)
    live.refresh()
    assert list(live.accepted) == SITES[1:]
    assert [name for name, _ in live.refused.values()] == ["north"]


def test_an_address_of_the_sixth_version(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["2001:DB8::1"], ["a"])
    assert SiteKeys.read(tmp_path / "keys" / "sites" / "a").server == "[2001:db8::1]:8000"
    assert certified_hosts(load_certificate(tmp_path / "keys" / "server" / "server.crt"))[0] == "2001:db8::1"


@pytest.mark.parametrize("site", ["", "a b", "../a", "a/b", ".", "..", ".a", "-a", "ä", "a\n", "a" * 65])
def test_names_that_no_folder_should_have(tmp_path: Path, keys: Path, site: str) -> None:
    before = files(keys)
    with pytest.raises(FedotpError, match="is not a valid site name"):
        make_keys(tmp_path / "new", ["localhost"], ["fine", site])
    with pytest.raises(FedotpError, match="is not a valid site name"):
        request_key(site, keys / "new")
    assert not (tmp_path / "new").exists()
    assert files(keys) == before


HOSTS = ["", "fl.example.org:8000", "https://a", "*.org", "a b", "-a.org", "10.0.0", "1.2.3.256", "a" * 64, "ä.org"]
WRONG: list[tuple[list[str], list[str], int, str]] = [
    *((["localhost", host], ["a"], 30, "is not a host") for host in HOSTS),
    *((["localhost"], ["a"], days, "must be from 1 to 3652") for days in (0, -1, 4000)),
    ([], ["a"], 30, "at least one host"),
    (["localhost"], ["a", "A"], 30, "site 'A' already exists"),
]


@pytest.mark.parametrize(("hosts", "sites", "days", "line"), WRONG)
def test_what_no_keys_are_made_for(tmp_path: Path, hosts: list[str], sites: list[str], days: int, line: str) -> None:
    with pytest.raises(FedotpError, match=line):
        make_keys(tmp_path / "keys", hosts, sites, days=days)
    assert not (tmp_path / "keys").exists()


def test_nothing_is_overwritten(keys: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    with pytest.raises(FedotpError, match="already exists"):
        make_keys(keys, ["localhost"], ["a"])
    request, _ = request_key("NORTH", tmp_path / "other")
    with pytest.raises(FedotpError, match="site 'NORTH' already exists"):
        sign_request(keys, request)
    assert {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()} == before
    (tmp_path / "empty").mkdir()
    make_keys(tmp_path / "empty", ["localhost"], ["a"])
    assert list(ServerKeys.read(tmp_path / "empty" / "server").sites) == ["a"]


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = _make_keys._write_folder

    def full_disk(folder: Path, contents: dict[str, bytes | str]) -> None:
        write(folder, contents)
        if "server.key" in contents:
            raise OSError(28, "No space left on device")

    before = files(tmp_path)
    monkeypatch.setattr(_make_keys, "_write_folder", full_disk)
    with pytest.raises(FedotpError, match=r"cannot write .*new: No space left on device"):
        make_keys(tmp_path / "new", ["localhost"], ["a"])
    assert files(tmp_path) == before


def of_another(path: Path) -> None:
    """Put the file of another federation in its place."""
    other = path.parents[2] / "other"
    make_keys(other, ["localhost"], ["north"])
    shutil.copy(other / path.parent.name / path.name, path)


def pipe_in_place_of(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def cut(path: Path) -> None:
    """Leave what a copy that was interrupted leaves."""
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("server/ca.crt", Path.unlink, "server has no ca.crt; copy the whole folder again"),
    ("server/server.crt", lambda p: p.write_text("x"), "server.crt is not a certificate"),
    ("server/server.crt", pipe_in_place_of, "cannot read .*server.crt: not a regular file"),
    ("server/server.key", lambda p: p.chmod(0o640), "too open; run: chmod 600 '.*server.key'"),
    ("server/server.key", of_another, "server.crt does not match server.key"),
    ("server/ca.crt", of_another, "server.crt is not signed by ca.crt"),
    ("server/sites.crt", of_another, "sites.crt is not signed by ca.crt"),
    ("server/sites.crt", cut, "sites.crt is not a certificate"),
    ("server/sites.crt", lambda p: p.write_bytes(p.with_name("server.crt").read_bytes()), "'fedotp server'.* not the"),
    ("server/revoked.crl", cut, "revoked.crl is not a list of revoked certificates"),
    ("server/revoked.crl", of_another, "revoked.crl is not signed by ca.crt"),
    ("sites/north/site.key", Path.unlink, "north has no site.key; make it with `fedotp keys request`"),
    ("sites/north/site.crt", Path.unlink, "north has no site.crt; copy the coordinator's answer"),
    ("sites/north/site.crt", lambda p: shutil.copy(p.parents[1] / "east-1/site.crt", p), "does not match site.key"),
    ("sites/north/site.toml", lambda p: p.write_text("a = 1"), "must contain server = "),
    ("sites/north/site.toml", lambda p: p.write_text("a." * 50_000 + "a = 1"), "is not valid TOML: a dotted key has"),
    ("sites/north/ca.crt", lambda p: p.write_bytes(b"\xff"), "ca.crt is not a certificate"),
]


@pytest.mark.parametrize(("name", "damage", "line"), DAMAGE)
def test_what_the_readers_refuse(keys: Path, name: str, damage: Callable[[Path], object], line: str) -> None:
    damage(keys / name)
    read = ServerKeys.read if name.startswith("server/") else SiteKeys.read
    with pytest.raises(FedotpError, match=line) as caught:
        read((keys / name).parent)
    assert "\n" not in str(caught.value)


def test_the_wrong_folder(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match=f"use {keys / 'server'}$"):
        ServerKeys.read(keys)
    with pytest.raises(FedotpError, match=f"use the folder of one site in {keys / 'sites'}$"):
        SiteKeys.read(keys)
    with pytest.raises(FedotpError, match="must be a folder made by `fedotp keys make`"):
        revoke_site(tmp_path / "nowhere", "a")


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def fedotp(*words: str) -> list[str]:
        done = CliRunner().invoke(app, ["keys", *words], catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout.splitlines()

    shown = fedotp("make", "keys", "--server", "fl.example.org, 10.0.0.7", "--sites", "north,south")
    places = ["keys/authority", "keys/server", "keys/sites/north", "keys/sites/south"]
    assert [line.split()[-1] for line in shown[:-1]] == places
    assert "for trials only" in shown[-1]
    shown = fedotp("request", "west", "west")
    (west,) = re.findall("SHA256:[^ ]+$", shown[1])
    assert shown[0].split()[-1] == "west/west.csr"
    assert fedotp("show", "west/west.csr")[1:] == [f"request of site west  {west}"]
    shown = fedotp("sign", "keys", "west/west.csr", "--days", "20")
    assert shown[0] == f"west: {west}"
    assert shown[-2].endswith("without a restart: keys/server/sites.crt")
    assert fedotp("revoke", "keys", "south")[-1].endswith(": keys/server/revoked.crl")
    assert fedotp("renew", "keys", "--days", "5")[-1].endswith(": keys/server/server.crt")
    rows = [re.split("  +", line) for line in fedotp("show", "keys")[1:]]
    assert [row[0] for row in rows] == ["authority", "server", "site north", "site south", "site west"]
    assert rows[3][2] == "REVOKED"
    assert rows[4][1] == west
    assert len(fedotp("show", "keys/server")) == 1 + len(rows)
    assert fedotp("show", "west")[1:] == [f"site   {west}  not signed yet"]
    shutil.copytree("keys/sites/west", "west", dirs_exist_ok=True)
    whose = [line.split("  ")[0] for line in fedotp("show", "west")[1:]]
    assert whose == ["authority", "site west", "peer north"]
