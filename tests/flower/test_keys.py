"""Keys of a federation: what TLS, OpenSSL, OpenSSH and Flower say of them, and what is refused."""

import os
import shutil
import socket
import ssl
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.errors import FedotpError
from fedotp.flower.keys import (
    ServerKeys,
    SiteKeys,
    _make_keys,
    _read_keys,
    add_sites,
    key_facts,
    make_keys,
    remove_site,
    renew_server,
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
    expected |= {f"server/{name}": "-rw-r--r--" for name in ("ca.crt", "server.crt", "sites.toml")}
    expected |= {"server/server.key": "-rw-------"}
    for site in SITES:
        owner[f"sites/{site}"] = "drwx------"
        expected |= {f"sites/{site}/{name}": "-rw-r--r--" for name in ("ca.crt", "peers.toml", "site.pub", "site.toml")}
        expected[f"sites/{site}/site.key"] = "-rw-------"
    assert files(made) == owner | expected
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert len({(made / path).read_bytes() for path in expected if path.endswith("ca.crt")}) == 1


def shake_hands(server: Path, ca: Path, host: str) -> None:
    """Connect to a TLS server on loopback as `host`; raise what the connecting side raises."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server / "server.crt", server / "server.key")
    connecting = ssl.create_default_context(cafile=ca)
    connecting.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def accept() -> None:
            plain, _ = listener.accept()
            try:
                with serving.wrap_socket(plain, server_side=True) as connection:
                    connection.sendall(b"hello")
            except (ssl.SSLError, OSError):  # the other side hung up
                plain.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=20) as plain,
                connecting.wrap_socket(plain, server_hostname=host) as connection,
            ):
                assert connection.recv(5) == b"hello"
        finally:
            thread.join()


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
    renew_server(folder, days=10)
    ServerKeys.read(folder / "server")
    shake_hands(folder / "server", folder / "sites" / "north" / "ca.crt", "fl.example.org")
    renew_server(folder, ["new.example.org"])
    shake_hands(folder / "server", folder / "sites" / "north" / "ca.crt", "new.example.org")
    assert (folder / "server" / "server.key").read_bytes() == key
    with pytest.raises(FedotpError, match=r"ca.crt expires in \d+ days"):
        renew_server(folder, days=3650)


def test_a_certificate_of_tomorrow_is_refused(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_read_keys, "current_time", lambda: datetime.now(UTC) - timedelta(hours=20))  # a slow clock
    ServerKeys.read(keys / "server")
    monkeypatch.setattr(_read_keys, "current_time", lambda: datetime.now(UTC) - timedelta(days=3))
    for read, part in ((ServerKeys.read, keys / "server"), (SiteKeys.read, keys / "sites" / "north")):
        with pytest.raises(FedotpError, match="check this machine's clock"):
            read(part)


def test_sites_come_and_go(keys: Path) -> None:
    before = ServerKeys.read(keys / "server").sites
    add_sites(keys, ["west", "0815"])
    sites = ServerKeys.read(keys / "server").sites
    assert list(sites) == [*SITES, "west", "0815"]
    assert {name: sites[name] for name in SITES} == before
    assert SiteKeys.read(keys / "sites" / "west").server == "fl.example.org:8000"
    assert stat.S_IMODE((keys / "sites" / "west").stat().st_mode) == 0o700
    assert all(SiteKeys.read(keys / "sites" / name).peers == sites for name in sites)
    remove_site(keys, "west")
    assert list(ServerKeys.read(keys / "server").sites) == [*SITES, "0815"]
    assert not (keys / "sites" / "west").exists()
    assert list(SiteKeys.read(keys / "sites" / "0815").peers or ()) == [*SITES, "0815"]
    with pytest.raises(FedotpError, match=r"no site 'west'; its sites are: north, St\.Mary_2, east-1, 0815"):
        remove_site(keys, "west")
    add_sites(keys, ["west"])
    assert ServerKeys.read(keys / "server").sites["west"] != sites["west"]
    for name in [*SITES, "west", "0815"]:
        remove_site(keys, name)
    with pytest.raises(FedotpError, match="contains no site"):
        ServerKeys.read(keys / "server")


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
        add_sites(keys, ["fine", site])
    assert not (tmp_path / "new").exists()
    assert files(keys) == before


HOSTS = ["", "fl.example.org:8000", "https://a", "*.org", "a b", "-a.org", "10.0.0", "1.2.3.256", "a" * 64, "ä.org"]
WRONG: list[tuple[list[str], list[str], int, str]] = [
    *((["localhost", host], ["a"], 30, "is not a host") for host in HOSTS),
    *((["localhost"], ["a"], days, "must be from 1 to 3653") for days in (0, -1, 4000)),
    (["localhost"], [], 30, "at least one site"),
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
    with pytest.raises(FedotpError, match="site 'NORTH' already exists"):
        add_sites(keys, ["new", "NORTH"])
    assert {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()} == before
    (tmp_path / "empty").mkdir()
    make_keys(tmp_path / "empty", ["localhost"], ["a"])
    assert list(ServerKeys.read(tmp_path / "empty" / "server").sites) == ["a"]


def test_a_failure_in_the_middle_leaves_nothing(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = _make_keys._write_folder

    def full_disk(folder: Path, contents: dict[str, bytes | str]) -> None:
        write(folder, contents)
        if "server.key" in contents or folder.name.startswith(".b."):
            raise OSError(28, "No space left on device")

    before = files(tmp_path)
    monkeypatch.setattr(_make_keys, "_write_folder", full_disk)
    with pytest.raises(FedotpError, match=r"cannot write .*new: No space left on device"):
        make_keys(tmp_path / "new", ["localhost"], ["a"])
    with pytest.raises(FedotpError, match=r"cannot write .*b: No space left on device"):
        add_sites(keys, ["a", "b"])
    assert files(tmp_path) == before


def other_key(folder: Path) -> bytes:
    make_keys(folder.parent / "other", ["localhost"], ["north"])
    return (folder.parent / "other" / "server" / "server.key").read_bytes()


def pipe_in_place_of(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("server/ca.crt", Path.unlink, "server has no ca.crt; copy the whole folder server/"),
    ("server/server.crt", lambda p: p.write_text("x"), "server.crt is not a certificate"),
    ("server/server.crt", lambda p: pipe_in_place_of(p), "cannot read .*server.crt: not a regular file"),
    ("server/server.key", lambda p: p.write_text("x"), "server.key is not an elliptic-curve private key"),
    ("server/server.key", lambda p: p.chmod(0o640), "too open; run: chmod 600 '.*server.key'"),
    ("server/server.key", lambda p: p.write_bytes(other_key(p.parents[1])), "server.crt does not match server.key"),
    ("server/sites.toml", lambda p: p.write_text("[sites"), "sites.toml is not valid TOML"),
    ("server/sites.toml", lambda p: p.write_text("a." * 50_000 + "a = 1"), "is not valid TOML: a dotted key has more"),
    ("server/sites.toml", lambda p: p.write_text("a = 1"), r"must contain a table \[sites\]"),
    ("server/sites.toml", lambda p: p.write_text('[sites]\na = "ecdsa-sha2-nistp384 AAAA"'), "the key of a must be"),
    ("server/sites.toml", lambda p: p.write_text('[sites]\n"../a" = ""'), "is not a valid site name"),
    ("server/sites.toml", lambda p: p.write_text(p.read_text().replace("east-1", "x") + twice(p)), "the same key"),
    ("sites/north/site.key", Path.unlink, "north has no site.key; copy the whole folder sites/NAME/"),
    ("sites/north/site.key", lambda p: p.chmod(0o604), "permissions of the private key"),
    ("sites/north/site.toml", lambda p: p.write_text('name = "north"'), "must contain name = .* and server = "),
    ("sites/north/ca.crt", lambda p: p.write_bytes(b"\xff"), "ca.crt is not a certificate"),
]


def twice(path: Path) -> str:
    """The last line of sites.toml once more, under the name east-1."""
    return path.read_text().splitlines()[-1] + "\n"


@pytest.mark.parametrize(("name", "damage", "line"), DAMAGE)
def test_what_the_readers_refuse(keys: Path, name: str, damage: Callable[[Path], object], line: str) -> None:
    damage(keys / name)
    read = ServerKeys.read if name.startswith("server/") else SiteKeys.read
    with pytest.raises(FedotpError, match=line) as caught:
        read((keys / name).parent)
    assert "\n" not in str(caught.value)


def test_a_certificate_of_another_authority_is_refused(keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "other", ["localhost"], ["north"])
    shutil.copy(tmp_path / "other" / "authority" / "ca.crt", keys / "server" / "ca.crt")
    with pytest.raises(FedotpError, match=r"server\.crt is not signed by ca\.crt"):
        ServerKeys.read(keys / "server")


def test_the_wrong_folder(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match=f"use {keys / 'server'}$"):
        ServerKeys.read(keys)
    with pytest.raises(FedotpError, match=f"use the folder of one site in {keys / 'sites'}$"):
        SiteKeys.read(keys)
    with pytest.raises(FedotpError, match="must be a folder made by `fedotp keys make`"):
        add_sites(tmp_path / "nowhere", ["a"])


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def fedotp(*words: str) -> list[str]:
        done = CliRunner().invoke(app, ["keys", *words], catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout.splitlines()

    shown = fedotp("make", "keys", "--server", "fl.example.org, 10.0.0.7", "--sites", "north,south")
    assert [line.split()[-1] for line in shown] == [
        "keys/authority",
        "keys/server",
        "keys/sites/north",
        "keys/sites/south",
    ]
    assert fedotp("add", "keys", "west", "east")[-1].startswith("copy keys/server/sites.toml to the server")
    fedotp("remove", "keys", "south")
    fedotp("renew", "keys", "--days", "5")
    whose = [line.split("  ")[0] for line in fedotp("show", "keys")[1:]]
    assert whose == ["authority", "server", "site north", "site west", "site east"]
    assert len(fedotp("show", "keys/server")) == 1 + len(whose)
    whose = [line.split("  ")[0] for line in fedotp("show", "keys/sites/west")[1:]]
    assert whose == ["authority", "site west", "peer north", "peer east"]
