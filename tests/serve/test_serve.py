"""The server without a browser: what it answers, and what it refuses."""

import io
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serve_made import EVIL, Served, make_run, served

from cli.cli_made import command
from fedotp.classifier import Classifier, calibrated_by, load, open_classifiers
from fedotp.errors import FedotpError
from fedotp.methods import Dial
from fedotp.runs.directory import RunDirectory
from fedotp.serve import make_server
from fedotp.serve._server import Server


def test_about(page: Served, run: RunDirectory) -> None:
    about = page.ask("GET", "/api/about").json
    assert about["clients"] == ["client-0", "client-1"]
    assert about["classes"] == [EVIL, "blue", "red"]
    assert (about["method"], about["mass"], about["dial"], about["transport"]) == ("FedOTP", 0.8, 0.5, True)
    assert about["backbone"] == "tiny.safetensors"  # not where it lies


@pytest.mark.parametrize(
    ("client", "mass", "dial"), [("client-0", None, None), ("client-1", None, 0.9), ("client-1", 0.3, "confidence")]
)
def test_what_the_client_predicts(
    page: Served, run: RunDirectory, image: Path, client: str, mass: float | None, dial: Dial | None
) -> None:
    classifier = load(run.path, client)
    classifier = classifier if mass is None else classifier.with_mass(mass)
    classifier = classifier if dial is None else classifier.with_dial(dial)
    answer = page.look(page.upload(image.read_bytes()), client, "blue", mass, dial)
    assert answer.status == 200
    found = answer.json
    (best,) = classifier.predict(image).top(3)
    assert [each["name"] for each in found["best"]] == [name for name, _ in best]
    np.testing.assert_allclose([each["probability"] for each in found["best"]], [p for _, p in best], atol=1e-6)
    maps = classifier.explain(image, "blue")
    np.testing.assert_allclose(found["similarity"], maps.similarity, atol=1e-4)
    np.testing.assert_allclose(found["plan"], maps.plan * 16, atol=1e-4)  # of each of the 16 patches
    assert (found["label"], found["kinds"]) == ("blue", ["global", "local"])


def test_limits_of_a_calibrated_client(run: RunDirectory, image: Path) -> None:
    """Sets at every coverage there are images for, of the classifier as it was trained; none of one that is not."""
    calibrated = load(run.path, "client-0")
    calibrated = calibrated_by(calibrated, run.config.data.dataset)
    with served(run.path, calibrate=run.config.data.dataset) as page:
        number = page.upload(image.read_bytes())
        found = page.look(number, "client-0").json["limits"]
        assert page.look(number, "client-0", mass=0.3).json["limits"] == {"images": None}
    assert found["images"] == 8
    expected = calibrated.predict(image)
    assert expected.p_values is not None
    assert (found["p_value"], found["unlike"]) == (expected.p_values[0], bool(expected.unlike[0]))
    for each, least in zip(found["sets"], (4, 9, 19, 99), strict=True):
        assert each["least"] == least
        if least > 8:
            assert each["set"] is None
        else:
            assert each["set"] == calibrated.predict(image, coverage=each["coverage"]).sets[0]


def test_class_frequencies_are_for_this_machine_only(run: RunDirectory, image: Path) -> None:
    server = make_server(open_classifiers(run.path), host="0.0.0.0", port=0)
    try:
        number = server.model.add(image.read_bytes())["id"]
        assert server.model.look(number, "client-0", None, None, None, None)["prior"] is None
        with pytest.raises(FedotpError, match="can be set only on the machine of this server"):
            server.model.look(number, "client-0", None, None, None, 1.0)
    finally:
        server.server_close()


def test_the_tower_sees_an_image_once(page: Served, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    encode = Classifier.encode
    monkeypatch.setattr(Classifier, "encode", lambda self, images: encoded.append(1) or encode(self, images))
    kept = page.upload(image.read_bytes())
    for mass in (0.2, 0.5, 0.9):
        assert page.look(kept, "client-0", mass=mass).status == 200
        assert page.look(kept, "client-1", mass=mass).status == 200
    assert len(encoded) == 1


def test_an_image_comes_back_as_the_tower_sees_it(page: Served, image: Path) -> None:
    answer = page.ask("GET", f"/api/images/{page.upload(image.read_bytes())}")
    assert answer.headers["Content-Type"] == "image/png"
    with Image.open(io.BytesIO(answer.body)) as seen, Image.open(image) as original:
        assert seen.size == (32, 32)
        np.testing.assert_array_equal(np.asarray(seen), np.asarray(original.convert("RGB")))


def test_old_images_are_forgotten(page: Served, image: Path) -> None:
    first = page.upload(image.read_bytes())
    for _ in range(64):
        page.upload(image.read_bytes())
    answer = page.look(first, "client-0")
    assert (answer.status, answer.json["error"]) == (422, "this image is no longer in memory; choose it again")
    assert page.ask("GET", f"/api/images/{first}").status == 404


def test_samples_are_the_clients_own_test_images(page: Served, run: RunDirectory) -> None:
    samples = page.ask("GET", "/api/samples?client=client-1").json["samples"]
    assert 0 < len(samples) <= 8
    assert len(samples) <= len(run.partition.clients[1].test)
    assert page.look(samples[0]["id"], "client-1").status == 200
    assert page.ask("GET", "/api/samples?client=nobody").json == {"samples": []}


def test_a_bundle_and_a_method_without_transport(tmp_path: Path) -> None:
    run = make_run(tmp_path, method={"name": "coop"})
    load(run.path, "client-1").save(tmp_path / "bundle")
    with served(tmp_path / "bundle", backbone=tmp_path / "tiny.safetensors") as page:
        about = page.ask("GET", "/api/about").json
        assert (about["clients"], about["mass"], about["dial"], about["transport"]) == (["client-1"], None, None, False)
        assert about["backbone"] == "tiny.safetensors"
        image = (tmp_path / "data" / "day" / "red" / "0.png").read_bytes()
        found = page.look(page.upload(image), "client-1").json
        assert (found["plan"], found["kinds"]) == (None, ["local"])
        refused = page.look(page.upload(image), "client-1", mass=0.5)
        assert (refused.status, refused.json["error"][:29]) == (422, "CoOp (local) has no option ma")


# Who may ask ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/icon.svg", "/api/about"])
def test_every_answer_is_locked_down(page: Served, path: str) -> None:
    answer = page.ask("GET", path)
    assert answer.status == 200
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_name_it_is_called_by(page: Served) -> None:
    port = page.host.split(":")[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert page.ask("GET", "/api/about", Host=host).status == 200, host
    for host in (f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{port}", "", "[", "a:b"):
        for method, path in (("GET", "/"), ("GET", "/api/about"), ("POST", "/api/look")):
            answer = page.ask(method, path, b"" if method == "POST" else None, Host=host)
            assert answer.status == 403, host
            assert "other names" in answer.json["error"]


def test_no_other_page_may_ask(page: Served, image: Path) -> None:
    content = image.read_bytes()
    assert page.ask("POST", "/api/images", content, Origin=f"http://{page.host}").status == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://{page.host}"):
        assert page.ask("POST", "/api/images", content, Origin=origin).status == 403, origin
        assert page.ask("GET", "/api/about", Origin=origin).status == 403, origin


def test_what_a_browser_says_of_who_asks(page: Served) -> None:
    for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
        assert page.ask("GET", "/api/about", Sec_Fetch_Site=site).status == status, site
        assert page.ask("GET", "/", Sec_Fetch_Site=site).status == 200  # a link may lead here


@pytest.mark.parametrize("sent", [b"hello", b"GET / HTTP/9.9", b"\0\xff ", b"GET /api/about", b"POST //[ HTTP/1.1"])
def test_what_is_hardly_http(page: Served, sent: bytes) -> None:
    with (
        socket.create_connection(page.server.server_address[:2], timeout=30) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(sent + b"\r\n\r\n")
        assert b'{"error": ' in file.read()


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/assets/../_server.py",
        "//evil.example/",
        "//[",
        "/api/images/%00",
    ],
)
def test_there_are_no_other_files(page: Served, path: str) -> None:
    answer = page.ask("GET", path)
    assert answer.status == 404
    assert answer.json.keys() == {"error"}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods_are_refused(page: Served, method: str) -> None:
    assert page.ask(method, "/api/about").status == 501


# What is sent -----------------------------------------------------------------------------------------------


def test_too_much_is_refused_before_it_is_read(page: Served) -> None:
    answer = page.ask("POST", "/api/images", b"", Content_Length="64000001")
    assert (answer.status, answer.json["error"]) == (413, "the content must be at most 64 MB")
    assert page.ask("POST", "/api/look", b"", Content_Length="100001").status == 413
    assert page.ask("POST", "/api/images", b"", Content_Length="9" * 5000).status == 413
    for length in ("-1", "1e3", "", "\xb2"):
        assert page.ask("POST", "/api/images", b"", Content_Length=length).status == 411, length
    assert page.ask("POST", "/api/images", None, Transfer_Encoding="chunked").status == 411


def test_a_body_that_ends_early(page: Served) -> None:
    with socket.create_connection(page.server.server_address[:2], timeout=30) as connection:
        connection.sendall(f"POST /api/images HTTP/1.1\r\nHost: {page.host}\r\nContent-Length: 9\r\n\r\nhi".encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as file:
            assert file.readline() == b"HTTP/1.1 400 Bad Request\r\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "zero bytes"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a supported format"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, ""),
        (11_000, "too many pixels: must be at most 120 million"),
    ],
    ids=["empty", "svg", "postscript", "cut", "bomb"],
)
def test_a_bad_upload_gets_a_readable_line(page: Served, content: bytes | int, complaint: str) -> None:
    """Bytes, or the width of a picture that unfolds to too much."""
    if isinstance(content, int):
        file = io.BytesIO()
        Image.new("1", (content, content)).save(file, "PNG")
        content = file.getvalue()
    answer = page.ask("POST", "/api/images", content)
    assert answer.status == 422
    assert complaint in answer.json["error"]
    assert "\n" not in answer.json["error"]


def _question(**changes: str) -> bytes:
    """One that would be answered, but for the changes; `kept` stands for an image that is there."""
    parts = {"image": '"kept"', "client": '"client-0"'} | dict.fromkeys(("label", "mass", "dial", "prior"), "null")
    parts |= changes
    text = ", ".join(f'"{key}": {value}' for key, value in parts.items())
    return b"{" + text.encode() + b"}"


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (b"{", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b'{"image": "x"}', "a request must have"),
        (_question(image='"x"'), "no longer in memory"),
        (_question(client='"who"'), "has no client 'who'"),
        (_question(label='"mauve"'), "unknown class 'mauve'"),
        (_question(mass="NaN"), "mass = nan: must be from 1e-06 to 1"),
        (_question(mass="1.5"), "mass = 1.5: must be from 1e-06 to 1"),
        (_question(mass="1" + "0" * 5000), "not JSON"),
        (_question(prior="NaN"), "prior = nan: must be from 0 to 10"),
        (_question(dial="[1]"), "dial = '[1]': invalid type"),
        (_question(dial='"local"'), "method.dial = 'local': must be a number from 0"),
    ],
)
def test_a_bad_question_gets_a_readable_line(page: Served, image: Path, question: bytes, complaint: str) -> None:
    kept = page.upload(image.read_bytes())
    answer = page.ask("POST", "/api/look", question.replace(b"kept", kept.encode()))
    assert answer.status == 422
    assert complaint in answer.json["error"]


# The command ------------------------------------------------------------------------------------------------


def test_the_command_ends_cleanly(run: RunDirectory) -> None:
    code = "from fedotp.cli import main; main()"
    words = [sys.executable, "-c", code, "serve", str(run.path), "--port", "0", "--device", "cpu"]
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # ignored where the tests run in the background
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert err == ""


def test_a_port_in_use_and_an_open_host(page: Served, run: RunDirectory) -> None:
    classifiers = open_classifiers(run.path)
    with pytest.raises(FedotpError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
        make_server(classifiers, host="127.0.0.1", port=page.server.server_address[1])
    server = make_server(classifiers, host="0.0.0.0", port=0)
    try:
        port = server.server_address[1]
        assert server.is_ours(f"192.168.1.5:{port}")  # a bare address cannot be rebound
        assert not server.is_ours(f"evil.example:{port}")
        assert server.model.samples("client-0") == {"samples": []}  # test images are for this machine only
    finally:
        server.server_close()


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_others_reach_it_only_if_asked(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, host: str, warned: bool
) -> None:
    def interrupted(server: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    done = command("serve", run.path, "--port", 0, "--host", host)
    assert done.status == 0, done.err
    assert done.out.startswith(f"http://{host}:")
    assert done.err == (
        f"warning: everyone who can reach {host} can use this page and the clients' prompts\n" if warned else ""
    )
