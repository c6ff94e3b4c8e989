"""The analysis of a run's prompts for the report page, and images of some of its clients."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from fedotp.errors import FedotpError
from fedotp.report._client import MASSES, Floats, choose, in_turn, pixels, rounded
from fedotp.report._limits import Limits, measure_limits
from fedotp.report._maps import ImageMap, image_maps
from fedotp.report._plans import PlanStatistics, plans_of
from fedotp.report._tsne import Projection, project_prompts
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Prepared, restore

_SITES, _IMAGES = 6, 8  # clients shown, and images of each
_SIZE = 56  # pixels: twice the displayed size
_QUALITY = 85
T = TypeVar("T")


@dataclass(frozen=True)
class Site:
    """A client's test images: counts by class, descending, and `images`: some pairs of class and picture (data URL)."""

    client: str
    classes: dict[str, int]
    images: tuple[tuple[str, str], ...]


def _site(prepared: Prepared, client: str) -> Site:
    test, names = prepared.data.test, prepared.task.classes
    rows = test.clients[prepared.data.names.index(client)]
    counts = np.bincount(test.labels[rows], minlength=len(names))
    shown = in_turn(rows, test.labels)[:_IMAGES]
    return Site(
        client,
        {names[k]: int(counts[k]) for k in np.argsort(-counts, kind="stable") if counts[k]},
        tuple((names[test.labels[row]], _address(pixels(prepared, int(row)), _SIZE)) for row in shown),
    )


def _address(image: Floats, size: int | None = None) -> str:
    """Return an image (H, W, 3) in 0 to 1 as a data URL: PNG, or a small JPEG of that size."""
    picture, file = Image.fromarray((255 * image).round().astype(np.uint8)), io.BytesIO()
    if size is None:
        picture.save(file, "PNG", optimize=True)
    else:
        picture.resize((size, size), Image.Resampling.LANCZOS).save(file, "JPEG", quality=_QUALITY)
    kind = "png" if size is None else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


@dataclass(frozen=True, eq=False)
class Analysis:
    """Clients, maps over images, transport plans, t-SNE of prompts, limits; `notes` explain missing parts."""

    sites: tuple[Site, ...]
    maps: tuple[ImageMap, ...]
    plans: PlanStatistics | None
    tsne: Projection | None
    limits: Limits | None
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary, numbers rounded to four significant digits."""
        return {
            "sites": [asdict(site) for site in self.sites],
            "maps": [_map(shown) for shown in self.maps],
            "plans": None if self.plans is None else self.plans.as_dict(),
            "tsne": None if self.tsne is None else rounded(vars(self.tsne)),
            "limits": None if self.limits is None else rounded(asdict(self.limits)),
            "notes": list(self.notes),
        }


def analyse(run: str | Path | RunDirectory, *, n_images: int = 4, masses: Sequence[float] = MASSES) -> Analysis:
    """Analyse the prompts of a run, with images and maps of some clients, evenly spread.

    Args:
        run: its directory.
        n_images: number of maps of each client.
        masses: masses of the plans to show and compare, on at most 256 test images of 8 clients.

    Examples:
        >>> from fedotp.report import analyse                         # doctest: +SKIP
        >>> analyse("runs/pets").plans.entropy                        # doctest: +SKIP
    """
    directory = RunDirectory.open(run)
    notes: list[str] = []
    images = _attempt(partial(_images, directory, n_images, masses, notes), notes)
    sites, maps, plans, limits = images or ((), (), None, None)
    if plans is None and not directory.config.method.matching.has_plan:
        notes.append(f"no transport plans: {directory.config.method.title} has none")
    return Analysis(
        sites, maps, plans, tsne=_attempt(partial(project_prompts, directory), notes), limits=limits, notes=tuple(notes)
    )


def _attempt(make: Callable[[], T], notes: list[str]) -> T | None:
    """Return the result of `make`; on errors None, with the reason added to `notes`."""
    try:
        return make()
    except FedotpError as error:
        notes.append(str(error))
        return None


def _images(
    run: RunDirectory, n_images: int, masses: Sequence[float], notes: list[str]
) -> tuple[tuple[Site, ...], tuple[ImageMap, ...], PlanStatistics | None, Limits | None]:
    """Return the parts that need the data: clients' images, maps, statistics of plans, and limits."""
    prepared, simulator = restore(run.path)
    maps = tuple(
        each for client in choose(prepared) for each in image_maps(prepared, simulator, client, n_images, masses)
    )
    has_plan = simulator.method.matching.has_plan
    plans = plans_of(prepared, simulator, masses) if has_plan else None
    limits = _attempt(partial(measure_limits, prepared, simulator), notes)
    sites = tuple(_site(prepared, client) for client in choose(prepared, most=_SITES))
    return sites, maps, plans, limits


def _map(shown: ImageMap) -> dict[str, Any]:
    prompts = [
        {
            "kind": kind,
            "similarity": rounded(shown.similarity[n]),
            "plans": {f"{mass:g}": rounded(plan[n]) for mass, plan in shown.plans.items()},
        }
        for n, kind in enumerate(shown.kinds)
    ]
    return {
        "client": shown.client,
        "label": shown.label,
        "predicted": shown.predicted,
        "image": _address(shown.image),
        "grid": shown.similarity.shape[-1],
        "prompts": prompts,
    }
