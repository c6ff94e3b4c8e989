"""Where calibration images come from: a folder of the site's own, or its test images in the run."""

from collections.abc import Iterator
from pathlib import Path

from PIL.Image import Image

from fedotp.classifier._classifier import Classifier
from fedotp.classifier._from_run import RunClassifiers
from fedotp.data import Split, load_dataset
from fedotp.errors import FedotpError
from fedotp.limits import SCORE, Score
from fedotp.runs import class_numbers

TEST = "test"  # in place of a folder


def calibrated_by_test(run: RunClassifiers, client: str, score: Score) -> Classifier:
    """The classifier of `client`, calibrated by its own test images, of which no prompt was trained."""
    images, labels = run.test_images(client)
    if not labels:
        raise FedotpError(f"{client} has no test images to calibrate by; give a folder of its images")
    return run.classifier(client)._calibrated(images, labels, score)


def calibrated_by(
    classifier: Classifier, data: str | Path, *, score: Score = SCORE, test_only: bool = False
) -> Classifier:
    """The classifier, calibrated by a folder of labelled images (or any data set) that it did not train on.

    Of data that come divided into training and test images only the latter are taken: it may have trained on the
    others. With `test_only` the same holds for a division that fedotp draws: for the folder that it did train on.
    """
    dataset = load_dataset(data)
    number = class_numbers(classifier.classes, dataset, classifier.client)
    splits = [dataset.test] if test_only or not dataset.is_drawn else [dataset.train, dataset.test]
    labels = [classifier.classes[number[label]] for split in splits for label in split.labels]
    return classifier.calibrated(list(_pictures(classifier, splits)), labels, score=score)


def _pictures(classifier: Classifier, splits: list[Split]) -> Iterator[Image]:
    """The images as the tower sees them: small, so that many fit into memory."""
    for split in splits:
        for i in range(len(split)):
            yield classifier.transform.crop(split.image(i))
