"""Context vectors before anybody has learned: random, or those of words."""

import torch
from torch import Tensor

from fedotp.clip import CLIP
from fedotp.errors import FedotpError
from fedotp.prompts._layout import N_CTX

STD = 0.02  # the paper's


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
    shape = (n_prompts, *per_class, n_ctx, clip.config.text.width)
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
