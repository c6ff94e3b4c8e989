"""The student's features of the training pictures in every style, sorted by style and class."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from recipes.mini import augment
from recipes.mini.material import PHOTO_SETS, Photos, Words, read_pack
from recipes.mini.styles import DRAWING, STYLES
from torch import Tensor, nn

SMALL = next(i for i, style in enumerate(STYLES) if style.name == "small")


class Table:
    """Features `pooled` and `patches` (n, e; the latter the mean of normalised patches), by style and label.

    Labels are the photo classes and, behind them, the names of drawings.
    """

    def __init__(self, pooled: Tensor, patches: Tensor, style: Tensor, label: Tensor, n_labels: int) -> None:
        """Sort the rows by style and label."""
        key = style * n_labels + label
        order = key.argsort()
        self.pooled, self.patches = pooled[order].half(), patches[order].half()
        self.label, self.style = label[order], style[order]
        self.n_labels = n_labels
        self.count = key.bincount(minlength=len(STYLES) * n_labels).view(len(STYLES), n_labels)
        self.start = (self.count.flatten().cumsum(0) - self.count.flatten()).view_as(self.count)
        ends = self.count.sum(1).cumsum(0)
        self._style_range = torch.stack([ends - self.count.sum(1), ends], 1)  # (S, 2)

    def of_style(self, style: int, n: int) -> Tensor:
        """Random rows (n,) of a style."""
        first, end = self._style_range[style]
        return first + (torch.rand(n, device=first.device) * (end - first)).long()

    def of_label(self, style: Tensor, label: Tensor) -> Tensor:
        """One random row for each style and label, of any equal shapes."""
        count = self.count[style, label]
        row = self.start[style, label] + (torch.rand(label.shape, device=label.device) * count).long()
        return row.clamp(max=len(self.label) - 1)


@torch.no_grad()
def collect(
    student: nn.Module,
    packs: Path,
    words: Words,
    device: str,
    *,
    with_cifar10: bool,
    cifar_share: float,
    n_styled: int,
    limit: int | None = None,
) -> Table:
    """Encode everything once.

    Photos of Tiny-ImageNet and Food-101 count as "photo", plain and as a mild crop; those of CIFAR, of 32 pixels, as
    "small", and a `cifar_share` of them as "photo" too. `n_styled` photos are also encoded in each other style.
    """
    photos = Photos(packs, dict.fromkeys(PHOTO_SETS, 1.0), device, limit=limit)
    drawings = read_pack(packs / "drawings.npz", limit=limit)
    if not with_cifar10:
        keep = words.set_of_class.to(device)[photos.labels] != PHOTO_SETS.index("cifar10")
        photos.images, photos.labels = photos.images[keep], photos.labels[keep]
    cifar = torch.tensor([PHOTO_SETS.index("cifar10"), PHOTO_SETS.index("cifar100")], device=device)
    is_cifar = torch.isin(words.set_of_class.to(device)[photos.labels], cifar)
    pooled, patches, styles, labels = [], [], [], []

    def add(images: Tensor, view: Callable[[Tensor], Tensor], style: int, label: Tensor) -> None:
        for rows in torch.arange(len(images), device=device).split(2048):
            tokens = F.normalize(student(augment.normalise(view(images[rows]))), dim=-1)
            pooled.append(tokens[:, 0].half())
            patches.append(F.normalize(tokens[:, 1:].mean(1), dim=-1).half())
        styles.append(torch.full((len(images),), style, device=device))
        labels.append(label)

    def plain(x: Tensor) -> Tensor:
        return x.float() / 255

    sharp, small = (~is_cifar).nonzero().squeeze(1), is_cifar.nonzero().squeeze(1)
    as_photo = small[torch.rand(len(small), device=device) < cifar_share]
    for rows, style in ((sharp, 0), (small, SMALL), (as_photo, 0)):
        for view in (plain, lambda x: augment.random_crop(plain(x), 0.6)):
            add(photos.images[rows], view, style, photos.labels[rows])
    for number, other in enumerate(STYLES[:DRAWING]):
        if other.name != "photo":
            rows = torch.randperm(len(photos.labels), device=device)[:n_styled]
            view = lambda x, name=other.name: augment.stylise(augment.random_crop(plain(x), 0.6), name).clamp(0, 1)  # noqa: E731
            add(photos.images[rows], view, number, photos.labels[rows])
    drawn_labels = drawings.labels.to(device) + len(words.photos.names)
    drawn = drawings.images.to(device)
    for view in (lambda x: augment.place_drawings(x, plain=True), *[augment.place_drawings] * 7):
        add(drawn, view, DRAWING, drawn_labels)
    n_labels = len(words.photos.names) + len(words.drawn.names)
    return Table(torch.cat(pooled), torch.cat(patches), torch.cat(styles), torch.cat(labels), n_labels)
