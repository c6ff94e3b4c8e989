"""Heat maps of similarity and transport plan over the image (the paper's Figures 2 and A4)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation import Simulator
from fedotp.report._client import MASSES, ClientImages, Floats, at_mass, choose, pixels, require_clients
from fedotp.report.figure import new_figure
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Prepared, restore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REACH = 4.0  # plans are shown from 1/4 of the uniform share to 4 times it
_TINTS = ("#0057b7", "#8c8c8c", "#f06000")  # less than that, as much, more
_SHORT = {"global": "G", "local": "L"}  # as in the paper: FedOTP-G, FedOTP-L


@dataclass(frozen=True, eq=False)
class ImageMap:
    """One test image of a client with the maps of its N prompts, for the image's own class.

    image (H, W, 3) in 0 to 1, as input of the tower; similarity (N, g, g), cosines; `plans` by mass, each (N, g, g),
    the share of its column's mass that a patch receives, so that each sums to 1, empty for a method without transport;
    `kinds` (N,) are the kinds of prompts (`fedotp.methods.Kind`).
    """

    client: str
    label: str
    predicted: str
    image: Floats
    kinds: tuple[str, ...]
    similarity: Floats
    plans: dict[float, Floats]


def image_maps(
    prepared: Prepared, simulator: Simulator, client: str, n_images: int, masses: Sequence[float]
) -> list[ImageMap]:
    """Return the maps of the first test images of a client of a restored run, with plans at several masses."""
    matching = simulator.method.matching
    rules = {mass: at_mass(matching, mass) for mass in masses} if matching.has_plan else {}
    images = ClientImages.of(prepared, simulator, client, n_images)
    own = images.own_similarity()  # (n, V, N)
    predicted = images.predicted()
    plans = {mass: normalised(images.plan(own, rule)) for mass, rule in rules.items()}
    grid, names = simulator.task.clip.config.vision.grid, simulator.task.classes
    kinds, shown = images.predictor.kinds, images.predictor.shown

    def over_image(values: Tensor) -> Floats:
        return values.T[shown].reshape(-1, grid, grid).double().cpu().numpy()  # (N, g, g)

    return [
        ImageMap(
            client=client,
            label=names[int(images.labels[i])],
            predicted=names[int(predicted[i])],
            image=pixels(prepared, int(row)),
            kinds=tuple(kinds[n] for n in shown),
            similarity=over_image(own[i]),
            plans={mass: over_image(plan[i]) for mass, plan in plans.items()},
        )
        for i, row in enumerate(images.rows)
    ]


def normalised(plan: Tensor) -> Tensor:
    """Normalise the columns of a plan (..., V, N) to sum 1; columns without mass stay 0."""
    column = plan.sum(-2, keepdim=True)
    return plan / column.where(column > 0, 1)


def some_maps(
    run: RunDirectory, n_images: int = 4, client: str | None = None, masses: Sequence[float] = MASSES
) -> list[ImageMap]:
    """Return the maps of `n_images` test images of a run: of `client`, or (default) one each of several clients."""
    if client is not None:
        require_clients(run, [client])
    prepared, simulator = restore(run.path)
    shown = choose(prepared, None if client is None else [client], n_images)
    each = -(-n_images // max(len(shown), 1))
    maps = [m for name in shown for m in image_maps(prepared, simulator, name, each, masses)]
    return maps[:n_images]


def same_images(
    runs: Sequence[RunDirectory], n_images: int = 4, client: str | None = None
) -> dict[str, list[ImageMap]]:
    """Return the maps of the same test images in several runs, by the name of the method (the paper's Figure 2).

    Images are chosen as by `some_maps`. All runs must have the same partition.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.manifest["partition"] != first.manifest["partition"]:
            raise FedotpError(f"{run.path} and {first.path} must have the same partition for maps side by side")
    titles = [run.config.method.title.removesuffix(" (local)") for run in runs]
    names = titles if len(set(titles)) == len(titles) else [run.path.name for run in runs]
    return {name: some_maps(run, n_images, client, ()) for run, name in zip(runs, names, strict=True)}


def plot_maps(maps: Sequence[ImageMap], title: str = "") -> "Figure":
    """Plot one row per image: the image, then similarity and plan of each prompt over it.

    Every panel has its own scale, whose ends are written below it: cosines, and shares of the plan as multiples of the
    uniform share.
    """
    kinds = maps[0].kinds
    figure, grid = _grid(len(maps), 1 + 2 * len(kinds), title, side=1.5, text=0.4 * len(maps))
    for axes, shown in zip(grid, maps, strict=True):
        _picture(axes[0], shown)
        (plan,) = shown.plans.values()
        for n, kind in enumerate(kinds):
            _overlay(axes[1 + 2 * n], shown, shown.similarity[n])
            axes[1 + 2 * n].set_title(f"{kind}: similarity", fontsize=8)
            _overlay(axes[2 + 2 * n], shown, plan[n] * plan[n].size, unit=" × uniform")
            axes[2 + 2 * n].set_title(f"{kind}: plan", fontsize=8)
    return figure


def plot_similarity(maps: Mapping[str, Sequence[ImageMap]]) -> "Figure":
    """Plot cosines of patches and prompts, several runs side by side on the same images (the paper's Figure 2).

    One row per image, one column per prompt of each run; `maps` are by the name of the run. Every panel has its own
    scale, whose ends are written below it.
    """
    columns = [
        (f"{name}-{_SHORT[kind]}" if kind in _SHORT and len(shown[0].kinds) > 1 else name, shown, n)
        for name, shown in maps.items()
        for n, kind in enumerate(shown[0].kinds)
    ]
    first, title = next(iter(maps.values())), "Cosine of patches and prompts, for the image's own class"
    figure, grid = _grid(len(first), 1 + len(columns), title, side=1.45, text=0.4 * len(first))
    for row, axes in enumerate(grid):
        _picture(axes[0], first[row], judged=False)
        for axis, (name, shown, n) in zip(axes[1:], columns, strict=True):
            _overlay(axis, shown[row], shown[row].similarity[n])
            if row == 0:
                axis.set_title(name, fontsize=9)
    return figure


def plot_plan_maps(maps: Sequence[ImageMap]) -> "Figure":
    """Plot transport plans of each prompt at several masses (the paper's Figure A4).

    A row per image and prompt, a column per mass. All panels have the same scale: the share of its column's mass that a
    patch receives, as a multiple of the uniform share 1 / V. A uniform plan is grey everywhere.
    """
    if not maps or not maps[0].plans:
        raise FedotpError("no transport plans to draw: give maps of a run of FedOTP, with masses")
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    kinds, masses = maps[0].kinds, list(maps[0].plans)
    scale = ScalarMappable(LogNorm(1 / _REACH, _REACH), LinearSegmentedColormap.from_list("plan", _TINTS))
    figure, grid = _grid(len(maps) * len(kinds), 1 + len(masses), "", side=1.15, text=0.22 * len(maps), beside=0.9)
    for row, axes in enumerate(grid):
        shown, n = maps[row // len(kinds)], row % len(kinds)
        axes[0].set_axis_off()
        if n == 0:
            _picture(axes[0], shown)
        for axis, mass in zip(axes[1:], masses, strict=True):
            _tint(axis, shown, shown.plans[mass][n] * shown.plans[mass][n].size)
            if row == 0:
                axis.set_title(f"γ = {mass:g}", fontsize=9)
        axes[1].text(
            -0.06, 0.5, kinds[n], transform=axes[1].transAxes, rotation=90, ha="right", va="center", fontsize=9
        )
    panels = grid.ravel().tolist()
    bar = figure.colorbar(scale, ax=panels, extend="both", shrink=min(1.0, 4 / len(grid)), aspect=30, pad=0.02)
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["1/4", "1/2", "1", "2", "4"])
    bar.minorticks_off()
    bar.set_label("mass of a patch / the uniform plan's", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _grid(
    rows: int, columns: int, title: str, *, side: float, text: float, beside: float = 0.0
) -> tuple["Figure", Any]:
    """Make a figure of square panels of that `side`; `text` is room for lines between rows, `beside` for a scale."""
    figure = new_figure(side * columns + beside, side * rows + text + (0.4 if title else 0.1), tight=True)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _picture(axis: "Axes", shown: ImageMap, *, judged: bool = True) -> None:
    """Show the image with its class and, if `judged`, a wrong prediction."""
    axis.imshow(shown.image)
    right = not judged or shown.predicted == shown.label
    axis.set_title(shown.label if right else f"{shown.label}\n(predicted: {shown.predicted})", fontsize=9)
    axis.set_axis_off()


def _overlay(axis: "Axes", shown: ImageMap, values: Floats, unit: str = "") -> None:
    """Show values (g, g) over the grey image, with their range below."""
    height, width = shown.image.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axis.imshow(shown.image.mean(-1), cmap="gray", vmin=0, vmax=1)
    axis.imshow(values, cmap="inferno", alpha=0.65, interpolation="bilinear", extent=extent)
    caption = f"{values.min():.2f} to {values.max():.2f}{unit}"
    axis.text(0.5, -0.03, caption, transform=axis.transAxes, ha="center", va="top", fontsize=7, color="#444444")
    axis.set_axis_off()


def _tint(axis: "Axes", shown: ImageMap, ratio: Floats) -> None:
    """Tint the grey image by multiples (g, g) of the uniform share; 1 is grey."""
    from matplotlib.colors import to_rgb

    grey = 0.25 + 0.5 * shown.image.mean(-1, keepdims=True)  # (H, W, 1), neither black nor white: tints are visible
    steps = (np.log(np.clip(ratio, 1 / _REACH, _REACH)) / math.log(_REACH)).astype(np.float32)  # -1 to 1
    smooth = Image.fromarray(steps).resize((grey.shape[1], grey.shape[0]), Image.Resampling.BILINEAR)
    strength = np.asarray(smooth)[..., None]  # (H, W, 1)
    colour = np.where(strength > 0, to_rgb(_TINTS[-1]), to_rgb(_TINTS[0]))  # (H, W, 3)
    axis.imshow(grey + 0.8 * np.abs(strength) * (colour - grey))
    axis.set_axis_off()
