"""Bundled data sets, so that a first run needs no network.

Each is a ZIP archive of WebP files, `<split>/[<domain>/]<class>/<name>.webp`; unpacked, `read_folder` can read it.
box/README.md states the sources and licences of the images.
"""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedotp.data._dataset import ONE_DOMAIN, Dataset, Split
from fedotp.data._names import readable
from fedotp.errors import FedotpError


@dataclass(frozen=True, eq=False)
class ImageZip:
    """The members `names` of a ZIP archive in memory, read from the file `path`; thread-safe."""

    path: Path
    archive: zipfile.ZipFile
    names: tuple[str, ...]

    def name(self, row: int) -> str:
        """Return the path within the archive, for example `train/noto/bird/1f426.webp`."""
        return self.names[row]

    def where(self, row: int) -> str:
        """Return the path of the archive followed by the path within it."""
        return f"{self.path}/{self.names[row]}"

    def read(self, row: int) -> bytes:
        """Return the bytes of the image file."""
        return self.archive.read(self.names[row])


def read_box(name: str, sha256: str, split_note: str, path: Path) -> Dataset:
    """Read the archive `path`, whose digest must be `sha256`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror}; reinstall fedotp") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise FedotpError(f"{path} is corrupt: its SHA-256 is not that of the released file; reinstall fedotp")
    archive = zipfile.ZipFile(io.BytesIO(content))
    names = tuple(archive.namelist())
    splits, domains, classes = zip(*map(_place, names), strict=True)  # (n,) words each
    class_names, labels = np.unique(classes, return_inverse=True)
    domain_names, numbers = np.unique(domains, return_inverse=True)
    source = ImageZip(path, archive, names)
    everything = Split(source, np.arange(len(names)), labels.astype(np.int64), numbers.astype(np.int64))
    in_train = np.array(splits) == "train"
    return Dataset(
        name=name,
        classes=tuple(readable(str(c)) for c in class_names),
        domains=tuple(str(d) for d in domain_names),
        train=everything.select(in_train),
        test=everything.select(~in_train),
        split_note=split_note,
    )


def _place(name: str) -> tuple[str, str, str]:
    """Return the split, domain and class of the image `name`."""
    split, *domain, kind, _ = name.split("/")
    return split, *(domain or ONE_DOMAIN), kind
