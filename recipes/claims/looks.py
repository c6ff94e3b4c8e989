"""What the plans of the study's runs look at.

    python -m recipes.claims.looks runs/claims

FOLDER/focus.csv: for FedOTP with 16 shots of emoji, how much more of the plan of an image lies on its drawing than
would if all patches were alike, at each mass; the prompts are those learned at the paper's. Emoji are drawn on white,
so it is known which pixels are object and which background.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from recipes.claims.settings import FEDOTP, MASSES, Asked, asked
from recipes.claims.study import Lines

from fedotp.report import ImageMap, some_maps
from fedotp.runs.directory import RunDirectory

FOCUS = "focus.csv"
_IMAGES = 64  # of a run, all clients together
_WHITE = 0.95  # a pixel with a channel below it is drawn

Floats = NDArray[np.float64]


def drawn_share(image: Floats, grid: int) -> Floats:
    """Of each patch of an image (H, W, 3) on white, which share is drawn: (g, g)."""
    drawn = (image.min(-1) < _WHITE).astype(np.float64)
    side = len(drawn) // grid
    return drawn.reshape(grid, side, grid, side).mean((1, 3))


def focus(shown: ImageMap, mass: float) -> Floats:
    """For each prompt, the share of its mass on what is drawn less the share of the image that is: (N,)."""
    plans = shown.plans[mass]
    drawn = drawn_share(shown.image, plans.shape[-1])
    return np.asarray((plans * drawn).sum((1, 2)) - drawn.mean())


def focus_of(run: RunDirectory) -> Iterator[list[str]]:
    """For each mass: means over images, of the global prompt, the local one, and both."""
    maps = some_maps(run, _IMAGES, masses=MASSES)
    for mass in MASSES:
        both = np.mean([focus(shown, mass) for shown in maps], axis=0)
        yield [f"{mass:g}", *(f"{number:.6f}" for number in (*both, both.mean()))]


def main() -> None:
    """Look at those runs that are complete and have no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, help="where the runs' directories are, if not in FOLDER/runs")
    arguments = parser.parse_args()
    runs: Path = arguments.runs or arguments.folder / "runs"
    lines = Lines(arguments.folder / FOCUS, (*Asked.COLUMNS, "mass", "global", "local", "both"))
    seen = lines.keys(len(Asked.COLUMNS))
    for run in asked("emoji-shots", {}, device="auto", toy=False):
        directory = RunDirectory(runs / run.trial.name)
        if run.key[1:3] == ("16", FEDOTP) and run.key not in seen and directory.is_complete:
            lines.add([[*run.key, *line] for line in focus_of(directory)])


if __name__ == "__main__":
    main()
