"""Facts about data sets, and downloads of their archives, which are resumed, verified and safely extracted."""

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
    """A file to download, with its SHA-256.

    `provides` is the resulting path relative to the root: the file itself, or a folder of the archive; `nested` is an
    archive inside the archive that is extracted as well.
    """

    url: str
    sha256: str
    provides: str
    nested: str = ""

    @property
    def filename(self) -> str:
        """The last part of the URL."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set; the sizes are those of the paper or of the usual split.

    `folder` is its usual folder below the root, `others` are alternatives; any of the `markers` (a file, or a folder
    with a slash at the end) identifies its layout; `template` is the caption of zero-shot CLIP (CoOp's); `advice`
    describes manual downloads. A data set `in_box` is included in the package and has no folder.
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
        """True if `folder` has the layout of this data set."""
        return any(
            os.path.isdir(folder / marker) if marker.endswith("/") else os.path.isfile(folder / marker)
            for marker in self.markers
        )


def download(resources: Iterable[Resource], root: Path, *, on_bytes: OnBytes | None = None) -> list[Path]:
    """Download missing resources below `root`, and return the provided paths.

    Without a network the error states which file to download manually and where to put it.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedotpError(f"cannot create the folder {root}: {error.strerror}; choose another") from error
    provided = []
    for resource in resources:
        target = root / resource.provides
        if not target.exists():
            archive = root / resource.filename
            if not archive.exists():
                _fetch(resource, archive, on_bytes or (lambda *_: None))
            _verify(archive, resource)
            _install(archive, target, resource)
        provided.append(target)
    return provided


def _fetch(resource: Resource, archive: Path, on_bytes: OnBytes) -> None:
    """Download into `<archive>.part`, resuming after an interruption, then rename it."""
    part = archive.with_name(archive.name + ".part")
    by_hand = f"download {resource.url} manually, save it as {archive} and run the command again"
    for attempt in range(_ATTEMPTS):
        try:
            _fetch_rest(resource.url, part, on_bytes)
        except urllib.error.HTTPError as error:
            raise FedotpError(f"{resource.url}: HTTP error {error.code} {error.reason}; {by_hand}") from error
        except urllib.error.URLError as error:  # no connection: retrying does not help
            raise FedotpError(f"cannot reach {resource.url}: {error.reason}; {by_hand}") from error
        except (OSError, HTTPException) as error:
            if attempt + 1 == _ATTEMPTS:
                raise FedotpError(f"cannot download {resource.url}: {error}; {by_hand}") from error
            time.sleep(0.1 * 2**attempt)
        else:
            break
    part.replace(archive)


def _fetch_rest(url: str, part: Path, on_bytes: OnBytes) -> None:
    """Append the missing bytes to `part`; start again if the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": f"fedotp/{__version__}"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = _OPENER.open(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{have}":
            return  # already complete
        if error.code != 416:
            raise
        part.unlink()  # longer than the file
        raise OSError("the partial download was longer than the file and has been removed") from error
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
        raise OSError(f"the connection closed after {have} of {total} bytes")


class _StaySecure(urllib.request.HTTPRedirectHandler):
    """Redirect handler that refuses redirects from https to an unencrypted protocol."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new URL."""
        if req.type == "https" and not newurl.lower().startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_StaySecure)


def _verify(path: Path, resource: Resource) -> None:
    """Verify the checksum of a file; rename the file if it differs, so that it is downloaded again."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != resource.sha256:
        aside = path.replace(path.with_name(path.name + ".bad"))
        raise FedotpError(
            f"{resource.url}: expected sha256 {resource.sha256}, got {found}; the file was renamed to {aside}; "
            "run the command again or download it from another source"
        )


def _install(archive: Path, target: Path, resource: Resource) -> None:
    """Move a verified file to its target; an archive is extracted next to it and then moved atomically."""
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
            raise FedotpError(f"{archive} from {resource.url} does not contain {target.name}")
    archive.unlink()


def _extract(archive: Path, folder: Path) -> None:
    """Extract a tar or zip archive; refuse special files and members outside `folder`."""
    try:
        if not zipfile.is_zipfile(archive):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
            return
        with zipfile.ZipFile(archive) as content:
            for member in content.infolist():
                path = PurePosixPath(member.filename.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(member.external_attr >> 16):
                    raise FedotpError(f"{archive} contains {member.filename!r}, outside its folder; not extracted")
            content.extractall(folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise FedotpError(f"cannot open {archive}: {error}") from error
