"""Positions of class name and context vectors in a prompt, and initial context vectors."""

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
    """Positions of K prompts: [SOS], context vectors and the class name in some order, ".", [EOT].

    Attributes:
        ids:     (K, L) token ids, 0 for context vectors and for padding after the end-of-text token.
        context: (K, L) index of the context vector at a position, -1 for a token.
        eot:     (K,) position of the end-of-text token.
        prefix:  number of leading positions that are the same for all classes.
    """

    ids: Tensor
    context: Tensor
    eot: Tensor
    prefix: int


def build_layout(clip: CLIP, class_names: Sequence[str], n_ctx: int, position: Position, per_class: bool) -> Layout:
    """Lay out one prompt per class.

    "end" is [SOS] ctx name . [EOT] (the paper's), "middle" has the name after the first half of the context, "front"
    before it. The prefix ends at the first position that differs between classes, with `per_class` at the first vector.
    """
    if not class_names:
        raise FedotpError("class names must not be empty")
    require(n_ctx >= 1, "n_ctx", n_ctx, f"at least 1 (the paper uses {N_CTX})")
    require_one_of(Position, "position", position)
    before = {"end": n_ctx, "middle": n_ctx // 2, "front": 0}[position]
    context = [-2 - i for i in range(n_ctx)]  # -2 - i is context vector i, separated below
    rows = []
    for name in class_names:
        tokens = clip.tokenizer.encode(name.replace("_", " "))
        if not tokens:
            raise FedotpError(f"class name {name!r} has no tokens; rename the class")
        stop = clip.tokenizer.encode(".")
        row = [clip.tokenizer.sot, *context[:before], *tokens, *context[before:], *stop, clip.tokenizer.eot]
        limit = clip.text.context_length
        if len(row) > limit:
            raise FedotpError(
                f"class name {name!r} is too long: {len(tokens)} tokens and {n_ctx} context vectors need "
                f"{len(row)} positions, but the text tower has {limit}; shorten the name or lower n_ctx"
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
    """Draw normal context vectors (C, N, s, d), the same for every client; (C, N, K, s, d) with `n_classes`.

    They are drawn on the CPU and so are the same on every device.
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
    """Return the embeddings of `words`, for example "a photo of a", as context vectors, one for each of s tokens.

    Equal prompts get equal gradients, so several prompts need `noise` (standard deviation).

    Returns:
        (C, N, s, d), or (C, N, K, s, d) with `n_classes`.
    """
    ids = clip.tokenizer.encode(words)
    if not ids:
        raise FedotpError(f"initial words {words!r} have no tokens: must be a phrase such as 'a photo of a'")
    embedded = clip.token_embedding.weight.detach()[ids].float().cpu()  # (s, d)
    like = random_context(clip, n_prompts, len(ids), n_classes=n_classes, std=noise, seed=seed)[0].cpu()
    return _for_clients(clip, embedded + like, n_clients)


def _for_clients(clip: CLIP, context: Tensor, n_clients: int) -> Tensor:
    repeated = context.expand(n_clients, *context.shape).contiguous()
    return repeated.to(clip.token_embedding.weight.device)
