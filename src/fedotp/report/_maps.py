"""Where prompts look: similarity and transport plan over the image (the paper's heat maps)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fedotp.clip import EvalTransform
from fedotp.errors import FedotpError
from fedotp.matching import similarity
from fedotp.methods import FedOTP
from fedotp.report._figure import new_figure
from fedotp.runs import Prepared, restore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TransportMap:
    """One test image of a client and what each of its N prompts makes of it, for the image's own class.

    image (H, W, 3) in 0 to 1, as the tower sees it; similarity (N, g, g), cosines; plan (N, g, g): the share of its
    column's mass that a patch receives, so that each sums to 1; `kinds` (N,) says "global" or "local".
    """

    image: Floats
    label: str
    similarity: Floats
    plan: Floats
    kinds: tuple[str, ...]


@torch.no_grad()
def transport_maps(run: str | Path, client: str, n_images: int = 4) -> list[TransportMap]:
    """The maps of the first test images of `client` in a run of FedOTP, taking its classes in turn."""
    prepared, simulator = restore(run)
    method = simulator.method
    if not isinstance(method, FedOTP):
        raise FedotpError(f"{run} is a run of {method.title}, which has no transport plan; give a run of FedOTP")
    if client not in prepared.data.names:
        raise FedotpError(f"{run} has no client {client!r}; its clients are {', '.join(prepared.data.names[:8])}")
    number = prepared.data.names.index(client)
    test = prepared.data.test
    rows = _in_turn(test.clients[number], test.labels)[:n_images]
    params = simulator.parameters(np.array([number]))
    classes = method.class_features(simulator.task, params)  # (1, N, K, e)
    features, labels = test.read(rows[None], 0, simulator.device, classes.dtype)
    own = similarity(features.tokens, classes)[0, torch.arange(len(rows)), labels[0]]  # (n, V, N)
    plan = method.matching.plan(own)
    plan = plan / plan.sum(-2, keepdim=True)
    grid = simulator.task.clip.config.vision.grid
    return [
        TransportMap(
            image=_pixels(prepared, int(row)),
            label=simulator.task.classes[int(labels[0, i])],
            similarity=own[i].T.reshape(-1, grid, grid).double().cpu().numpy(),
            plan=plan[i].T.reshape(-1, grid, grid).double().cpu().numpy(),
            kinds=("global",) * method.n_shared + ("local",) * method.n_private,
        )
        for i, row in enumerate(rows)
    ]


def plot_maps(maps: Sequence[TransportMap], title: str = "") -> "Figure":
    """One row per image: the image, then similarity and plan of each prompt over it, on scales of the row's own."""
    kinds = maps[0].kinds
    figure = new_figure(1.75 * (1 + 2 * len(kinds)), 1.85 * len(maps) + 0.3)
    grid = figure.subplots(len(maps), 1 + 2 * len(kinds), squeeze=False)
    for axes, shown in zip(grid, maps, strict=True):
        axes[0].imshow(shown.image)
        axes[0].set_title(shown.label, fontsize=9)
        panels = [("similarity", shown.similarity), ("plan", shown.plan)]
        for i, (what, values) in enumerate((panel, rows[n]) for n in range(len(kinds)) for panel, rows in panels):
            axis = axes[1 + i]
            axis.imshow(shown.image.mean(-1), cmap="gray", vmin=0, vmax=1)
            height, width = shown.image.shape[:2]
            axis.imshow(values, cmap="inferno", alpha=0.65, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
            axis.set_title(f"{kinds[i // 2]}: {what}", fontsize=8)
        for axis in axes:
            axis.set_axis_off()
    figure.suptitle(title, fontsize=10)
    return figure


def _in_turn(rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """`rows` in an order that takes the first of every class, then the second, and so on."""
    rank = np.array([np.sum(labels[rows[:i]] == labels[row]) for i, row in enumerate(rows)])
    return rows[np.lexsort((labels[rows], rank))]


def _pixels(prepared: Prepared, row: int) -> Floats:
    """The image as the tower sees it: (H, W, 3)."""
    transform = EvalTransform(prepared.task.clip.config.image_size)
    return np.asarray(transform.crop(prepared.encoded.dataset.test.image(row))) / 255
