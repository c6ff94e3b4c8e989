"""Keys by request, revoked, expired and renewed while the server runs; where a site's private key is found."""

import base64
import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from holdings import folder_bytes
from near_sites import make_deployable
from real_processes import processes, rounds_done, training
from recorder import recording

from fedotp.flower.keys import ServerKeys, _make_keys, make_keys, request_key, revoke_site, sign_request
from fedotp.flower.keys._certificates import load_key, new_key
from fedotp.flower.link._superlink import free_port
from fedotp.runs.directory import RunDirectory

SLOW = training(
    "import os, time",
    "while round_ == 2 and not os.path.exists('go'): time.sleep(0.2)",
    "done = honest(self, agreement, number, round_, *rest)",
)


def scalar_forms(key: ec.EllipticCurvePrivateKey) -> list[bytes]:
    """The private number as it lies in any file: raw, in hexadecimal, in base64 at each of its three offsets."""
    raw = key.private_numbers().private_value.to_bytes(48, "big").lstrip(b"\0")
    coded = [base64.b64encode(bytes(offset) + raw)[(offset * 4 + 2) // 3 + 1 : -4] for offset in range(3)]
    return [raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), *coded]


def is_in(patterns: Iterable[bytes], content: bytes) -> bool:
    """Also across the line ends of PEM and the colons of OpenSSL's text."""
    joined = content.translate(None, b"\r\n :")
    return any(pattern in content or pattern in joined for pattern in patterns)


@pytest.mark.parametrize("encoding", ["PEM", "DER"])
@pytest.mark.parametrize("form", ["TraditionalOpenSSL", "PKCS8", "OpenSSH"])
def test_the_search_finds_a_private_key_in_all_forms(encoding: str, form: str) -> None:
    for _ in range(20):
        key = new_key()
        if form == "OpenSSH" and encoding == "DER":
            content = base64.b64encode(b"some text" + key.private_numbers().private_value.to_bytes(48, "big"))
        else:
            way = getattr(forms.Encoding, encoding), getattr(forms.PrivateFormat, form), forms.NoEncryption()
            content = key.private_bytes(*way)
        assert is_in(scalar_forms(key), b"before" + content)
        assert not is_in(scalar_forms(new_key()), content)


def bring(folder: Path, site: str) -> None:
    """Copy the coordinator's answer to the site, and the changed files to the server."""
    shutil.copytree(folder / "coordinator/keys/sites" / site, folder / "keys/sites" / site, dirs_exist_ok=True)
    to_server(folder)


def to_server(folder: Path) -> None:
    for name in ("sites.crt", "revoked.crl"):
        shutil.copy(folder / "coordinator/keys/server" / name, folder / "keys/server")


@pytest.mark.processes
def test_a_federation_whose_keys_change_while_it_runs(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """North is slow in round 2; in this round west is revoked, east expires and is renewed. No private key travels."""
    config = make_deployable(inputs, federation={"rounds": 3})
    (tmp_path / "study.toml").write_text(config.to_toml())
    own, run = tmp_path / "coordinator/keys", tmp_path / "run"
    make_keys(own, ["localhost"])
    requests = {site: request_key(site, tmp_path / "keys/sites" / site)[0] for site in ("north", "west", "east")}
    shutil.copytree(own / "server", tmp_path / "keys/server")
    for site, days in (("north", 20), ("west", 300)):
        sign_request(own, Path(shutil.copy(requests[site], own)), days=days)
        bring(tmp_path, site)
    port = free_port()
    with recording(ServerKeys.read(tmp_path / "keys/server"), port) as recorder, processes(tmp_path) as started:
        started.start_server(port)
        sign_request(own, Path(shutil.copy(requests["east"], own)))
        bring(tmp_path, "east")
        started.until(lambda: "site east is accepted" in started.log("server"))
        started.start_site(0, "north", recorder.port, code=SLOW)
        started.start_site(1, "west", recorder.port)
        started.start_site(2, "east", recorder.port)
        started.until(lambda: updates(tmp_path / "state/west") == [1, 2])
        assert rounds_done(run) == 1
        revoke_site(own, "west")
        to_server(tmp_path)
        started.until(lambda: "west is refused from now on: this key is revoked" in started.log("server"))
        assert started.wait("west") == 2, started.all_logs()
        assert "the coordinator has revoked this site's key" in started.log("west")
        with monkeypatch.context() as then:
            then.setattr(_make_keys, "current_time", lambda: datetime.now(UTC) - timedelta(days=1, seconds=1))
            sign_request(own, requests["east"], days=1)
        to_server(tmp_path)
        started.until(lambda: "this site's certificate has expired" in started.log("east"))
        assert "east is refused from now on: the certificate of this key has expired" in started.log("server")
        sign_request(own, request_key("east", tmp_path / "keys/sites/east")[0])
        bring(tmp_path, "east")
        started.until(lambda: started.log("server").count("site east is accepted") == 2)
        started.until(lambda: started.log("east").count("connected to") == 2)
        (tmp_path / "go").touch()
        assert started.wait("server") == 0, started.all_logs()
        heard = recorder.heard
        assert all("days; renew it" in started.log(name) for name in ("server", "north")), started.all_logs()
        assert "days; renew it" not in started.log("west")
    answered = [record["answered"] for record in RunDirectory.open(run).metrics("round")]
    assert answered[0] == [0, 1, 2]
    assert all(0 in sites and 1 not in sites for sites in answered[1:]), started.all_logs()
    assert 2 in answered[2], started.all_logs()
    refused = [event for event in events(tmp_path / "run.security.jsonl") if event["event"] == "key-refused"]
    reasons = {(event["site"], event["reason"]) for event in refused}
    whys = {"west": "this key is revoked", "east": "the certificate of this key has expired"}
    assert reasons == set(whys.items())
    keys = [event for event in events(tmp_path / "run.security.jsonl") if event.get("what") == "keys"]
    assert {event["site"]: event["refused"] for event in keys if "refused" in event} == whys
    assert [event["site"] for event in keys if "accepted" in event] == ["east", "east"]
    for site, request in requests.items():
        key = load_key(tmp_path / "keys/sites" / site / "site.key")
        places = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("lock",)]
        found = [path for path in places if is_in(scalar_forms(key), path.read_bytes())]
        assert found == [tmp_path / "keys/sites" / site / "site.key"]
        assert len(places) > 50
        assert not any(is_in(scalar_forms(key), part) for part in heard)
        public = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
        assert any(base64.b64encode(public) in part for part in heard), "the link was recorded"
        assert request.read_bytes() in folder_bytes(tmp_path)


def events(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def updates(state: Path) -> list[int]:
    """The rounds in which a site has sent its update."""
    return [int(event["round"]) for event in events(state / "security.jsonl") if event["event"] == "update"]
