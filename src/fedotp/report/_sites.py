"""What some of the clients have: how many images of which class, and a few of them."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from fedotp.report._client import choose, in_turn, pixels
from fedotp.runs import Prepared

_SITES, _IMAGES = 6, 8
_SIZE = 56  # pixels: twice as large as they are shown
_QUALITY = 85


@dataclass(frozen=True)
class Site:
    """A client's test images: their number by class, most first, and some of them, classes in turn.

    `images` are pairs of a class and a picture, a data address.
    """

    client: str
    classes: dict[str, int]
    images: tuple[tuple[str, str], ...]


def some_sites(prepared: Prepared, clients: Sequence[str] | None = None) -> list[Site]:
    """Those of `clients`, or if not given six of a run's, evenly spread."""
    return [_site(prepared, client) for client in choose(prepared, clients, _SITES)]


def _site(prepared: Prepared, client: str) -> Site:
    test, names = prepared.data.test, prepared.task.classes
    rows = test.clients[prepared.data.names.index(client)]
    counts = np.bincount(test.labels[rows], minlength=len(names))
    shown = in_turn(rows, test.labels)[:_IMAGES]
    return Site(
        client,
        {names[k]: int(counts[k]) for k in np.argsort(-counts, kind="stable") if counts[k]},
        tuple((names[test.labels[row]], _picture(prepared, int(row))) for row in shown),
    )


def _picture(prepared: Prepared, row: int) -> str:
    image = Image.fromarray((255 * pixels(prepared, row)).round().astype(np.uint8))
    file = io.BytesIO()
    image.resize((_SIZE, _SIZE), Image.Resampling.LANCZOS).save(file, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
