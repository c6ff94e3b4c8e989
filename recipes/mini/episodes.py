"""Soft-prompt problems that run beside the training of the text tower, so that contexts come to matter.

Each of J episodes is a small classification problem with a context of 16 vectors of its own, which starts at random,
takes a number of SGD steps with momentum, and is then replaced. The text tower descends on the same losses, so it
learns to be steered by contexts. What there is to adapt to differs between episodes: some classes never occur (label
skew), pictures in another style, names that are hypernyms, features stretched along some axes, and an offset
of each class's features. Pictures of CIFAR-10 are left out, so that experiments on it meet a tower that was not fitted
to them.
"""

import math
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from recipes.mini.features import Table
from recipes.mini.material import PHOTO_SETS, Words
from recipes.mini.sequences import Sequences
from recipes.mini.styles import DRAWING
from torch import Tensor

from fedotp.clip import CLIP

N_CONTEXT = 16
STD = 0.02
LENGTH = 1 + N_CONTEXT + 8 + 2


@dataclass(frozen=True)
class Settings:
    """How many episodes, how large, how hard."""

    n_episodes: int = 96
    n_classes: int = 12
    n_images: int = 32
    life: int = 150
    lr: tuple[float, float] = (0.005, 0.2)  # of the contexts, log-uniform over episodes
    p_skew: float = 0.4
    p_offset: float = 0.5
    p_stretch: float = 0.4
    p_style: float = 0.4
    p_drawings: float = 0.15
    offset: tuple[float, float] = (0.1, 0.5)  # length of a class's offset; features have length 1
    stretch: float = 0.5


class Episodes:
    """J problems side by side."""

    def __init__(
        self, table: Table, words: Words, sequences: Sequences, axes: Tensor, settings: Settings, seed: int
    ) -> None:
        """`axes` (e, r): directions along which features are stretched."""
        self.table, self.words, self.sequences, self.axes, self.settings = table, words, sequences, axes, settings
        self.rng = random.Random(seed)
        device = axes.device
        sets = words.set_of_class.tolist()
        self._pools = [[i for i, s in enumerate(sets) if PHOTO_SETS[s] == key] for key in ("tiny", "cifar100", "food")]
        self._pools.append([i for pool in self._pools for i in pool])
        n_photo = len(sets)
        often = table.count[DRAWING, n_photo:].topk(min(800, len(words.drawn.names))).indices  # drawn by several hands
        self._drawn = (n_photo + often).tolist()
        J, K, e = settings.n_episodes, settings.n_classes, axes.shape[0]
        self.context = torch.zeros(J, N_CONTEXT, e, device=device)
        self.momentum = torch.zeros_like(self.context)
        self.labels = torch.zeros(J, K, dtype=torch.long, device=device)
        self.names = torch.zeros(J, K, dtype=torch.long, device=device)
        self.chance = torch.zeros(J, K, device=device)
        self.style = torch.zeros(J, dtype=torch.long, device=device)
        self.lr = torch.zeros(J, 1, 1, device=device)
        self.stretch = torch.zeros(J, 1, axes.shape[1], device=device)
        self.offset = torch.zeros(J, K, e, device=device)
        self.by_patches = torch.zeros(J, 1, 1, dtype=torch.bool, device=device)
        self.age = [self.rng.randrange(settings.life) for _ in range(J)]
        self._all_names = torch.cat([words.photos.name_ids, words.drawn.name_ids])
        for j in range(J):
            self._renew(j)

    def loss(self, text: CLIP) -> tuple[Tensor, Tensor]:
        """Cross-entropy of each episode (J,), and the contexts it depends on (J, s, d)."""
        J, K = self.labels.shape
        context = self.context.clone().requires_grad_()
        expanded = context[:, None].expand(-1, K, -1, -1).flatten(0, 1)  # (JK, s, d)
        template = self.sequences.soft(torch.full((J * K,), N_CONTEXT, device=context.device))
        classes = self.sequences.encode(text, template, self.names.flatten(), LENGTH, expanded).view(J, K, -1)
        picked = torch.multinomial(self.chance, self.settings.n_images, replacement=True)  # (J, B)
        rows = self.table.of_label(self.style[:, None].expand_as(picked), self.labels.gather(1, picked))
        x = torch.where(self.by_patches, self.table.patches[rows], self.table.pooled[rows]).float()  # (J, B, e)
        x = x + (x @ self.axes * self.stretch) @ self.axes.T
        x = F.normalize(x + torch.take_along_dim(self.offset, picked[..., None], 1), dim=-1)
        logits = self.scale * x @ classes.mT  # (J, B, K)
        each = F.cross_entropy(logits.flatten(0, 1), picked.flatten(), reduction="none").view(J, -1).mean(1)
        return each, context

    scale: float = 40.0

    @torch.no_grad()
    def update(self, gradient: Tensor) -> None:
        """One SGD step of every context; episodes at the end of their life start anew."""
        self.momentum.mul_(0.9).add_(gradient)
        self.context -= self.lr * self.momentum
        for j in range(len(self.age)):
            self.age[j] += 1
            if self.age[j] >= self.settings.life:
                self.age[j] = 0
                self._renew(j)

    def _renew(self, j: int) -> None:
        s, rng, device = self.settings, self.rng, self.context.device
        K = s.n_classes
        if rng.random() < s.p_drawings:
            labels, style = rng.sample(self._drawn, K), DRAWING
        else:
            labels = rng.sample(rng.choice(self._pools), K)
            style = rng.randrange(1, DRAWING) if rng.random() < s.p_style else 0
        self.labels[j] = torch.tensor(labels, device=device)
        self.names[j] = self._all_names[self.labels[j]]
        self.style[j] = style
        if style != DRAWING and rng.random() < 0.3:
            captions, also_true = self.words.photos.sample()
            if not also_true[self.labels[j]][:, self.labels[j]].any():
                self.names[j] = captions[self.labels[j]]
        chance = torch.ones(K)
        if rng.random() < s.p_skew:
            chance[rng.randint(2, 5) :] = 0
        chance = chance * (self.table.count[style, self.labels[j]].cpu() > 0)
        self.chance[j] = (chance if chance.sum() > 0 else torch.ones(K)).to(device)
        low, high = map(math.log, s.lr)
        self.lr[j] = math.exp(rng.uniform(low, high))
        self.stretch[j] = 0
        if rng.random() < s.p_stretch:
            self.stretch[j] = s.stretch * torch.randn(1, self.axes.shape[1], device=device)
        self.offset[j] = 0
        if rng.random() < s.p_offset:
            directions = torch.randn(K, self.axes.shape[1], device=device) @ self.axes.T
            self.offset[j] = rng.uniform(*s.offset) * F.normalize(directions, dim=-1)
        self.by_patches[j] = rng.random() < 0.5
        self.context[j] = STD * torch.randn(N_CONTEXT, self.context.shape[-1], device=device)
        self.momentum[j] = 0
