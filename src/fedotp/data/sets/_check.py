"""Look at every image before anything depends on it: broken files, test images in train, images there twice."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fedotp._greys import has_more_bits, largest_share
from fedotp._images import reason
from fedotp.data.sets._dataset import SPLITS, Dataset, ImageRef, SplitName
from fedotp.errors import FedotpError, MissingPackageError

_DARK = 1 / 16  # of the range: 12 bits in 16
_BLOCK = 2048  # images handed to the threads at a time, so that memory does not grow with the data set


@dataclass(frozen=True)
class Broken:
    """An image that cannot be decoded: which one, where it is, why."""

    ref: ImageRef
    where: str
    reason: str


@dataclass(frozen=True)
class CheckReport:
    """What `check_dataset` found.

    Pairs of images with equal bytes: `duplicates` are (train image, test image), `twice` are two of one split, the
    first and another, and `contradictions` are those of either kind whose labels differ. `dark` are pictures of more
    than 8 bits without a window of their own that use a sixteenth of their range at most: all but black.
    """

    n_images: int
    broken: tuple[Broken, ...]
    duplicates: tuple[tuple[ImageRef, ImageRef], ...]
    twice: tuple[tuple[ImageRef, ImageRef], ...] = ()
    contradictions: tuple[tuple[ImageRef, ImageRef], ...] = ()
    dark: tuple[ImageRef, ...] = ()


def check_dataset(
    dataset: Dataset, *, workers: int | None = None, on_image: Callable[[], object] | None = None
) -> CheckReport:
    """Decode every image of `dataset` in `workers` threads (Pillow decodes without the interpreter lock).

    `on_image` is called after each image, for a progress bar.
    """
    refs = [ImageRef(name, i) for name in SPLITS for i in range(len(dataset.split(name)))]
    broken: list[Broken] = []
    first: dict[SplitName, dict[bytes, ImageRef]] = {name: {} for name in SPLITS}
    duplicates: list[tuple[ImageRef, ImageRef]] = []
    twice: list[tuple[ImageRef, ImageRef]] = []

    dark: list[ImageRef] = []

    def look(ref: ImageRef) -> tuple[bytes, str | None]:
        split = dataset.split(ref.split)
        try:
            content = split.read(ref.index)
            with split.decoded(content) as image:
                if has_more_bits(image) and (largest_share(image) or 1) <= _DARK:
                    dark.append(ref)
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
    contradictions = [pair for pair in (*twice, *duplicates) if len({_label(dataset, ref) for ref in pair}) > 1]
    return CheckReport(
        len(refs), tuple(broken), tuple(duplicates), tuple(twice), tuple(contradictions), tuple(sorted(dark))
    )


def _label(dataset: Dataset, ref: ImageRef) -> int:
    return int(dataset.split(ref.split).labels[ref.index])


def require_sound(
    dataset: Dataset,
    *,
    skip_broken: bool = False,
    workers: int | None = None,
    on_image: Callable[[], object] | None = None,
) -> Dataset:
    """Return `dataset` if every image can be decoded: the gate before training.

    With `skip_broken` broken images are left out and counted in `skipped`; without it they are an error that
    names the first of them.
    """
    broken = check_dataset(dataset, workers=workers, on_image=on_image).broken
    if not broken:
        return dataset
    if skip_broken:
        return dataset.without(b.ref for b in broken)
    raise broken_images(dataset, broken)


def broken_images(dataset: Dataset, broken: Sequence[Broken]) -> FedotpError:
    """The error that `dataset` has `broken` images, which nobody said to leave out."""
    return FedotpError(
        f"{dataset.name}: {len(broken)} broken images, first {broken[0].where} ({broken[0].reason}); "
        "`fedotp data check` lists them; a run goes on without them with --set data.skip_broken=true, "
        "`fedotp data` with --skip-broken"
    )
