"""Images a random tower can tell apart: a square of the class's colour on dark noise."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

Colours = Mapping[str, tuple[int, int, int]]


def draw_squares(folder: Path, colours: Colours, n_images: int) -> None:
    """Write `n_images` of every class to folder/<class>/; the colours are those of the middle."""
    rng = np.random.default_rng(0)
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        for i in range(n_images):
            pixels = rng.integers(0, 90, (32, 32, 3))
            pixels[8:24, 8:24] = colour
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")


def draw_day_and_night(folder: Path, colours: Colours, n_images: int) -> None:
    """The same in two domains, day/ and night/; by night colours are half as bright."""
    draw_squares(folder / "day", colours, n_images)
    darker = {name: (r // 2, g // 2, b // 2) for name, (r, g, b) in colours.items()}
    draw_squares(folder / "night", darker, n_images)
