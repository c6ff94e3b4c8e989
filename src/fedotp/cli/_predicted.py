"""Output of `fedotp predict` for each image: a line of text, CSV or JSON."""

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from fedotp._text import printable

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_WIDTH = 44  # maximum of the column of names
_FLAG = "unlike the client's calibration images"


@dataclass(frozen=True)
class Found:
    """An image file, and its path relative to the given folder, which names its maps."""

    path: Path
    name: Path


@dataclass(frozen=True)
class Shown:
    """The prediction for an image; `set` is its prediction set at `coverage`, the most probable classes first."""

    best: list[tuple[str, float]]
    probabilities: dict[str, float]
    coverage: float | None = None
    set: list[str] | None = None
    p_value: float | None = None
    is_unlike: bool = False
    drawn: Path | None = None


class Printer:
    """Base class of the output formats."""

    n_failed = 0

    def show(self, image: Found, shown: Shown) -> None:
        """Print a prediction."""
        raise NotImplementedError

    def fail(self, image: Found, reason: str) -> None:
        """Report an unreadable image."""
        self.n_failed += 1
        typer.secho(printable(reason), err=True, fg="red")


class LinePrinter(Printer):
    """One line of text per image."""

    def __init__(self, images: Sequence[Path], classes: Sequence[str]) -> None:
        self.image_width = min(_WIDTH, max(len(printable(path)) for path in images))
        self.class_width = min(_WIDTH // 2, max(len(printable(name)) for name in classes))

    def show(self, image: Found, shown: Shown) -> None:
        parts = ["  ".join(f"{p:6.1%}  {printable(name):<{self.class_width}}" for name, p in shown.best)]
        if shown.set is not None:
            names = ", ".join(printable(name) for name in shown.set)
            parts.append(f"{{{names}}} at {shown.coverage:g}")
        if shown.is_unlike:
            parts.append(f"{_FLAG} (p = {shown.p_value:.2g})")
        line = "  ".join(parts)
        print(f"{printable(image.path):<{self.image_width}}  {line.rstrip()}", flush=True)


class JsonPrinter(Printer):
    """One JSON object per image, each on its own line."""

    def show(self, image: Found, shown: Shown) -> None:
        name, probability = shown.best[0]
        record: dict[str, object] = {"image": str(image.path), "predicted": name, "probability": probability}
        if shown.set is not None:
            record |= {"coverage": shown.coverage, "set": shown.set}
        if shown.p_value is not None:
            record |= {"p_value": shown.p_value, "unlike": shown.is_unlike}
        record |= {"probabilities": shown.probabilities} | ({"maps": str(shown.drawn)} if shown.drawn else {})
        print(json.dumps(record), flush=True)

    def fail(self, image: Found, reason: str) -> None:
        print(json.dumps({"image": str(image.path), "error": reason}), flush=True)
        super().fail(image, reason)


class CsvPrinter(Printer):
    """CSV with the columns image, predicted, probability, error, set and p_value if requested, and all classes.

    Sets are JSON lists, since names may contain commas. Text that spreadsheets would take for a formula is prefixed
    with an apostrophe.
    """

    def __init__(self, classes: Sequence[str], *, has_sets: bool, has_p_values: bool) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        extra = ["set"] * has_sets + ["p_value"] * has_p_values
        self._unknown = [""] * (len(extra) + len(classes))
        names = (f"p({printable(name)})" for name in classes)
        self._writer.writerow(["image", "predicted", "probability", "error", *extra, *names])

    def show(self, image: Found, shown: Shown) -> None:
        name, probability = shown.best[0]
        extra = [] if shown.set is None else [json.dumps([printable(each) for each in shown.set])]
        extra += [] if shown.p_value is None else [str(shown.p_value)]
        cells = [_text(image.path), _text(name), probability, "", *extra, *shown.probabilities.values()]
        self._writer.writerow(cells)

    def fail(self, image: Found, reason: str) -> None:
        self._writer.writerow([_text(image.path), "", "", _text(reason), *self._unknown])
        super().fail(image, reason)


def _text(value: object) -> str:
    """Return untrusted text, such as a file name, as a safe cell."""
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
