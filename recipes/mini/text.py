"""Stage 3: the text tower learns the names' targets, the student's images, and to be steered by contexts.

    python -m recipes.mini.text --packs PACKS --work WORK --name first --cifar10 --bare 0 --seconds 100
    python -m recipes.mini.text --packs PACKS --work WORK --name second --resume WORK/first.safetensors --seconds 100

Regression of the target feature of 40,000 names, in worded templates and behind random context vectors; cross-entropy
of the student's image features against captions that name the pictures' style; soft-prompt episodes (`episodes`).
Joins both towers, writes `<name>.safetensors` and measures zero-shot accuracy.

With `--cifar10` the tower meets the captions of CIFAR-10's training pictures. Without, it knows the ten names from
language and from other pictures only, which leaves prompts something to learn there.
"""

import argparse
import dataclasses
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from recipes.mini.episodes import Episodes, Settings
from recipes.mini.evaluate import zero_shot_box, zero_shot_packs
from recipes.mini.features import SMALL, Table, collect
from recipes.mini.material import PHOTO_SETS, Words
from recipes.mini.model import Budget, Trainer, build, write_log
from recipes.mini.sequences import LONGEST_CONTEXT, Sequences
from recipes.mini.styles import DRAWING, STYLES
from torch import Tensor, nn

from fedotp.clip import CLIP, Tokenizer, save

WORDED_LENGTH, SOFT_LENGTH = 24, 30


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packs", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--name", default="text", help="of the file of weights")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=1.2e-3)
    parser.add_argument("--cifar10", action="store_true", help="learn from CIFAR-10's captions too")
    parser.add_argument("--cifar-share", type=float, default=0.3, help="of CIFAR's pictures that count as plain photos")
    parser.add_argument("--bare", type=float, default=0.65, help="weight of the bare name in the targets")
    parser.add_argument("--regression", type=float, default=2.0, help="weight of the regression of targets")
    parser.add_argument("--episodes", type=float, default=0.5, help="weight of the soft-prompt episodes")
    parser.add_argument("--resume", type=Path, help="an earlier file of weights, whose text tower is trained on")
    parser.add_argument("--limit", type=int, help="pictures per pack, to try the code out")
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    log = args.work / f"log-{args.name}.jsonl"

    words = Words(args.packs, device)
    stored = torch.load(args.work / "targets.pt", weights_only=True, map_location=device)
    sentences = F.normalize((1 - args.bare) * words.sentences + args.bare * words.bare, dim=-1)
    targets, scale = F.normalize(sentences @ stored["mapping"], dim=-1), stored["scale"]
    tokenizer = Tokenizer.from_json((args.packs / "tokenizer.json").read_text())
    model = build(tokenizer).to(device)
    student = safetensors.torch.load_file(args.work / "student.safetensors")
    model.visual.load_state_dict({name: tensor.float() for name, tensor in student.items()})
    model.visual.requires_grad_(False).eval()
    if args.resume:
        earlier = safetensors.torch.load_file(args.resume)
        model.load_state_dict({n: t.float() for n, t in earlier.items() if not n.startswith("visual.")}, strict=False)
    n_styled = 20_000 if args.limit is None else args.limit
    table = collect(
        model.visual,
        args.packs,
        words,
        device,
        with_cifar10=args.cifar10,
        cifar_share=args.cifar_share,
        n_styled=n_styled,
        limit=args.limit,
    )
    write_log(log, stage="features", rows=len(table.label))

    text = build(tokenizer).to(device)
    text.load_state_dict(model.state_dict())
    text.visual = nn.Identity()  # type: ignore[assignment]
    sequences = Sequences(tokenizer, words.names, device)
    train(text, Losses(words, targets, scale, table, sequences, args), args, log)
    model.load_state_dict(text.state_dict(), strict=False)
    model.logit_scale.data.fill_(torch.tensor(scale).log())
    model.freeze()
    save(model, args.work / f"{args.name}.safetensors", dtype=torch.float16, overwrite=True)
    results = zero_shot_packs(model, args.packs, limit=args.limit) | zero_shot_box(model)
    write_log(log, stage="zero-shot", **results)


class Losses:
    """What the text tower is trained on, apart from episodes."""

    def __init__(
        self, words: Words, targets: Tensor, scale: float, table: Table, sequences: Sequences, args: argparse.Namespace
    ) -> None:
        """`targets` (n, e) are the features of all names, `scale` is that of the logits."""
        self.words, self.targets, self.scale, self.table, self.sequences = words, targets, scale, table, sequences
        self.device, self.args = targets.device, args
        # CIFAR-10's classes come last. Where they have no pictures, as captions they would only be pushed away.
        n_cifar10 = int((words.set_of_class == PHOTO_SETS.index("cifar10")).sum())
        n_known = len(words.set_of_class) - (0 if args.cifar10 else n_cifar10)
        self.known = torch.arange(n_known, device=self.device)

    def __call__(self, text: CLIP) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum, and its parts for the log."""
        n_worded, n_soft = self.args.batch * 6 // 10, self.args.batch * 4 // 10
        names = self._random_names(n_worded + n_soft)
        captions, also_true = self.words.photos.sample(self.known)
        other = int(torch.randint(1, DRAWING, ())) if torch.rand(()) < 0.6 else SMALL  # a style other than "photo"
        drawn = torch.randperm(len(self.words.drawn.names), device=self.device)[:512]
        drawn_captions, drawn_also_true = self.words.drawn.sample(drawn)

        # All worded captions in one pass: names in any style, classes as photos and in the other style, drawings.
        parts = [
            (names[:n_worded], torch.randint(len(STYLES), (n_worded,), device=self.device)),
            (captions, torch.zeros_like(captions)),
            (captions, torch.full_like(captions, other)),
            (drawn_captions, torch.full_like(drawn_captions, DRAWING)),
        ]
        template = self.sequences.worded(torch.cat([style for _, style in parts]))
        encoded = self.sequences.encode(text, template, torch.cat([name for name, _ in parts]), WORDED_LENGTH)
        worded, as_photo, as_other, as_drawing = encoded.split([len(name) for name, _ in parts])
        soft, as_soft = self._behind_random_vectors(text, names[n_worded:], captions)

        near, contrast = self._language(torch.cat([worded, soft]), names)
        regression = 1 - near[:n_worded].mean() + 0.5 * (1 - near[n_worded:].mean())
        pairs = ((as_photo, 0), (as_other, other), (as_soft, 0))
        on_images = torch.stack([self._on_images(classes, style, also_true) for classes, style in pairs]).mean()
        on_drawings = self._on_drawings(as_drawing, drawn, drawn_also_true)
        loss = self.args.regression * regression + 0.3 * contrast + 0.5 * on_images + 0.15 * on_drawings
        return loss, {
            "cosine": near[:n_worded].mean(),
            "cosine_soft": near[n_worded:].mean(),
            "contrast": contrast,
            "images": on_images,
            "drawings": on_drawings,
        }

    def _random_names(self, n: int) -> Tensor:
        """Numbers of names (n,): a quarter of photo and drawing classes, half common, a quarter anything."""
        ends = [self.words.n_class_words] * (n // 4) + [self.words.n_common] * (n // 2)
        ends += [len(self.words.names)] * (n - len(ends))
        picked = (torch.rand(n, device=self.device) * torch.tensor(ends, device=self.device)).long()
        return picked[torch.randperm(n, device=self.device)]

    def _behind_random_vectors(self, text: CLIP, names: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Names behind 1 to 20 vectors of their own, most often 16; captions behind 16 that they share."""
        n_vectors = torch.randint(1, LONGEST_CONTEXT + 1, (len(names),), device=self.device)
        n_vectors[torch.rand(len(names), device=self.device) < 0.6] = 16
        own = _random_contexts(text, len(names), self.device)
        shared = _random_contexts(text, 1, self.device).expand(len(captions), -1, -1)
        template = self.sequences.soft(torch.cat([n_vectors, torch.full_like(captions, 16)]))
        who, context = torch.cat([names, captions]), torch.cat([own, shared])
        encoded = self.sequences.encode(text, template, who, SOFT_LENGTH, context)
        return encoded[: len(names)], encoded[len(names) :]

    def _language(self, got: Tensor, names: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines to the names' targets (n,), and cross-entropy against the targets of the other names."""
        wanted = self.targets[names]
        same = (names[:, None] == names[None]).fill_diagonal_(False)
        logits = (20 * got @ wanted.T).masked_fill(same, -1e4)
        return (got * wanted).sum(-1), F.cross_entropy(logits, torch.arange(len(got), device=self.device))

    def _on_images(self, classes: Tensor, style: int, also_true: Tensor) -> Tensor:
        """Photos of a style against the captions of all classes: class token, and mean patch at half the weight."""
        rows = self.table.of_style(style, 1024)
        labels = self.table.label[rows]
        loss = torch.zeros((), device=self.device)
        for weight, x in ((1.0, self.table.pooled[rows]), (0.5, self.table.patches[rows])):
            logits = (self.scale * x.float() @ classes.T).masked_fill(also_true[labels], -1e4)
            loss = loss + weight * F.cross_entropy(logits, labels)
        return loss

    def _on_drawings(self, classes: Tensor, drawn: Tensor, also_true: Tensor) -> Tensor:
        """One drawing of each of some names against the captions of these names."""
        labels = len(self.words.photos.names) + drawn
        rows = self.table.of_label(torch.full_like(labels, DRAWING), labels)
        logits = (0.5 * self.scale * self.table.pooled[rows].float() @ classes.T).masked_fill(also_true, -1e4)
        return F.cross_entropy(logits, torch.arange(len(drawn), device=self.device))


def train(text: CLIP, losses: Losses, args: argparse.Namespace, log: Path) -> None:
    """The training loop; leaves averaged weights in `text`."""
    words, targets, device = losses.words, losses.targets, losses.device
    slow = ("token_embedding", "positional_embedding")
    trainer = Trainer(text, decay=0.02, average=0.998, slow=slow, fused=device.type == "cuda")
    # Features are stretched and shifted along the leading axes of what classes look like.
    class_features = targets[words.photos.name_ids]
    axes = torch.linalg.svd(class_features - class_features.mean(0), full_matrices=False)[2][:64].T.contiguous()
    settings = Settings() if args.limit is None else dataclasses.replace(Settings(), n_episodes=8, life=5)
    episodes = Episodes(losses.table, words, losses.sequences, axes, settings, args.seed)
    episodes.scale = losses.scale
    budget = Budget(args.seconds, lr=args.lr, warmup=200, stage="text", log=log)
    ages: list[tuple[Tensor, Tensor]] = []
    for lr in budget.steps():
        loss, parts = losses(text)
        if budget.done > 0.1:
            each, context = episodes.loss(text)
            trainer.step(loss + args.episodes * each.mean(), lr)
            assert context.grad is not None
            episodes.update(context.grad * (len(each) / args.episodes))
            ages.append((torch.tensor(episodes.age), each.detach()))
        else:
            trainer.step(loss, lr)
        if budget.step % budget.log_every == 0:
            young, old = _by_age(ages, settings.life)
            ages.clear()
            sizes = {"context_std": episodes.context.std(), "embedding_std": text.token_embedding.weight.float().std()}
            budget.report(**parts, episodes_young=young, episodes_old=old, **sizes)
    trainer.finish(text)


def _random_contexts(text: CLIP, n: int, device: torch.device) -> Tensor:
    """Contexts (n, 20, d) of normal vectors; in one of five, words stand in some places."""
    std = torch.empty(n, 1, 1, device=device).uniform_(-4.6, -3.2).exp()  # 0.01 to 0.04
    vectors = std * torch.randn(n, LONGEST_CONTEXT, text.config.text.width, device=device)
    ids = torch.randint(2, text.config.text.vocab_size, (n, LONGEST_CONTEXT), device=device)
    words = text.token_embedding(ids).detach().float()
    is_word = torch.rand(n, LONGEST_CONTEXT, 1, device=device) < 0.7 * (torch.rand(n, 1, 1, device=device) < 0.2)
    return torch.where(is_word, words, vectors)


def _by_age(ages: list[tuple[Tensor, Tensor]], life: int) -> tuple[float, float]:
    """Mean loss of episodes in their first and last tenth."""
    if not ages:
        return 0.0, 0.0
    age = torch.stack([a for a, _ in ages])
    loss = torch.stack([each for _, each in ages]).cpu()
    return float(loss[age < life / 10].mean()), float(loss[age >= life * 0.9].mean())


if __name__ == "__main__":
    main()
