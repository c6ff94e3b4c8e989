"""Calibration of a classifier with a folder of images that it did not train on."""

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from fedotp._text import counted
from fedotp.classifier._classifier import Classifier
from fedotp.data import load_dataset
from fedotp.data.store import content_of
from fedotp.errors import FedotpError
from fedotp.limits import SCORE, Score
from fedotp.runs.one import class_numbers

log = logging.getLogger("fedotp.classifier")


def calibrated_by(
    classifier: Classifier,
    data: str | Path,
    *,
    score: Score = SCORE,
    site: str | None = None,
    every: bool = False,
    trained: AbstractSet[bytes] = frozenset(),
    on_left_out: Callable[[str], object] = log.warning,
) -> Classifier:
    """Calibrate a classifier with a folder of labelled images (or any data set) that it did not train on.

    Args:
        data: as for `fedotp.data.load_dataset`. Only test images are used, also if fedotp draws the split, since the
            classifier might have been trained on the others.
        site: use only the images of this site (or domain).
        every: also use training images; only if the classifier was not trained on any of them.
        trained: digests of images to exclude, see `fedotp.data.store.content_of`.
        on_left_out: called with a line on the number of excluded images. Images of equal content count once.
    """
    dataset = load_dataset(data)
    number = class_numbers(classifier.classes, dataset, classifier.client)
    train, test = dataset.train, dataset.test
    if not every:
        trained = {*trained, *(content_of(train, i) for i in range(len(train)))}
    if site is not None:
        here = dataset.site_number(site)
        train, test = (split.select(split.domains == here) for split in (train, test))
    found = [(split, i) for split in ([train, test] if every else [test]) for i in range(len(split))]
    kept, left_out = once([content_of(split, i) for split, i in found], trained)
    if not every:
        left_out.insert(0, f"{counted(len(train), 'training image')} (include them with `fedotp calibrate --all`)")
    if len(kept) < 2:
        raise FedotpError(f"{dataset.name}: at least 2 images are required; {line_of(len(kept), left_out)}")
    if left_out:
        on_left_out(line_of(len(kept), left_out))
    images, labels = [], []
    for split, i in (found[place] for place in kept):
        images.append(classifier.transform.crop(split.image(i)))  # small, so that many fit into memory
        labels.append(classifier.classes[number[split.labels[i]]])
    return classifier.calibrated(images, labels, score=score)


def once(contents: Sequence[bytes], trained: AbstractSet[bytes]) -> tuple[list[int], list[str]]:
    """Return the indices of calibration images, without duplicates and training images, and describe the excluded."""
    first: dict[bytes, int] = {}
    for i, content in enumerate(contents):
        first.setdefault(content, i)
    kept = [i for content, i in first.items() if content not in trained]
    copies = (len(contents) - len(first), "duplicate", "duplicates")
    also = (len(first) - len(kept), "image also in train", "images also in train")
    return kept, [counted(*each) for each in (copies, also) if each[0]]


def line_of(n: int, left_out: Sequence[str]) -> str:
    """Describe the calibration images and the excluded ones."""
    return f"{counted(n, 'image')} for calibration; excluded: {', '.join(left_out)}"
