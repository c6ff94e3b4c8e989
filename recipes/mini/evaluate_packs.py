"""Zero-shot accuracy during training, on the test packs, from target features instead of a text tower."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from recipes.mini.material import PHOTO_SETS, TESTS, Words, read_pack
from recipes.mini.model import write_log
from torch import Tensor

Encode = Callable[[Tensor], tuple[Tensor, Tensor]]
# Class names of the test packs that are not readable as they stand.
RENAMED = {"back_pack": "backpack"}


def class_names(test: str, classes: list[str], words: Words) -> list[str]:
    """Names of a test pack's classes; Tiny-ImageNet's are WordNet ids in the pack."""
    if test.startswith("tiny"):
        return [n for n, s in zip(words.photos.names, words.set_of_class, strict=True) if PHOTO_SETS[s] == "tiny"]
    return [RENAMED.get(c, c).replace("_", " ").lower() for c in classes]


@torch.no_grad()
def zero_shot_by_targets(
    encode: Encode, packs: Path, words: Words, targets: Tensor, device: str, *, limit: int | None, log: Path, who: str
) -> None:
    """Log the accuracy of class token and mean patch, and of a linear probe, on every test pack."""
    index = {name: i for i, name in enumerate(words.names)}
    for test in TESTS:
        pack = read_pack(packs / f"{test}.npz", limit=limit)
        names = class_names(test, pack.classes, words)
        known = [name if name in index else name.removesuffix("s") for name in names]  # few plurals are in the list
        classes = targets[torch.tensor([index[name] for name in known], device=device)]
        features = [encode(x.to(device).float() / 255) for x in pack.images.split(500)]
        pooled, patches = (torch.cat([f[i] if i == 0 else f[i].mean(1) for f in features]) for i in (0, 1))
        labels = pack.labels.to(device)
        result = {
            key: round(100 * float((x @ classes.T).argmax(1).eq(labels).float().mean()), 2)
            for key, x in (("pooled", pooled), ("patches", patches))
        }
        if test == "cifar10_test":
            result["probe"] = round(linear_probe(pooled, labels, n_train=len(labels) * 3 // 10), 2)
            result["probe_patches"] = round(linear_probe(patches, labels, n_train=len(labels) * 3 // 10), 2)
        write_log(log, stage=f"{who} on {test}", **result)


def linear_probe(x: Tensor, labels: Tensor, n_train: int, *, decay: float = 1e-3, steps: int = 200) -> float:
    """Accuracy in percent of a logistic regression fitted to `n_train` random features, on the others."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(labels.device)
    x, labels = F.normalize(x[order].float(), dim=-1) * x.shape[-1] ** 0.5, labels[order]
    n_classes = int(labels.max()) + 1
    with torch.enable_grad():
        weight = torch.zeros(n_classes, x.shape[1], device=x.device, requires_grad=True)
        bias = torch.zeros(n_classes, device=x.device, requires_grad=True)
        solver = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            solver.zero_grad()
            loss = F.cross_entropy(x[:n_train] @ weight.T + bias, labels[:n_train]) + decay * weight.square().sum()
            loss.backward()
            return loss

        solver.step(closure)
    with torch.no_grad():
        right = (x[n_train:] @ weight.T + bias).argmax(1).eq(labels[n_train:])
    return 100 * float(right.float().mean())
