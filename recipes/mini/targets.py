"""Stage 1: a joint space. Linear heads on the frozen teacher meet linearly mapped sentence embeddings of names.

    python -m recipes.mini.targets --packs PACKS --teacher dinov2_vits14.safetensors --seconds 30 --out WORK

Cross-entropy of class token and mean patch against one random true caption per photo class (names and WordNet
hypernyms; captions also true of the image's own class are left out), and against all names of drawings.
Writes `targets.pt`: the heads, the scale and the map of sentence embeddings.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from recipes.mini import augment
from recipes.mini.material import Photos, Words, read_pack
from recipes.mini.model import EMBED, Budget, write_log
from recipes.mini.teacher import Dino, Heads
from torch import Tensor, nn

WEIGHTS = {"tiny": 1.0, "cifar100": 1.0, "food": 0.8, "cifar10": 1.0}
HIGHEST_SCALE = 40.0


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("packs", "teacher", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--limit", type=int, help="pictures per pack, to try the code out")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / "log.jsonl"

    words = Words(args.packs, device)
    photos = Photos(args.packs, WEIGHTS, device, limit=args.limit)
    drawings = read_pack(args.packs / "drawings.npz", limit=args.limit)
    drawn_labels = drawings.labels.to(device)
    dino = Dino(args.teacher, device)
    # Each photo as it is and once as a random, often stylised view; each drawing on four backgrounds.
    photo_views = torch.stack([_teach(dino, photos.images, _plain), _teach(dino, photos.images, _view)])
    drawn = drawings.images.to(device)
    drawn_views = torch.stack([_teach(dino, drawn, augment.place_drawings) for _ in range(4)])
    write_log(log, stage="teacher tokens", photos=len(photos.labels), drawings=len(drawn_labels))

    heads = Heads(EMBED).to(device)
    mapping = nn.Parameter(torch.eye(EMBED, device=device))  # of sentence embeddings, held near its start
    log_scale = nn.Parameter(torch.tensor(3.0, device=device))
    groups = [
        {"params": list(heads.parameters()), "weight_decay": 0.05, "factor": 1.0},
        {"params": [mapping], "weight_decay": 0.0, "factor": 0.3},
        {"params": [log_scale], "weight_decay": 0.0, "factor": 1.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
    budget = Budget(args.seconds, lr=1e-3, warmup=100, stage="targets", log=log)
    for lr in budget.steps():
        scale = log_scale.exp().clamp(max=HIGHEST_SCALE)
        index = photos.sample(args.batch)
        labels = photos.labels[index]
        view = (torch.rand(args.batch, device=device) < 0.25).long()
        pooled, patches = heads(photo_views[view, index])
        captions, also_true = words.photos.sample()
        classes = F.normalize(words.sentences[captions] @ mapping, dim=-1)  # (K, e)
        on_pooled, on_patches = (
            F.cross_entropy((scale * x @ classes.T).masked_fill(also_true[labels], -1e4), labels)
            for x in (pooled, patches.mean(1))
        )
        some = torch.randint(len(drawn_labels), (args.batch // 4,), device=device)
        pooled, patches = heads(drawn_views[torch.randint(4, (len(some),), device=device), some])
        captions, also_true = words.drawn.sample()
        names = F.normalize(words.sentences[captions] @ mapping, dim=-1)  # (n, e)
        others = also_true[drawn_labels[some]]
        on_drawings = sum(
            weight * F.cross_entropy((0.5 * scale * x @ names.T).masked_fill(others, -1e4), drawn_labels[some])
            for weight, x in ((1.0, pooled), (0.5, patches.mean(1)))
        )
        drift = (mapping - torch.eye(EMBED, device=device)).square().sum() / EMBED
        loss = on_pooled + 0.5 * on_patches + 0.08 * on_drawings + 0.3 * drift
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        optimizer.step()
        budget.report(pooled=on_pooled, patches=on_patches, drawings=on_drawings, drift=drift, scale=scale)

    final_scale = float(log_scale.detach().exp().clamp(max=HIGHEST_SCALE))
    state = {"heads": heads.state_dict(), "mapping": mapping.detach(), "scale": final_scale}
    torch.save({k: _cpu(v) for k, v in state.items()}, args.out / "targets.pt")
    write_log(log, stage="targets done", steps=budget.step, scale=final_scale)


def _cpu(value: object) -> object:
    if isinstance(value, dict):
        return {k: _cpu(v) for k, v in value.items()}
    return value.cpu() if isinstance(value, Tensor) else value


def _plain(images: Tensor) -> Tensor:
    return images.float() / 255


def _view(images: Tensor) -> Tensor:
    x = augment.random_crop(images.float() / 255, 0.4)
    return augment.random_styles(augment.random_colours(x, 0.3), 0.4)


def _teach(dino: Dino, images: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
    """Teacher tokens of a view of each picture, (n, 1 + V, 384) in bfloat16."""
    order = torch.randperm(len(images), device=images.device)  # styles go by position in a batch
    out = torch.empty(len(images), 65, 384, dtype=torch.bfloat16, device=images.device)
    for rows in order.split(2048):
        out[rows] = dino(view(images[rows]))
    return out


if __name__ == "__main__":
    main()
