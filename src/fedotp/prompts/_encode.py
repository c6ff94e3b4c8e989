"""Class features from context vectors, by the frozen text tower.

The tower is causal and only the end-of-text position is used. So positions after a class's end-of-text token are not
computed, and the common prefix of all classes ([SOS] and the context, if the name is at the end) is encoded once and
its keys and values are used for every class's short suffix. For this all positions are in one row (`_row.py`).
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.clip import CLIP
from fedotp.clip import Block as ClipBlock
from fedotp.prompts._layout import N_CTX, POSITION, Position, build_layout
from fedotp.prompts._row import Row


class FeatureEncoder:
    """Prompts in feature space: task residuals (Yu et al., CVPR 2023), which need no text tower.

    With t_k the feature (e,) of class k, of length 1, a prompt r (K, e) changes it to t_k + r_k / sqrt(e). With this
    factor prompts can start with the usual standard deviation. A prompt is like a context of K vectors of width e.
    """

    n_units = 0

    def __init__(self, classes: Tensor) -> None:
        """Create the encoder from the features `classes` (K, e) of the class names."""
        self._classes = F.normalize(classes, dim=-1)
        self.n_ctx, self.width = classes.shape

    def __call__(self, context: Tensor) -> Tensor:
        """Compute class features (C, N, K, e), not normalised, of prompts (C, N, K, e)."""
        if context.shape[2:] != (self.n_ctx, self.width):
            raise ValueError(f"context has shape {tuple(context.shape)}: must be (C, N, {self.n_ctx}, {self.width})")
        return self._classes + context / math.sqrt(self.width)


class PromptEncoder:
    """The text tower h(.) of the paper on prompts [SOS] p_1 ... p_s name . [EOT].

    Shapes: C clients, N prompts, s context vectors of width d, K classes, e the shared embedding width. A context is
    (C, N, s, d), or (C, N, K, s, d) with separate vectors for every class (`per_class`).

    Examples:
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
        """Tokenise the class names; each must fit the context together with `n_ctx` vectors."""
        self.clip = clip
        self.class_names = tuple(class_names)
        self.n_ctx = n_ctx
        self.per_class = per_class
        device = clip.token_embedding.weight.device
        layout = build_layout(clip, class_names, n_ctx, position, per_class)
        self._layout = layout
        self.prefix = layout.prefix
        self.eot = layout.eot.to(device)  # (K,)
        row = self._row = Row(layout.eot, layout.prefix, device)
        index = layout.context.to(device)[row.classes, row.positions]  # (P + T,), -1 for a token
        self._placed = (index >= 0).nonzero().squeeze(1)  # positions of context vectors in the row, ...
        self._slots = index[self._placed]  # ... their numbers, ...
        self._owners = row.classes[self._placed]  # ... and their classes
        tokens = clip.token_embedding(layout.ids.to(device)[row.classes, row.positions]).detach()
        tokens[self._placed] = 0
        self._base = tokens + clip.positional_embedding[row.positions].detach()  # (P + T, d)
        self._mlps = [block.mlp.fused() for block in clip.transformer.blocks()[:-1]]

    def __repr__(self) -> str:
        own = ", separate vectors for each" if self.per_class else ""
        return f"<PromptEncoder: {self.n_ctx} vectors before {len(self.class_names):,} class names{own}>"

    @property
    def width(self) -> int:
        """Width d of a context vector."""
        return self.clip.text.width

    @property
    def n_units(self) -> int:
        """Number of positions of one prompt for all classes, times layers and width of the tower."""
        return len(self._row) * self.clip.text.layers * self.width

    def __call__(self, context: Tensor) -> Tensor:
        """Compute class features (C, N, K, e), not normalised, of a context (C, N, s, d) or (C, N, K, s, d).

        The tower computes in the precision of its weights; gradients have that of the context.
        """
        n_clients, n_prompts = self._check(context)
        context = context.flatten(0, 1).to(self._base.dtype)  # (CN, s, d) or (CN, K, s, d)
        vectors = context[:, self._owners, self._slots] if self.per_class else context[:, self._slots]
        x = self._base.expand(len(context), -1, -1).index_add(1, self._placed, vectors)  # (CN, P + T, d)
        *blocks, last = self.clip.transformer.blocks()
        for block, mlp in zip(blocks, self._mlps, strict=True):
            projected = block.attn.projected(block.ln_1(x))  # (CN, P + T, 3d)
            attended = self._row.attend_fused(projected, block.attn.heads)  # (CN, P + T, d), None if not supported
            if attended is None:
                attended = block.attn.merge(self._row.attend(*block.attn.split(projected)))
            x = x + block.attn.out_proj(attended)
            x = x + mlp(block.ln_2(x))
        return self._read(last, x).unflatten(0, (n_clients, n_prompts))

    def encode_plain(self, context: Tensor) -> Tensor:
        """Compute the features from all positions of every class, as a reference for `__call__`."""
        n_clients, n_prompts = self._check(context)
        device = context.device
        index = self._layout.context.to(device)  # (K, L), -1 for a token
        tokens = self.clip.token_embedding(self._layout.ids.to(device)).detach()  # (K, L, d)
        context = context.flatten(0, 1).to(tokens.dtype)
        slots = index.clamp_min(0)
        rows = torch.arange(len(index), device=device).unsqueeze(-1)
        vectors = context[:, rows, slots] if self.per_class else context[:, slots]
        x = torch.where((index >= 0).unsqueeze(-1), vectors, tokens).flatten(0, 1)  # (CNK, L, d)
        padding = self.clip.text.context_length - x.shape[1]
        pad = self.clip.token_embedding.weight[0].detach().expand(len(x), padding, -1)
        eot = self.eot.repeat(n_clients * n_prompts)
        features = self.clip.encode_embeddings(torch.cat([x, pad], dim=1), eot)
        return features.reshape(n_clients, n_prompts, len(self.class_names), -1)

    def _check(self, context: Tensor) -> tuple[int, int]:
        classes = (len(self.class_names),) if self.per_class else ()
        expected = (*classes, self.n_ctx, self.clip.text.width)
        if context.dim() != 2 + len(expected) or context.shape[2:] != expected:
            raise ValueError(f"context has shape {tuple(context.shape)}: must be (C, N, *{expected})")
        return context.shape[0], context.shape[1]

    def _read(self, block: ClipBlock, x: Tensor) -> Tensor:
        """Apply last block, final norm and projection at the end-of-text positions: (CN, P + T, d) -> (CN, K, e)."""
        q, k, v = block.attn.qkv(block.ln_1(x))  # (CN, h, P + T, x)
        attended = self._row.attend_from_ends(q, k, v)  # (CN, h, K, x)
        x = block.finish(x.index_select(-2, self._row.ends), attended)
        features: Tensor = self.clip.ln_final(x) @ self.clip.text_projection
        return features
