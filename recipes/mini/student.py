"""Stage 2: the image tower learns the teacher's features in the joint space, from random views.

    python -m recipes.mini.student --packs PACKS --teacher dinov2_vits14.safetensors --work WORK --seconds 400

Cosine to the teacher's class token and to every patch token; cross-entropy with the teacher's soft choice among the
names of all classes and with the labels. The last part of the time sees milder crops. Writes `student.safetensors`;
`--resume` starts from an earlier one.
"""

import argparse
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from recipes.mini import augment
from recipes.mini.evaluate_packs import zero_shot_by_targets
from recipes.mini.material import Photos, Words, read_pack
from recipes.mini.model import EMBED, Budget, Trainer, build, write_log
from recipes.mini.teacher import Dino, Heads

from fedotp.clip import Tokenizer

WEIGHTS = {"tiny": 1.6, "cifar100": 0.8, "food": 0.7, "cifar10": 0.8}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("packs", "teacher", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--resume", type=Path, help="an earlier student.safetensors")
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--compile", action="store_true", help="run the student through torch.compile")
    parser.add_argument("--limit", type=int, help="pictures per pack, to try the code out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    log = args.work / "log.jsonl"

    words = Words(args.packs, device)
    photos = Photos(args.packs, WEIGHTS, device, limit=args.limit)
    pack = read_pack(args.packs / "drawings.npz", limit=args.limit)
    drawings, drawn_labels = pack.images.to(device), pack.labels.to(device)
    stored = torch.load(args.work / "targets.pt", weights_only=True, map_location=device)
    targets, scale = F.normalize(words.sentences @ stored["mapping"], dim=-1), stored["scale"]
    heads = Heads(EMBED).to(device)
    heads.load_state_dict(stored["heads"])
    dino = Dino(args.teacher, device)

    student = build(Tokenizer.from_json((args.packs / "tokenizer.json").read_text())).visual.to(device)
    if args.resume:
        student.load_state_dict({k: v.float() for k, v in safetensors.torch.load_file(args.resume).items()})
    trainer = Trainer(student, decay=0.05, average=0.999, fused=device == "cuda")
    run = torch.compile(student) if args.compile else student
    n_drawn = args.batch // 10
    budget = Budget(args.seconds, lr=args.lr, warmup=400, stage="student", log=log)
    for lr in budget.steps():
        late = max(0.0, (budget.done - 0.7) / 0.3)
        index = photos.sample(args.batch - n_drawn)
        labels = photos.labels[index]
        x = augment.random_crop(photos.images[index].float() / 255, 0.3 + 0.4 * late)
        x = augment.random_styles(augment.random_colours(x, 0.35 - 0.2 * late), 0.35 - 0.15 * late)
        some = torch.randint(len(drawn_labels), (n_drawn,), device=device)
        x = torch.cat([x, augment.place_drawings(drawings[some])])
        with torch.no_grad():
            wanted, wanted_patches = heads(dino(x))  # (B, e), (B, V, e)
        tokens = F.normalize(run(augment.normalise(x).bfloat16()).float(), dim=-1)  # (B, 1 + V, e)
        pooled, patches = tokens[:, 0], tokens[:, 1:]
        far = 1 - (pooled * wanted).sum(-1).mean()
        far_patches = 1 - (patches * wanted_patches).sum(-1).mean()

        captions, also_true = words.photos.sample()
        classes = targets[captions]  # (K, e)
        n = len(labels)
        soft = F.cross_entropy(scale * pooled @ classes.T, (scale * wanted @ classes.T).softmax(-1))
        captions, others = words.drawn.sample()
        drawn_names = targets[captions]
        soft_drawn = F.cross_entropy(
            0.5 * scale * pooled[n:] @ drawn_names.T, (0.5 * scale * wanted[n:] @ drawn_names.T).softmax(-1)
        )
        hard, hard_patches = (
            F.cross_entropy((scale * f[:n] @ classes.T).masked_fill(also_true[labels], -1e4), labels)
            for f in (pooled, patches.mean(1))
        )
        logits = 0.5 * scale * pooled[n:] @ drawn_names.T
        hard_drawn = F.cross_entropy(logits.masked_fill(others[drawn_labels[some]], -1e4), drawn_labels[some])
        loss = far + far_patches + 0.3 * soft + 0.15 * hard + 0.075 * hard_patches + 0.03 * (soft_drawn + hard_drawn)
        trainer.step(loss, lr)
        budget.report(
            pooled=1 - far,
            patches=1 - far_patches,
            soft=soft,
            hard=hard,
            hard_patches=hard_patches,
            drawn=hard_drawn,
            images_per_s=budget.step * args.batch / max(budget.done * args.seconds, 1e-9),
        )
    trainer.finish(student)
    weights = {name: tensor.half().cpu().contiguous() for name, tensor in student.state_dict().items()}
    safetensors.torch.save_file(weights, args.work / "student.safetensors")
    write_log(log, stage="student done", steps=budget.step)

    def teacher(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return heads(dino(x))

    def learned(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = F.normalize(student(augment.normalise(x)), dim=-1)
        return tokens[:, 0], tokens[:, 1:]

    for name, encode in (("teacher", teacher), ("student", learned)):
        zero_shot_by_targets(encode, args.packs, words, targets, device, limit=args.limit, log=log, who=name)


if __name__ == "__main__":
    main()
