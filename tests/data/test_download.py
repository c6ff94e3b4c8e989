"""Downloads against a server on this machine: resumed, checked, opened safely, or refused with a way out."""

import hashlib
import io
import re
import socket
import stat
import tarfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedotp.data import DATASETS, download
from fedotp.data._download import Resource, _StaySecure
from fedotp.errors import FedotpError


@dataclass
class Site:
    """What the server offers, how it misbehaves, and what it was asked."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)  # bytes after which the next answers are cut off
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # (path, Range header)

    def resource(self, name: str, provides: str, *, nested: str = "") -> Resource:
        checksum = hashlib.sha256(self.files[name]).hexdigest()
        return Resource(f"{self.url}/{name}", checksum, provides, nested)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers.get("Range")))
            content = site.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = 0
            if site.ranges and (asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")):
                start = int(asked[1])
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + site.cut_after.pop(0) if site.cut_after else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def tar_of(files: dict[str, bytes], *, compression: str = "gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_archives_and_files_land_where_the_reader_looks(site: Site, tmp_path: Path) -> None:
    site.files = {
        "images.tar.gz": tar_of({"images/a.jpg": b"a"}),  # goes one level down
        "food.zip": zip_of({"food/meta/x.txt": b"x"}),
        "labels.mat": b"labels",
        "outer.zip": zip_of({"outer/inner.tar.gz": tar_of({"inner/b.jpg": b"b"}), "__MACOSX/x": b""}),
    }
    resources = [
        site.resource("images.tar.gz", "pets/images"),
        site.resource("food.zip", "food"),
        site.resource("labels.mat", "flowers/labels.mat"),
        site.resource("outer.zip", "outer/inner", nested="outer/inner.tar.gz"),
    ]
    seen: list[tuple[str, int, int | None]] = []
    provided = download(resources, tmp_path, on_bytes=lambda *progress: seen.append(progress))
    assert provided == [tmp_path / r.provides for r in resources]
    found = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {
        "pets/images/a.jpg": b"a",
        "food/meta/x.txt": b"x",
        "flowers/labels.mat": b"labels",
        "outer/inner/b.jpg": b"b",
    }  # and no archive, part or temporary folder is left
    assert ("labels.mat", 6, 6) in seen

    site.asked.clear()
    download(resources, tmp_path)
    assert site.asked == []  # nothing is fetched twice


@pytest.mark.parametrize("ranges", [True, False])
def test_interrupted_download_goes_on_where_it_stopped_or_starts_again(
    ranges: bool, site: Site, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 4000
    site.files, site.ranges = {"big.bin": content}, ranges
    site.cut_after = [300_000, 100_000]
    download([site.resource("big.bin", "big.bin")], tmp_path)
    assert (tmp_path / "big.bin").read_bytes() == content
    assert not ranges or [asked for _, asked in site.asked] == [None, "bytes=300000-", "bytes=400000-"]


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (b"0123", ["bytes=4-"]),
        (b"0123456789", ["bytes=10-"]),  # complete: it is only given its name
        (b"0123456789 and more", None),  # too long: it starts again
    ],
)
def test_part_of_an_earlier_run_is_used(part: bytes, asked: list[str] | None, site: Site, tmp_path: Path) -> None:
    site.files = {"a.bin": b"0123456789"}
    (tmp_path / "a.bin.part").write_bytes(part)
    download([site.resource("a.bin", "data/a.bin")], tmp_path)
    assert (tmp_path / "data/a.bin").read_bytes() == b"0123456789"
    assert asked is None or [header for _, header in site.asked] == asked


def test_endless_interruptions_end_with_an_error(site: Site, tmp_path: Path) -> None:
    site.files = {"a.bin": b"0123456789"}
    site.cut_after = [1] * 100
    with pytest.raises(FedotpError, match=r"cannot download .* closed after 4 of 10 bytes"):
        download([site.resource("a.bin", "data/a.bin")], tmp_path)
    assert (tmp_path / "a.bin.part").read_bytes() == b"0123"  # kept for the next run


def test_wrong_checksum_is_refused_and_set_aside(site: Site, tmp_path: Path) -> None:
    site.files = {"a.bin": b"good"}
    resource = site.resource("a.bin", "data/a.bin")
    site.files = {"a.bin": b"evil"}
    with pytest.raises(FedotpError, match=r"expected sha256 .*, got .*a.bin.bad"):
        download([resource], tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin.bad"]
    (tmp_path / "a.bin").write_bytes(b"good")  # fetched by hand
    site.asked.clear()
    download([resource], tmp_path)
    assert site.asked == []
    assert (tmp_path / "data/a.bin").read_bytes() == b"good"


def test_https_never_leads_to_http() -> None:
    handler = _StaySecure()
    asked = urllib.request.Request("https://example.org/a.zip")
    with pytest.raises(urllib.error.URLError, match="not https"):
        handler.redirect_request(asked, io.BytesIO(), 302, "", HTTPMessage(), "http://example.org/a.zip")
    moved = handler.redirect_request(asked, io.BytesIO(), 302, "", HTTPMessage(), "https://example.org/b.zip")
    assert moved is not None


def test_failure_says_what_to_fetch_and_where_to_put_it(site: Site, tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        for url, complaint in ((site.url, "HTTP error 404"), (nowhere, r"cannot reach .*refused")):
            with pytest.raises(FedotpError, match=complaint) as caught:
                download([Resource(f"{url}/gone.zip", "0", "gone")], tmp_path)
            assert f"download {url}/gone.zip manually, save it as {tmp_path / 'gone.zip'}" in str(caught.value)
            assert "\n" not in str(caught.value)


def _symlink_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("data/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    return buffer.getvalue()


def _symlink_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("data/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tar.gz", tar_of({"data/ok": b"", "../escaped": b"x"})),
        ("a.tar", _symlink_tar()),
        ("a.tar", tar_of({"data/1": b"x" * 5000, "data/2": b"y" * 5000}, compression="")[:7000]),
        ("a.zip", zip_of({"data/ok": b"", "../escaped": b"x"})),
        ("a.zip", zip_of({"data/ok": b"", "..\\escaped": b"x"})),
        ("a.zip", zip_of({"data/ok": b"", "/escaped": b"x"})),
        ("a.zip", _symlink_zip()),
        ("a.zip", zip_of({"other/x": b""})),
    ],
    ids=["tar-parent", "tar-link", "cut", "zip-parent", "zip-backslash", "zip-absolute", "zip-link", "other"],
)
def test_archive_that_leaves_its_folder_is_cut_or_lacks_the_data_is_refused(
    name: str, content: bytes, site: Site, tmp_path: Path
) -> None:
    site.files = {name: content}
    root = tmp_path / "root"
    with pytest.raises(FedotpError, match=r"cannot open|outside its folder|does not contain data"):
        download([site.resource(name, "data")], root)
    assert [p.name for p in tmp_path.rglob("*")] == ["root", name]  # nothing was put anywhere


def test_official_sources_are_fetched_over_https_and_have_a_sha256() -> None:
    for info in DATASETS.values():
        for resource in info.resources:
            assert len(resource.sha256) == 64
            assert int(resource.sha256, 16)
            assert resource.provides.split("/")[0] == info.folder
            assert resource.url.startswith("https://")
        assert info.resources or info.advice
