"""What the prompts of the study's runs look at, and which of them are alike.

    python -m recipes.claims.looks runs/claims

FOLDER/focus.csv: for FedOTP at each mass, how much more of the plan of an emoji lies on its drawing than would if all
patches were alike. Emoji are drawn on white, so it is known which pixels are object and which background.
FOLDER/alike.csv: over pairs of clients, the rank correlation between how much the labels of two clients differ (total
variation) and how far apart their own prompts are.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from recipes.claims.settings import CLASSICAL, FEDOTP, MASSES, Asked, asked
from recipes.claims.study import Lines

from fedotp.report import ImageMap, some_maps
from fedotp.runs import RunDirectory, stored_parameters

FOCUS, ALIKE = "focus.csv", "alike.csv"
_IMAGES = 64  # of a run, all clients together
_WHITE = 0.95  # a pixel with a channel below it is drawn

Floats = NDArray[np.float64]


def drawn_share(image: Floats, grid: int) -> Floats:
    """Of each patch of an image (H, W, 3) on white, which share is drawn: (g, g)."""
    drawn = (image.min(-1) < _WHITE).astype(np.float64)
    side = len(drawn) // grid
    return drawn.reshape(grid, side, grid, side).mean((1, 3))


def focus(shown: ImageMap) -> Floats:
    """For each prompt, the share of its mass on what is drawn less the share of the image that is: (N,)."""
    ((_, plans),) = shown.plans.items()
    drawn = drawn_share(shown.image, plans.shape[-1])
    return np.asarray((plans * drawn).sum((1, 2)) - drawn.mean())


def focus_of(run: RunDirectory, mass: float) -> list[str]:
    """Means over images, of the global prompt, the local one, and both."""
    both = np.mean([focus(shown) for shown in some_maps(run, _IMAGES, masses=(mass,))], axis=0)
    return [f"{number:.6f}" for number in (*both, both.mean())]


def alike(run: RunDirectory) -> list[str]:
    """Rank correlation of distances between labels and between prompts, over pairs of clients."""
    stored, predictions = stored_parameters(run), run.predictions()
    n_classes = len(run.manifest["data"]["classes"])
    prompts = np.concatenate([value.flatten(1).double().numpy() for value in stored.private.values()], axis=1)
    counts = np.stack(
        [np.bincount(predictions.label[predictions.client == c], minlength=n_classes) for c in stored.clients]
    )
    has_images = counts.sum(1) > 0
    shares, prompts = counts[has_images] / counts[has_images].sum(1, keepdims=True), prompts[has_images]
    pairs = np.triu_indices(len(shares), 1)
    of_labels = np.abs(shares[:, None] - shares).sum(-1)[pairs] / 2
    of_prompts = np.linalg.norm(prompts[:, None] - prompts, axis=-1)[pairs]
    return [f"{np.corrcoef(_ranks(of_labels), _ranks(of_prompts))[0, 1]:.6f}"]


def _ranks(values: Floats) -> Floats:
    """Ranks, of equal values their mean."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def main() -> None:
    """Look at those runs that are complete and have no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, help="where the runs' directories are, if not in FOLDER/runs")
    arguments = parser.parse_args()
    runs: Path = arguments.runs or arguments.folder / "runs"

    masses = {CLASSICAL: 1.0, FEDOTP: 0.8} | {f"fedotp:mass={mass}": mass for mass in MASSES}
    plans = Lines(arguments.folder / FOCUS, (*Asked.COLUMNS, "global", "local", "both"))
    prompts = Lines(arguments.folder / ALIKE, (*Asked.COLUMNS, "correlation"))
    looked_at = plans.keys(len(Asked.COLUMNS)), prompts.keys(len(Asked.COLUMNS))
    everything = [run for name in ("emoji-shots", "alpha") for run in asked(name, {}, device="auto", toy=False)]
    for run in everything:
        setting, value, method, *_ = run.key
        directory = RunDirectory(runs / run.trial.name)
        if not directory.is_complete:
            continue
        if setting == "emoji-shots" and value == "16" and method in masses and run.key not in looked_at[0]:
            plans.add([[*run.key, *focus_of(directory, masses[method])]])
        if setting == "alpha" and method in (FEDOTP, "coop") and run.key not in looked_at[1]:
            prompts.add([[*run.key, *alike(directory)]])


if __name__ == "__main__":
    main()
