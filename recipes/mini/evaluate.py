"""The numbers of the model card.

    python -m recipes.mini.evaluate --packs PACKS --out RESULTS.json

Zero-shot accuracy with the template "a photo of a {}." on the test packs and, by vendor, on the emoji in the box; a
linear probe; milliseconds per image; size.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from recipes.mini import augment
from recipes.mini.evaluate_packs import class_names, linear_probe
from recipes.mini.material import TESTS, Words, read_pack
from torch import Tensor

from fedotp.clip import CLIP, EvalTransform, load
from fedotp.data import load_dataset

TEMPLATE = "a photo of a {}."


@torch.no_grad()
def encode_names(model: CLIP, names: list[str], template: str = TEMPLATE) -> Tensor:
    """Normalised class features (K, e)."""
    ids = model.tokenizer([template.format(name) for name in names], model.config.text.context_length)
    return F.normalize(model.encode_text(ids.to(model.device)), dim=-1)


@torch.no_grad()
def encode_images(model: CLIP, images: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised class tokens (n, e) and means of normalised patches (n, e) of uint8 pictures."""
    device = model.device
    pooled, patches = [], []
    for part in images.split(250):
        features = model.encode_image(augment.normalise(part.to(device).float() / 255))
        pooled.append(F.normalize(features.pooled, dim=-1))
        patches.append(F.normalize(features.tokens, dim=-1).mean(1))
    return torch.cat(pooled), torch.cat(patches)


def accuracy(x: Tensor, classes: Tensor, labels: Tensor) -> float:
    """Percent of features whose nearest class is the right one."""
    return round(100 * float((x @ classes.T).argmax(1).eq(labels).float().mean()), 1)


def zero_shot_packs(model: CLIP, packs: Path, *, limit: int | None = None) -> dict[str, list[float]]:
    """For each test pack the accuracy from the class token and from the patches."""
    words = Words(packs, "cpu")
    device = model.device
    results = {}
    for test in TESTS:
        pack = read_pack(packs / f"{test}.npz", limit=limit)
        classes = encode_names(model, class_names(test, pack.classes, words))
        pooled, patches = encode_images(model, pack.images)
        labels = pack.labels.to(device)
        results[test] = [accuracy(x, classes, labels) for x in (pooled, patches)]
        if test.startswith(("cifar10_", "cifar100_")):
            n_train = len(labels) * 3 // 10 if test.startswith("cifar10_") else len(labels) // 2
            results[f"{test} linear probe"] = [round(linear_probe(x, labels, n_train), 1) for x in (pooled, patches)]
    return results


def zero_shot_box(model: CLIP) -> dict[str, list[float]]:
    """The same on the data in the box: the emoji of each vendor (both splits), and cifar10-mini."""
    transform, device = EvalTransform(model.config.image_size), model.device
    results = {}
    for name in ("emoji", "cifar10-mini"):
        data = load_dataset(name)
        classes = encode_names(model, list(data.classes))
        splits = (data.train, data.test)
        labels, domains = (
            torch.from_numpy(np.concatenate(x)).to(device)
            for x in zip(*((s.labels, s.domains) for s in splits), strict=True)
        )
        pixels = torch.stack([transform(s.image(i)) for s in splits for i in range(len(s))])
        with torch.no_grad():
            parts = [model.encode_image(x.to(device)) for x in pixels.split(250)]
        pooled = torch.cat([F.normalize(p.pooled, dim=-1) for p in parts])
        patches = torch.cat([F.normalize(p.tokens, dim=-1).mean(1) for p in parts])
        for number, domain in enumerate(data.domains):
            of = domains == number
            results[f"{name} {domain}"] = [accuracy(x[of], classes, labels[of]) for x in (pooled, patches)]
    return results


def milliseconds_per_image(model: CLIP, batch: int = 64, repeats: int = 7) -> float:
    """Median time of `encode_image` per image."""
    x = torch.randn(batch, 3, 64, 64, device=model.device)
    times = []
    with torch.no_grad():
        for _ in range(repeats):
            begin = time.perf_counter()
            model.encode_image(x)
            times.append(time.perf_counter() - begin)
    return round(1000 * sorted(times)[repeats // 2] / batch, 2)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packs", type=Path, help="without it, the data in the box only")
    parser.add_argument("--weights", default="mini")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model = load(args.weights)
    results: dict[str, object] = {"parameters": sum(p.numel() for p in model.parameters()), "digest": model.digest}
    results["ms_per_image"] = milliseconds_per_image(model)
    results["threads"] = torch.get_num_threads()
    if args.packs:
        results |= zero_shot_packs(model, args.packs)
    results |= zero_shot_box(model)
    print(json.dumps(results, indent=1))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
