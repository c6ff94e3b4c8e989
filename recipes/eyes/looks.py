"""Do transport plans lie on the object? Pets, whose outlines are known, on OpenAI's patches.

    python -m recipes.eyes.looks runs/eyes/real-pets DATA/masks docs/results/eyes/looks.csv

For FedOTP's runs at masses 0.5, 0.8 and 1, each trained at its own mass: the share of each prompt's plan on the animal
minus the animal's share of the image, in points, mean over test images of all clients. 0 is what a uniform plan has.
"untrained" is the plan of the published class features at the same mass. For patches of the animal and of the
background it also keeps the mean cosine to the image's own class.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedotp.matching import Matching
from fedotp.report._client import ClientImages
from fedotp.report._maps import normalised
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import restore

Floats = NDArray[np.float64]
RUNS = {"fedotp,mass=0.5": 0.5, "fedotp": 0.8, "fedotp,rule=classical": 1.0}
_ANIMAL, _BACKGROUND = 1, 2  # of a trimap; 3 is the border, which counts as half
_IMAGES = 40  # of each client


def animal_share(trimap: Path, grid: int) -> Floats:
    """The share of each patch that is animal: (g, g)."""
    pixels = np.asarray(Image.open(trimap))
    animal = np.where(pixels == _ANIMAL, 1.0, np.where(pixels == _BACKGROUND, 0.0, 0.5))
    side = len(animal) // grid
    return np.asarray(animal.reshape(grid, side, grid, side).mean((1, 3)))


def looks(run: RunDirectory, masks: Path, mass: float) -> dict[str, float]:
    """Means over images and clients of one run."""
    prepared, simulator = restore(run.path)
    test, grid = prepared.encoded.dataset.test, simulator.task.clip.config.vision.grid
    rule = Matching(rule="unbalanced", reg=simulator.method.matching.reg, mass=mass)
    found: list[list[float]] = []
    for client in prepared.data.names:
        images = ClientImages.of(prepared, simulator, client, _IMAGES)
        own = images.own_similarity()  # (n, V, N)
        classes = simulator.task.features(None)[0, 0]  # (K, e)
        names = classes[images.labels] / classes[images.labels].norm(dim=-1, keepdim=True)
        tokens = images.image.tokens[0] / images.image.tokens[0].norm(dim=-1, keepdim=True)
        plain = (tokens @ names[:, :, None]).expand_as(own)
        plans = [normalised(images.plan(each, rule)).double().cpu().numpy() for each in (own, plain)]
        cosines = plain[..., 0].double().cpu().numpy()
        for i, row in enumerate(images.rows):
            animal = animal_share(masks / f"{Path(test.name(int(row))).stem}.png", grid).reshape(-1)
            shares = [plan[i, :, n] @ animal - animal.mean() for plan in plans for n in range(plan.shape[-1])]
            lies = [100 * float(share) for share in shares]
            inside = float(cosines[i] @ animal / max(animal.sum(), 1e-9))
            outside = float(cosines[i] @ (1 - animal) / max((1 - animal).sum(), 1e-9))
            found.append([*lies[:3], inside, outside, 100 * float(animal.mean())])
    means = np.mean(found, axis=0)
    columns = ("global", "local", "untrained", "cosine_animal", "cosine_background", "animal_percent")
    return dict(zip(columns, means.tolist(), strict=True)) | {"images": len(found)}


def main() -> None:
    """Write a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the runs")
    parser.add_argument("masks", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    lines = []
    for path in sorted(given.folder.glob("fedotp*/")):
        *name, split, seed = path.name.split(",")
        if (mass := RUNS.get(",".join(name))) is not None:
            numbers = looks(RunDirectory(path), given.masks, mass)
            lines.append(
                {"mass": mass, "split": split.removeprefix("split="), "seed": seed.removeprefix("seed=")} | numbers
            )
            print(lines[-1], flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
