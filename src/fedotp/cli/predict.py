"""`fedotp predict`: a client's classifier on images."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._files import write_atomically
from fedotp._text import printable
from fedotp.cli._options import (
    DEVICE,
    BackboneOption,
    CalibrateOption,
    ClassifierArgument,
    ClientOption,
    DeviceOption,
    DialOption,
)
from fedotp.cli._predicted import CsvPrinter, Found, JsonPrinter, LinePrinter, Printer, Set, Shown
from fedotp.cli._status import SOME_FAILED
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from PIL.Image import Image

    from fedotp.classifier import Classifier

app = typer.Typer()

_BATCH = 64  # images predicted before the next lines are printed
_WIDTH = 44  # of the column of names, at most


@app.command()
def predict(
    source: ClassifierArgument,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Images, or folders of them.")],
    client: ClientOption = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Other class names: separated by commas, or a file with one per line.", show_default=False),
    ] = None,
    mass: Annotated[
        float | None,
        typer.Option(help="Share of the image that is transported, from 0 to 1; the run's own if not given."),
    ] = None,
    dial: DialOption = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Add a set of classes that holds the true one with this probability, such as 0.9; of a calibrated "
            "client only.",
            show_default=False,
        ),
    ] = None,
    calibrate: CalibrateOption = None,
    top: Annotated[int, typer.Option(min=1, help="Classes shown per image.")] = 3,
    maps: Annotated[
        Path | None,
        typer.Option(help="Folder for a picture per image of where the prompts look.", show_default=False),
    ] = None,
    backbone: BackboneOption = None,
    device: DeviceOption = DEVICE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per image and line.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV: image, predicted class, its probability, then all classes.")
    ] = False,
) -> None:
    """Predict the classes of images with what a client has learned.

    Only the run's directory and the backbone are needed, not its data. Folders are searched for images, with all
    folders below. An image that cannot be read is reported, the others are predicted, and the exit status is 1. If the
    client is calibrated, every image has a p-value: how often one of the client's own is at least as outlying. Up to
    0.05 the image is flagged as unlike these.

    \b
    Examples:
      fedotp predict runs/pets --client client-3 cat.jpg
      fedotp predict runs/pets --client client-3 ~/photos --json
      fedotp predict runs/pets --client client-3 cat.jpg --classes "lynx,puma,cat"
      fedotp predict runs/pets --client client-3 cat.jpg --maps maps
      fedotp predict runs/pets --client client-3 cat.jpg --dial 0.2
      fedotp predict client-3.bundle cat.jpg
      fedotp predict client-3.bundle ~/photos --csv > predictions.csv
      fedotp predict client-3.bundle ~/photos --coverage 0.9
      fedotp predict runs/pets --client client-3 cat.jpg --calibrate test
    """
    if as_json and as_csv:
        raise FedotpError("--json and --csv are two ways to write the same: give one of them")
    found = list(_distinct(image for given in images for image in _find(given)))
    from fedotp.classifier import load
    from fedotp.limits import require_coverage
    from fedotp.methods import dial_of

    if coverage is not None:
        require_coverage(coverage)
    classifier = load(source, client, backbone=backbone, device=device, calibrate=calibrate)
    if mass is not None:
        classifier = classifier.with_mass(mass)
    if dial is not None:
        classifier = classifier.with_dial(dial_of(dial))
    if classes is not None:
        classifier = classifier.with_classes(_class_names(classes))
    if maps is not None and not classifier.matching.has_plan:
        raise FedotpError(
            f"{classifier.method.title} looks at the image as a whole and has no maps; leave --maps out, "
            "or give a run of FedOTP"
        )
    if coverage is not None and classifier.calibration is None and (mass is not None or dial is not None or classes):
        raise FedotpError(
            "--coverage is promised for the classifier as it was trained: leave --mass, --dial and --classes out"
        )
    widths = (_longest([image.path for image in found], _WIDTH), _longest(classifier.classes, _WIDTH // 2))
    extra = {"has_sets": coverage is not None, "has_p_values": classifier.calibration is not None}
    printer = CsvPrinter(classifier.classes, **extra) if as_csv else JsonPrinter() if as_json else LinePrinter(*widths)
    for start in range(0, len(found), _BATCH):
        pictures = list(_opened(found[start : start + _BATCH], classifier, printer))
        if not pictures:
            continue
        prediction = classifier.predict([picture for _, picture in pictures], coverage=coverage)
        sets = [] if coverage is None else prediction.sets
        for number, ((image, picture), best) in enumerate(zip(pictures, prediction.top(top), strict=True)):
            shown = Shown(
                best,
                dict(zip(prediction.classes, prediction.probabilities[number].tolist(), strict=True)),
                set=None if coverage is None else Set(coverage, sets[number]),
                p_value=None if prediction.p_values is None else float(prediction.p_values[number]),
                is_unlike=bool(prediction.unlike[number]),
                drawn=None if maps is None else _draw(classifier, image, picture, maps),
            )
            printer.show(image, shown)
    if printer.n_failed:
        typer.echo(f"{printer.n_failed} of {len(found)} images could not be read", err=True)
        raise typer.Exit(SOME_FAILED)


def _find(given: Path) -> Iterator[Found]:
    """The image itself, or all those in a folder and below, in a fixed order."""
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
        raise FedotpError(f"no image in {given} and below; images end in {', '.join(IMAGE_SUFFIXES)}")


def _distinct(images: Iterable[Found]) -> Iterator[Found]:
    """The same images; of those with equal names below different folders, the later ones are numbered."""
    used: set[Path] = set()
    for image in images:
        numbered = (image.name.with_stem(f"{image.name.stem}-{n}") for n in count(2))
        name = next(name for name in chain([image.name], numbered) if name not in used)
        used.add(name)
        yield Found(image.path, name)


def _opened(images: Sequence[Found], classifier: "Classifier", printer: Printer) -> "Iterator[tuple[Found, Image]]":
    """What the tower sees of the images that can be read; of the others the printer is told."""
    from fedotp.images import open_image

    for image in images:
        try:
            yield image, classifier.transform.crop(open_image(image.path))  # small: many fit into memory
        except FedotpError as error:
            printer.fail(image, str(error))


def _longest(names: Sequence[object], most: int) -> int:
    """The width of a column of names."""
    return min(most, max(len(printable(name)) for name in names))


def _class_names(given: str) -> list[str]:
    """Names separated by commas, or the lines of a file."""
    from fedotp.data import read_lines

    return read_lines(Path(given)) if os.path.isfile(given) else given.split(",")


def _draw(classifier: "Classifier", image: Found, picture: "Image", folder: Path) -> Path:
    """Write the heat maps of one image, for the class predicted, to a file in `folder` that is named after it."""
    import numpy as np

    from fedotp.report import ImageMap, plot_maps

    maps = classifier.explain(picture)
    assert maps.plan is not None  # refused above
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
    content = io.BytesIO()
    plot_maps([shown], printable(image.name)).savefig(content, dpi=150, format="png")
    write_atomically(path, content.getvalue())
    return path
