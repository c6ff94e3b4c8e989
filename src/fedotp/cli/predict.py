"""`fedotp predict`: a client's classifier on images."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._text import printable
from fedotp.cli import _options
from fedotp.cli._predicted import CsvPrinter, Found, JsonPrinter, LinePrinter, Printer, Shown
from fedotp.cli.show import SOME_FAILED
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from PIL.Image import Image

    from fedotp.classifier import Classifier

app = typer.Typer()

_BATCH = 64  # images

CoverageOption = Annotated[
    float | None,
    typer.Option(
        help="Add a set of classes that contains the true class with this probability, for example 0.9; needs a "
        "calibrated client."
    ),
]
MapsOption = Annotated[Path | None, typer.Option(help="Folder for heat maps of where the prompts look, one per image.")]
CsvOption = Annotated[
    bool, typer.Option("--csv", help="Print CSV: image, predicted class, its probability, then all classes.")
]


@app.command()
def predict(
    source: _options.ClassifierArgument,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Images, or folders of them.")],
    client: _options.ClientOption = None,
    classes: _options.ClassesOption = None,
    changes: _options.SetOption = None,
    prior: _options.PriorOption = None,
    frequencies: _options.FrequenciesOption = None,
    coverage: CoverageOption = None,
    calibrate: _options.CalibrateOption = None,
    top: Annotated[int, typer.Option(min=1, help="Number of classes to show per image.")] = 3,
    maps: MapsOption = None,
    backbone: _options.BackboneOption = None,
    device: _options.DeviceOption = _options.DEVICE,
    as_json: _options.JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Predict the classes of images with a client's trained classifier.

    This needs the run's directory and the backbone, but no data; --client is required if the run has several clients.
    Folders are searched recursively. --set accepts method.mass and method.dial; --classes replaces the class names.
    Probabilities include the class prior of the run's evaluation (evaluation.prior), which needs the labels of its
    data; --prior and --frequencies change it. Unreadable images are reported and the exit status is 1. With a
    calibrated client, each image has a p-value: the share of the client's images that are at least as unusual. Images
    with p <= 0.05 are flagged.

    \b
    Examples:
      fedotp predict runs/pets --client client-3 cat.jpg
      fedotp predict runs/pets --client client-3 ~/photos --json
      fedotp predict runs/pets --client client-3 cat.jpg --classes "lynx,puma,cat"
      fedotp predict runs/pets --client client-3 cat.jpg --maps maps
      fedotp predict runs/pets --client client-3 cat.jpg --set method.dial=0.2
      fedotp predict runs/pets --client client-3 cat.jpg --prior 1
      fedotp predict client-3.bundle cat.jpg
      fedotp predict client-3.bundle cat.jpg --frequencies "cat=0.8,dog=0.2"
      fedotp predict client-3.bundle ~/photos --csv > predictions.csv
      fedotp predict client-3.bundle ~/photos --coverage 0.9
      fedotp predict runs/pets --client client-3 cat.jpg --calibrate test
    """
    if as_json and as_csv:
        raise FedotpError("--json and --csv exclude each other: remove one of them")
    found = list(_distinct(image for given in images for image in _find(given)))
    from fedotp.classifier import load
    from fedotp.limits import require_coverage

    if coverage is not None:
        require_coverage(coverage)
    shares = _options.frequencies_of(frequencies)
    own = (prior, shares) if classes is None else (0.0, None)  # shares refer to the new classes
    trained = load(
        source, client, backbone=backbone, device=device, calibrate=calibrate, prior=own[0], frequencies=own[1]
    )
    classifier = _changed(trained, changes or [], classes)
    if classes is not None:
        classifier = classifier.with_prior(prior, shares)
    is_changed = classifier is not trained or prior is not None or shares is not None
    if is_changed and coverage is not None and classifier.calibration is None:
        raise FedotpError(
            "--coverage is valid only for the classifier as calibrated: remove --set, --classes, --prior and "
            "--frequencies, or calibrate it with this prior (--calibrate)"
        )
    if maps is not None and not classifier.matching.has_plan:
        raise FedotpError(f"{classifier.method.title} has no maps; remove --maps, or give a run of FedOTP")
    printer: Printer = JsonPrinter() if as_json else LinePrinter([image.path for image in found], classifier.classes)
    if as_csv:
        calibrated = classifier.calibration is not None
        printer = CsvPrinter(classifier.classes, has_sets=coverage is not None, has_p_values=calibrated)
    for start in range(0, len(found), _BATCH):
        pictures = list(_opened(found[start : start + _BATCH], classifier, printer))
        if pictures:
            _show(pictures, classifier, printer, coverage=coverage, top=top, maps=maps)
    if printer.n_failed:
        typer.echo(f"{printer.n_failed} of {len(found)} images could not be read", err=True)
        raise typer.Exit(SOME_FAILED)


def _changed(classifier: "Classifier", changes: list[str], classes: str | None) -> "Classifier":
    """Return the classifier with changed settings of its method and other classes."""
    from fedotp.methods import dial_of

    for change in changes:
        key, _, value = change.partition("=")
        if key.strip() == "method.mass":
            try:
                mass = float(value)
            except ValueError:
                raise FedotpError(f"--set {change}: must be a number, for example method.mass=0.5") from None
            classifier = classifier.with_mass(mass)
        elif key.strip() == "method.dial":
            classifier = classifier.with_dial(dial_of(value.strip()))
        else:
            raise FedotpError(f"--set {change}: only method.mass and method.dial can be changed after training")
    return classifier if classes is None else classifier.with_classes(_options.class_names(classes))


def _show(
    pictures: "Sequence[tuple[Found, Image]]",
    classifier: "Classifier",
    printer: Printer,
    *,
    coverage: float | None,
    top: int,
    maps: Path | None,
) -> None:
    """Predict a batch of images and print the predictions."""
    prediction = classifier.predict([picture for _, picture in pictures], coverage=coverage)
    sets = [] if coverage is None else prediction.sets
    for number, ((image, picture), best) in enumerate(zip(pictures, prediction.top(top), strict=True)):
        shown = Shown(
            best,
            dict(zip(prediction.classes, prediction.probabilities[number].tolist(), strict=True)),
            coverage=coverage,
            set=None if coverage is None else sets[number],
            p_value=None if prediction.p_values is None else float(prediction.p_values[number]),
            is_unlike=bool(prediction.unlike[number]),
            drawn=None if maps is None else _draw(classifier, image, picture, maps),
        )
        printer.show(image, shown)


def _find(given: Path) -> Iterator[Found]:
    """Yield the image itself, or all images in a folder and below, sorted."""
    from fedotp.data import IMAGE_SUFFIXES, is_image

    if not os.path.isdir(given):
        yield Found(given, Path(given.name))
        return
    n_found = 0
    for folder, below, names in os.walk(given):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            if is_image(folder, name):
                n_found += 1
                path = Path(folder, name)
                yield Found(path, path.relative_to(given))
    if not n_found:
        raise FedotpError(f"no images in {given} or below; supported: {', '.join(IMAGE_SUFFIXES)}")


def _distinct(images: Iterable[Found]) -> Iterator[Found]:
    """Yield the images; number later ones whose names below their folders are equal."""
    used: set[Path] = set()
    for image in images:
        numbered = (image.name.with_stem(f"{image.name.stem}-{n}") for n in count(2))
        name = next(name for name in chain([image.name], numbered) if name not in used)
        used.add(name)
        yield Found(image.path, name)


def _opened(images: Sequence[Found], classifier: "Classifier", printer: Printer) -> "Iterator[tuple[Found, Image]]":
    """Yield the images, cropped for the tower; the printer reports unreadable ones."""
    from fedotp.images import open_image

    for image in images:
        try:
            yield image, classifier.transform.crop(open_image(image.path))  # small: many fit into memory
        except FedotpError as error:
            printer.fail(image, str(error))


def _draw(classifier: "Classifier", image: Found, picture: "Image", folder: Path) -> Path:
    """Write the heat maps of an image, for its predicted class, to a file in `folder` named after it."""
    import numpy as np

    from fedotp.report import ImageMap, plot_maps
    from fedotp.report.figure import save_figure

    maps = classifier.explain(picture)
    assert maps.plan is not None  # checked above
    columns = maps.plan.sum((1, 2), keepdims=True)  # 0 for prompts that the dial has turned off
    shown = ImageMap(
        client=classifier.client,
        label=maps.label,
        predicted=maps.label,
        image=np.asarray(picture) / 255,
        kinds=maps.kinds,
        similarity=maps.similarity,
        plans={classifier.matching.mass: maps.plan / np.where(columns > 0, columns, 1)},
    )
    path = folder / image.name.with_name(f"{image.name.name}.png")
    return save_figure(plot_maps([shown], printable(image.name)), path)
