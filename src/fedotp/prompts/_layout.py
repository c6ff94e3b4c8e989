"""A prompt before training: where the class name and the context vectors stand, and what these start as."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedotp._values import require, require_one_of
from fedotp.clip import CLIP
from fedotp.errors import FedotpError

Position = Literal["end", "middle", "front"]

# the paper's
N_CTX = 16
POSITION: Position = "end"
STD = 0.02


@dataclass(frozen=True)
class Layout:
    """K prompts as positions: [SOS], context vectors and the class's name in some order, ".", [EOT].

    Attributes:
        ids:     (K, L) token ids, padded with 0 behind the end-of-text token; 0 also where a context vector stands.
        context: (K, L) index of the context vector at a position, -1 where a token stands.
        eot:     (K,) position of the end-of-text token.
        prefix:  how many leading positions are the same for all classes.
    """

    ids: Tensor
    context: Tensor
    eot: Tensor
    prefix: int


def build_layout(clip: CLIP, class_names: Sequence[str], n_ctx: int, position: Position, per_class: bool) -> Layout:
    """Lay out one prompt per class.

    "end" is [SOS] ctx name . [EOT] (the paper's), "middle" puts the name after the first half of the context,
    "front" before it. A prefix is shared by all classes up to the first position where they differ; contexts
    of their own (`per_class`) differ from the first vector on.
    """
    if not class_names:
        raise FedotpError("no class names: at least one is needed")
    require(n_ctx >= 1, "n_ctx", n_ctx, f"at least 1 (the paper uses {N_CTX})")
    require_one_of(Position, "position", position)
    before = {"end": n_ctx, "middle": n_ctx // 2, "front": 0}[position]
    context = [-2 - i for i in range(n_ctx)]  # -2 - i marks context vector i, until it is split off below
    rows = []
    for name in class_names:
        tokens = clip.tokenizer.encode(name.replace("_", " "))
        if not tokens:
            raise FedotpError(f"class name {name!r} has no tokens: give it a name that can be read")
        stop = clip.tokenizer.encode(".")
        row = [clip.tokenizer.sot, *context[:before], *tokens, *context[before:], *stop, clip.tokenizer.eot]
        limit = clip.text.context_length
        if len(row) > limit:
            raise FedotpError(
                f"class name {name!r} is too long: {len(tokens)} tokens and {n_ctx} context vectors need "
                f"{len(row)} positions and the text tower has {limit}; shorten the name or lower n_ctx"
            )
        rows.append(row)
    length = max(map(len, rows))
    table = torch.tensor([row + [0] * (length - len(row)) for row in rows])  # (K, L)
    eot = torch.tensor([len(row) - 1 for row in rows])
    differs = (table != table[0]).any(0)  # (L,)
    if per_class:
        differs |= (table < 0).any(0)
    prefix = min(int(differs.int().argmax()) if differs.any() else length, int(eot.min()))
    return Layout(table.clamp_min(0), (-2 - table).clamp_min(-1), eot, prefix)


def random_context(
    clip: CLIP,
    n_prompts: int,
    n_ctx: int = N_CTX,
    *,
    n_clients: int = 1,
    n_classes: int | None = None,
    std: float = STD,
    seed: int = 0,
) -> Tensor:
    """Normal context vectors (C, N, s, d), the same for every client; (C, N, K, s, d) with `n_classes`.

    The draw is made on the CPU, so it is the same on every device.
    """
    per_class = () if n_classes is None else (n_classes,)
    generator = torch.Generator().manual_seed(seed)
    shape = (n_prompts, *per_class, n_ctx, clip.text.width)
    return _for_clients(clip, std * torch.randn(shape, generator=generator), n_clients)


def word_context(
    clip: CLIP,
    words: str,
    n_prompts: int,
    *,
    n_clients: int = 1,
    n_classes: int | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """Context vectors that start as the embeddings of `words`, for example "a photo of a".

    Each of the s tokens of `words` gives one vector. Prompts that start equal get equal gradients: give several
    prompts a little `noise` (standard deviation) to tell them apart.

    Returns:
        (C, N, s, d), or (C, N, K, s, d) with `n_classes`.
    """
    ids = clip.tokenizer.encode(words)
    if not ids:
        raise FedotpError(f"initial words {words!r} have no tokens: give a phrase such as 'a photo of a'")
    embedded = clip.token_embedding.weight.detach()[ids].float().cpu()  # (s, d)
    like = random_context(clip, n_prompts, len(ids), n_classes=n_classes, std=noise, seed=seed)[0].cpu()
    return _for_clients(clip, embedded + like, n_clients)


def _for_clients(clip: CLIP, context: Tensor, n_clients: int) -> Tensor:
    repeated = context.expand(n_clients, *context.shape).contiguous()
    return repeated.to(clip.token_embedding.weight.device)
