"""Check of all images of a data set: broken files, duplicates within a split, test images in train."""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image

from fedotp.data._dataset import SPLITS, Dataset, ImageRef, Split, SplitName
from fedotp.errors import FedotpError, MissingPackageError, listed
from fedotp.images import WINDOW, clipped_share, decoded, has_more_bits, largest_share, read_window, reason

_DARK = 1 / 16  # share of the range: 12 bits in 16
_CLIPPED = 0.9  # share of the pixels; a normal CT window often clips the surrounding air, half of a slice and more
_SAMPLED = 32  # images per domain
_BLOCK = 2048  # images submitted to the threads at once, to limit memory


@dataclass(frozen=True)
class Broken:
    """An image that cannot be decoded, its location, and the reason."""

    ref: ImageRef
    where: str
    reason: str


@dataclass(frozen=True)
class CheckReport:
    """Result of `check_dataset`.

    Pairs of images with equal bytes: `duplicates` are (train image, test image), `twice` are in one split, and
    `contradictions` are those of either kind with different labels. Of images of more than 8 bits, `dark` are those
    that use at most 1/16 of the displayed range, and `clipped` those in which the window makes 90 % of the pixels black
    or white.
    """

    n_images: int
    broken: tuple[Broken, ...]
    duplicates: tuple[tuple[ImageRef, ImageRef], ...]
    twice: tuple[tuple[ImageRef, ImageRef], ...] = ()
    contradictions: tuple[tuple[ImageRef, ImageRef], ...] = ()
    dark: tuple[ImageRef, ...] = ()
    clipped: tuple[ImageRef, ...] = ()


def check_dataset(
    dataset: Dataset, *, window: str = WINDOW, workers: int | None = None, on_image: Callable[[], object] | None = None
) -> CheckReport:
    """Decode every image of `dataset` in `workers` threads (Pillow releases the interpreter lock).

    `window` applies to greys of more than 8 bits. `on_image` is called after each image, for a progress bar.
    """
    refs = [ImageRef(name, i) for name in SPLITS for i in range(len(dataset.split(name)))]
    broken: list[Broken] = []
    first: dict[SplitName, dict[bytes, ImageRef]] = {name: {} for name in SPLITS}
    duplicates: list[tuple[ImageRef, ImageRef]] = []
    twice: list[tuple[ImageRef, ImageRef]] = []

    dark: list[ImageRef] = []
    clipped: list[ImageRef] = []

    def look(ref: ImageRef) -> tuple[bytes, str | None]:
        split = dataset.split(ref.split)
        try:
            content = split.read(ref.index)
            with decoded(content) as image:
                if has_more_bits(image) and largest_share(image, window) <= _DARK:
                    dark.append(ref)
                if _is_clipped(image, window):
                    clipped.append(ref)
                return hashlib.sha256(content).digest(), None
        except MissingPackageError:
            raise
        except (OSError, FedotpError) as error:
            return b"", reason(error)

    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        looked = (found for i in range(0, len(refs), _BLOCK) for found in pool.map(look, refs[i : i + _BLOCK]))
        for ref, (digest, why) in zip(refs, looked, strict=True):
            if on_image is not None:
                on_image()
            if why is not None:
                broken.append(Broken(ref, dataset.where(ref), why))
                continue
            if (same := first[ref.split].setdefault(digest, ref)) is not ref:
                twice.append((same, ref))
            if ref.split == "test" and (same_in_train := first["train"].get(digest)):
                duplicates.append((same_in_train, ref))
    label = {ref: int(dataset.split(ref.split).labels[ref.index]) for pair in (*twice, *duplicates) for ref in pair}
    contradictions = [(one, other) for one, other in (*twice, *duplicates) if label[one] != label[other]]
    return CheckReport(
        len(refs),
        tuple(broken),
        tuple(duplicates),
        tuple(twice),
        tuple(contradictions),
        tuple(sorted(dark)),
        tuple(sorted(clipped)),
    )


def clipped_note(dataset: Dataset, window: str) -> str:
    """Return a warning about domains whose sampled images `window` mostly clips; "" if there are none."""
    if read_window(window) is None:  # named windows fit every image
        return ""
    hidden = []
    for number, domain in enumerate(dataset.domains):
        rows = np.flatnonzero(dataset.train.domains == number)
        rows = rows[np.linspace(0, len(rows) - 1, min(_SAMPLED, len(rows))).astype(int)]
        n = sum(_is_clipped_at(dataset.train, int(row), window) for row in rows)
        if 2 * n > len(rows):
            hidden.append(domain)
    if not hidden:
        return ""
    whose = "" if len(dataset.domains) == 1 else f" of {listed(hidden)}"
    return (
        f"the window {window} makes nearly all pixels of most images{whose} black or white; if their units differ, "
        "set a separate window (data.windows, at a site --window)"
    )


def _is_clipped_at(split: Split, i: int, window: str) -> bool:
    try:
        with decoded(split.read(i)) as image:
            return _is_clipped(image, window)
    except (OSError, FedotpError):  # reported when the image is read
        return False


def _is_clipped(image: Image.Image, window: str) -> bool:
    return has_more_bits(image) and clipped_share(image, window) >= _CLIPPED
