"""Class features from context vectors, through the frozen text tower.

The tower is causal and only the end-of-text position is read, so two savings are exact: nothing behind that
position is computed, and the prefix that all classes share ([SOS] and the context, when the name stands at the
end) is encoded once, its keys and values then serving every class's short suffix.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.clip import CLIP
from fedotp.clip import Block as ClipBlock
from fedotp.prompts._layout import N_CTX, POSITION, Position, build_layout


class PromptEncoder:
    """The text tower h(.) of the paper on prompts [SOS] p_1 ... p_s name . [EOT].

    Shapes: C clients, N prompts, s context vectors of width d, K classes, e the shared embedding width. A context
    is (C, N, s, d), or (C, N, K, s, d) where every class has vectors of its own (`per_class`).

    Example:
        >>> from fedotp.clip import CLIP, TINY
        >>> from fedotp.prompts import PromptEncoder, random_context
        >>> clip = CLIP.random(TINY)
        >>> encode = PromptEncoder(clip, ["cat", "dog"], n_ctx=4)
        >>> encode(random_context(clip, n_prompts=2, n_ctx=4, n_clients=3)).shape
        torch.Size([3, 2, 2, 32])
    """

    def __init__(
        self,
        clip: CLIP,
        class_names: Sequence[str],
        *,
        n_ctx: int = N_CTX,
        position: Position = POSITION,
        per_class: bool = False,
    ) -> None:
        """Tokenise the class names; one that does not fit beside `n_ctx` vectors is refused by name."""
        self.clip = clip
        self.class_names = tuple(class_names)
        self.n_ctx = n_ctx
        self.per_class = per_class
        device = clip.token_embedding.weight.device
        layout = build_layout(clip, class_names, n_ctx, position, per_class)
        self.prefix = layout.prefix
        self.eot = layout.eot.to(device)  # (K,)
        self._layout = layout  # stays on the CPU: asking it where context stands must not wait for a GPU
        self._context_index = layout.context.to(device)  # (K, L)
        self._token_embedding = clip.token_embedding(layout.ids.to(device)).detach()  # (K, L, d)
        self._mlps = [block.mlp.fused() for block in clip.transformer.blocks()[:-1]]

    def __call__(self, context: Tensor) -> Tensor:
        """Class features (C, N, K, e), not normalised, for a context (C, N, s, d) or (C, N, K, s, d).

        The tower computes in the precision of its weights; gradients come back in that of the context.
        """
        n_clients, n_prompts = self._check(context)
        n_classes, length = self._context_index.shape
        prefix = self._embed(context, slice(0, 1), slice(0, self.prefix)).squeeze(1)  # (CN, P, d)
        suffix = self._embed(context, slice(None), slice(self.prefix, length))  # (CN, K, S, d)
        prefix = prefix + self.clip.positional_embedding[: self.prefix]
        suffix = suffix + self.clip.positional_embedding[self.prefix : length]
        x = torch.cat([prefix, suffix.flatten(1, 2)], dim=1)  # (CN, P + KS, d): most of a block sees tokens only
        n_suffix = suffix.shape[-2]
        reach = torch.ones(n_suffix, n_suffix, dtype=torch.bool, device=x.device).tril()  # causal
        *blocks, last = self.clip.transformer.blocks()
        for block, mlp in zip(blocks, self._mlps, strict=True):
            x = x + block.attn.out_proj(self._attended(block, x, n_classes, reach))
            x = x + mlp(block.ln_2(x))
        prefix, suffix = x[:, : self.prefix], x[:, self.prefix :].unflatten(1, (n_classes, n_suffix))
        return self._read(last, prefix, suffix).unflatten(0, (n_clients, n_prompts))

    def _attended(self, block: ClipBlock, x: Tensor, n_classes: int, reach: Tensor) -> Tensor:
        """Attention within the prefix, and of every class's suffix over prefix and itself; heads merged: (CN, T, d)."""
        projected = block.attn.projected(block.ln_1(x))  # (CN, T, 3d)
        q, key, value = block.attn.split(projected[:, : self.prefix])  # (CN, h, P, x)
        within = F.scaled_dot_product_attention(q, key, value, is_causal=True)
        q, k, v = block.attn.split(projected[:, self.prefix :].unflatten(1, (n_classes, -1)))  # (CN, K, h, S, x)
        own = _attend(q, key, value, k, v, reach)
        return torch.cat([block.attn.merge(within), block.attn.merge(own).flatten(1, 2)], dim=1)

    def encode_plain(self, context: Tensor) -> Tensor:
        """The same features by the plain path, all positions of every class: the reference for `__call__`."""
        n_clients, n_prompts = self._check(context)
        x = self._embed(context, slice(None), slice(None)).flatten(0, 1)  # (CNK, L, d)
        padding = self.clip.config.text.context_length - x.shape[1]
        pad = self.clip.token_embedding.weight[0].detach().expand(len(x), padding, -1)
        eot = self.eot.repeat(n_clients * n_prompts)
        features = self.clip.encode_embeddings(torch.cat([x, pad], dim=1), eot)
        return features.reshape(n_clients, n_prompts, len(self.class_names), -1)

    def _check(self, context: Tensor) -> tuple[int, int]:
        classes = (len(self.class_names),) if self.per_class else ()
        expected = (*classes, self.n_ctx, self.clip.config.text.width)
        if context.dim() != 2 + len(expected) or context.shape[2:] != expected:
            raise ValueError(f"context has shape {tuple(context.shape)}: must be (C, N, *{expected})")
        return context.shape[0], context.shape[1]

    def _embed(self, context: Tensor, classes: slice, positions: slice) -> Tensor:
        """Token embeddings with the context vectors in their places, for some classes and positions.

        Returns (C * N, classes, positions, d); positional embeddings are not added.
        """
        tokens = self._token_embedding[classes, positions]
        context = context.flatten(0, 1).to(tokens.dtype)  # (CN, s, d) or (CN, K, s, d), in the tower's precision
        index = self._context_index[classes, positions]  # -1 where a token stands
        if (self._layout.context[classes, positions] < 0).all():
            return tokens.expand(len(context), *tokens.shape)
        rows = torch.arange(len(index), device=index.device).unsqueeze(-1)
        slots = index.clamp_min(0)
        placed = context[:, classes][:, rows, slots] if self.per_class else context[:, slots]
        return torch.where((index >= 0).unsqueeze(-1), placed, tokens)

    def _read(self, block: ClipBlock, prefix: Tensor, suffix: Tensor) -> Tensor:
        """The last block, final norm and projection, at the end-of-text position only: (CN, K, e)."""
        at = (self.eot - self.prefix).view(-1, 1, 1)  # (K, 1, 1)
        reach = torch.arange(suffix.shape[-2], device=at.device) <= at  # (K, 1, S)
        _, key, value = block.attn.qkv(block.ln_1(prefix))
        q, k, v = block.attn.qkv(block.ln_1(suffix))  # (CN, K, h, S, x)
        q = torch.take_along_dim(q, at[None, ..., None], dim=-2)  # (CN, K, h, 1, x)
        x = torch.take_along_dim(suffix, at[None], dim=-2)  # (CN, K, 1, d)
        x = block.finish(x, _attend(q, key, value, k, v, reach)).squeeze(-2)
        features: Tensor = self.clip.ln_final(x) @ self.clip.text_projection
        return features


def _attend(q: Tensor, key: Tensor, value: Tensor, k: Tensor, v: Tensor, reach: Tensor) -> Tensor:
    """Attention of suffix queries over the shared prefix and their own suffix, which is never copied per class.

    q (CN, K, h, Q, x); prefix key, value (CN, h, P, x); suffix k, v (CN, K, h, S, x); reach (Q, S) or (K, Q, S)
    says which suffix positions a query sees. Returns (CN, K, h, Q, x).
    """
    n_classes, n_queries = q.shape[1], q.shape[3]
    by_head = (q * q.shape[-1] ** -0.5).transpose(1, 2)  # (CN, h, K, Q, x)
    to_prefix = by_head.flatten(2, 3) @ key.mT  # (CN, h, KQ, P)
    to_suffix = by_head @ k.transpose(1, 2).mT  # (CN, h, K, Q, S)
    to_suffix = to_suffix.masked_fill(~reach, -torch.inf)
    weights = torch.cat([to_prefix.unflatten(2, (n_classes, n_queries)), to_suffix], dim=-1).softmax(-1)
    on_prefix, on_suffix = weights.split([key.shape[-2], k.shape[-2]], dim=-1)
    out = (on_prefix.flatten(2, 3) @ value).unflatten(2, (n_classes, n_queries))
    return (out + on_suffix @ v.transpose(1, 2)).transpose(1, 2)
