"""Token sequences put together on the device: [SOS] template or context vectors, a name, the rest, [EOT]."""

import torch
import torch.nn.functional as F
from recipes.mini.styles import STYLES
from torch import Tensor

from fedotp.clip import CLIP, Tokenizer

LONGEST_NAME = 12
LONGEST_CONTEXT = 20


class Sequences:
    """Names and templates as padded tables of token ids.

    Templates are numbered: those of all styles in order, then "{}." behind 1 to 20 context vectors.
    """

    def __init__(self, tokenizer: Tokenizer, names: list[str], device: str) -> None:
        """`names` are numbered by their place in the list."""
        self.sot, self.eot = tokenizer.sot, tokenizer.eot
        self.names, self.name_length = _table([tokenizer.encode(name)[:LONGEST_NAME] for name in names], device)
        parts = [[tokenizer.encode(part) for part in t.split("{}")] for style in STYLES for t in style.templates]
        stop = tokenizer.encode(".")
        n_worded = len(parts)
        parts += [[[self.sot] * n, stop] for n in range(1, LONGEST_CONTEXT + 1)]
        self.before, self.n_before = _table([before for before, _ in parts], device)
        self.after, self.n_after = _table([after for _, after in parts], device)
        self._first_soft = n_worded
        sizes = [len(style.templates) for style in STYLES]
        self.first_of_style = torch.tensor([sum(sizes[:i]) for i in range(len(sizes))], device=device)
        self.n_of_style = torch.tensor(sizes, device=device)

    def worded(self, style: Tensor) -> Tensor:
        """A random template of each style (n,)."""
        n = self.n_of_style[style]
        return self.first_of_style[style] + (torch.rand(len(style), device=style.device) * n).long()

    def soft(self, n_context: Tensor) -> Tensor:
        """The template with this many context vectors (n,)."""
        return self._first_soft + n_context - 1

    def encode(self, text: CLIP, template: Tensor, name: Tensor, length: int, context: Tensor | None = None) -> Tensor:
        """Normalised features (n, e) of templates (n,) around names (n,), in at most `length` tokens.

        Soft templates take their vectors from `context` (n, at least as many, d). A name too long is cut.
        """
        n_before, n_after = self.n_before[template], self.n_after[template]
        n_name = torch.minimum(self.name_length[name], length - 2 - n_before - n_after)
        at = torch.arange(length, device=template.device).expand(len(template), -1) - 1  # (n, L), -1 at [SOS]
        begin, end = n_before[:, None], (n_before + n_name)[:, None]
        ids = torch.where(
            at < begin,
            self._pick(self.before[template], at),
            torch.where(at < end, self._pick(self.names[name], at - begin), self._pick(self.after[template], at - end)),
        )
        eot = 1 + n_before + n_name + n_after  # (n,)
        ids = torch.where(at == (eot - 1)[:, None], self.eot, ids)
        ids[:, 0] = self.sot
        x = text.token_embedding(ids)  # (n, L, d)
        if context is not None:
            placed = torch.take_along_dim(context, at.clamp(0, context.shape[1] - 1).unsqueeze(-1), 1).to(x.dtype)
            is_context = (at >= 0) & (at < begin) & (template >= self._first_soft)[:, None]
            x = torch.where(is_context.unsqueeze(-1), placed, x)
        return F.normalize(text.encode_embeddings(x, eot).float(), dim=-1)

    @staticmethod
    def _pick(rows: Tensor, at: Tensor) -> Tensor:
        return rows.gather(1, at.clamp(0, rows.shape[1] - 1))


def _table(rows: list[list[int]], device: str) -> tuple[Tensor, Tensor]:
    width = max(1, max(map(len, rows)))
    table = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    return table, torch.tensor([len(row) for row in rows], device=device)
