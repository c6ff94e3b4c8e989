"""What is known of a data set before it is read, and its archives: downloads are resumed where they stopped, checked
before they are opened, opened without surprises.
"""

import hashlib
import os
import stat
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO

from fedotp import __version__
from fedotp.data._dataset import Dataset
from fedotp.errors import FedotpError

_CHUNK = 1 << 20
_ATTEMPTS = 4
_TIMEOUT_S = 30.0

OnBytes = Callable[[str, int, int | None], object]  # file name, bytes so far, total if known


@dataclass(frozen=True)
class Resource:
    """A file to fetch, with its SHA-256.

    `provides` is what is there afterwards, relative to the root: the file itself, or a folder of the archive; `nested`
    is an archive inside the archive to open as well.
    """

    url: str
    sha256: str
    provides: str
    nested: str = ""

    @property
    def filename(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set; the sizes are the paper's or those of its usual split, for the data in the box their own.

    `folder` is its usual place below the root, `others` are further names of that; any of the `markers` (a file, or a
    folder with a slash at the end) identifies its layout; `template` is the caption of zero-shot CLIP (CoOp's);
    `advice` says what a person may have to fetch by hand. A data set `in_box` comes with the package and has no folder.
    """

    name: str
    title: str
    folder: str
    markers: tuple[str, ...]
    read: Callable[[Path], Dataset]
    n_classes: int
    n_train: int
    n_test: int
    n_domains: int = 1
    template: str = "a photo of a {}."
    resources: tuple[Resource, ...] = ()
    advice: str = ""
    in_box: bool = False
    others: tuple[str, ...] = ()

    def is_at(self, folder: Path) -> bool:
        """Whether `folder` has the layout of this data set."""
        return any(
            os.path.isdir(folder / marker) if marker.endswith("/") else os.path.isfile(folder / marker)
            for marker in self.markers
        )


def download(resources: Iterable[Resource], root: Path, *, on_bytes: OnBytes | None = None) -> list[Path]:
    """Fetch what is missing below `root`; return the paths provided.

    Without network the error names the file to fetch by hand and the place to put it.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedotpError(f"cannot make the folder {root}: {error.strerror}; choose another") from error
    provided = []
    for resource in resources:
        target = root / resource.provides
        if not target.exists():
            archive = root / resource.filename
            if not archive.exists():
                _fetch(resource, archive, on_bytes or _ignore)
            _verify(archive, resource)
            _install(archive, target, resource)
        provided.append(target)
    return provided


def _ignore(name: str, done: int, total: int | None) -> None:
    """Ignore progress."""


def _fetch(resource: Resource, archive: Path, on_bytes: OnBytes) -> None:
    """Fetch into `<archive>.part`, going on after an interruption, then give it its name."""
    part = archive.with_name(archive.name + ".part")
    by_hand = f"fetch {resource.url} by hand, save it as {archive} and run the command again"
    for attempt in range(_ATTEMPTS):
        try:
            _fetch_rest(resource.url, part, on_bytes)
        except urllib.error.HTTPError as error:
            raise FedotpError(f"{resource.url} answered {error.code} {error.reason}; {by_hand}") from error
        except urllib.error.URLError as error:  # no connection at all: another attempt will not help
            raise FedotpError(f"cannot reach {resource.url}: {error.reason}; {by_hand}") from error
        except (OSError, HTTPException) as error:
            if attempt + 1 == _ATTEMPTS:
                raise FedotpError(f"cannot download {resource.url}: {error}; {by_hand}") from error
            time.sleep(0.1 * 2**attempt)
        else:
            break
    part.replace(archive)


def _fetch_rest(url: str, part: Path, on_bytes: OnBytes) -> None:
    """Append what is missing from `part`; a server that cannot resume makes it start again."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": f"fedotp/{__version__}"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = _OPENER.open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{have}":
            return  # nothing was missing
        if error.code != 416:
            raise
        part.unlink()  # longer than the file: not a part of it
        raise OSError("the partial download does not fit and was removed") from error
    with response:
        if response.status != 206:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if have else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                on_bytes(part.name.removesuffix(".part"), have, total)
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have} of {total} bytes")


class _StaySecure(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but never from https to where anybody on the way can read and write along."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The request for the new address."""
        if req.type == "https" and not newurl.lower().startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_StaySecure)


def _verify(path: Path, resource: Resource) -> None:
    """Compare the file with its checksum; one that differs is set aside, to be fetched anew."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != resource.sha256:
        aside = path.replace(path.with_name(path.name + ".bad"))
        raise FedotpError(
            f"{resource.url} should have sha256 {resource.sha256}, not {found}; the file is now {aside}, "
            "run the command again or fetch it from another source"
        )


def _install(archive: Path, target: Path, resource: Resource) -> None:
    """Put a verified file into place: moved, or opened beside the target and then moved in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (zipfile.is_zipfile(archive) or tarfile.is_tarfile(archive)):
        archive.replace(target)
        return
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".opening-") as folder:
        opened = Path(folder)
        _extract(archive, opened)
        if resource.nested:
            inner = opened / resource.nested
            _extract(inner, inner.parent)
        for found in (opened / resource.provides, opened / target.name):
            if found.exists():
                found.replace(target)
                break
        else:
            raise FedotpError(f"{archive} does not hold {target.name}; it is not what {resource.url} should be")
    archive.unlink()


def _extract(archive: Path, folder: Path) -> None:
    """Open a tar or zip archive, refusing members that would land outside `folder` or are no plain files."""
    try:
        if zipfile.is_zipfile(archive):
            _extract_zip(archive, folder)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise FedotpError(f"cannot open {archive}: {error}") from error


def _extract_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            path = PurePosixPath(member.filename.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(member.external_attr >> 16):
                raise FedotpError(f"{archive} holds {member.filename!r}, which would leave its folder; not opened")
        content.extractall(folder)
