"""Where in a picture mini sees a word: a figure of patch similarities.

    python -m recipes.mini.heatmaps --out docs/mini-heatmaps.png

The first test pictures of some classes of `cifar10-mini`; beside each the cosine of every patch with
"a photo of a <word>." minus its mean over the other words, so that what all words share does not show.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from recipes.mini.evaluate import encode_names
from torch import Tensor

from fedotp.clip import CLIP, EvalTransform, load
from fedotp.data import load_dataset

WORDS = ("dog", "cat", "bird", "horse", "automobile", "ship")


def heat(model: CLIP, pixels: Tensor, word: str) -> Tensor:
    """Similarity (B, 8, 8) of patches with the word, above their mean similarity with the others."""
    classes = encode_names(model, [word, *(w for w in WORDS if w != word)])  # (n, e)
    with torch.no_grad():
        patches = F.normalize(model.encode_image(pixels).tokens, dim=-1)  # (B, V, e)
    cosine = patches @ classes.T
    side = model.config.vision.grid
    return (cosine[..., 0] - cosine[..., 1:].mean(-1)).unflatten(1, (side, side))


def draw(model: CLIP, n: int = 5) -> Figure:
    """A row per word, n pictures with their maps."""
    data, transform = load_dataset("cifar10-mini"), EvalTransform(model.config.image_size)
    figure, axes = plt.subplots(len(WORDS), 2 * n, figsize=(2 * n, 1.08 * len(WORDS)))
    for row, word in zip(axes, WORDS, strict=True):
        rows = np.flatnonzero(data.test.labels == data.classes.index(word))[:n]
        pictures = [data.test.image(int(i)) for i in rows]
        maps = heat(model, torch.stack([transform(picture) for picture in pictures]), word)
        for picture, values, left, right in zip(pictures, maps, row[::2], row[1::2], strict=True):
            left.imshow(picture)
            right.imshow(picture.convert("L"), cmap="gray", extent=(0, 32, 32, 0))
            right.imshow(values, cmap="inferno", alpha=0.75, extent=(0, 32, 32, 0), interpolation="bilinear")
            left.axis("off")
            right.axis("off")
        row[0].set_title(word, fontsize=8, loc="left", pad=2)
    figure.tight_layout(pad=0.2)
    return figure


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="mini")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    draw(load(args.weights)).savefig(args.out, dpi=75)


if __name__ == "__main__":
    main()
