"""Personal ridge: closed forms with patch features, personal weights and the class prior, in two rounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedotp._values import require
from fedotp.methods._parts import IMAGES, Batch, Parameters
from fedotp.methods._ridge import Ridge
from fedotp.methods._task import Task

REGS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""Candidates of `reg` for `reg = "loo"`."""
_BEFORE = 0.03  # `reg` before the choice
_LEAST = 1e-6  # minimum of 1 - h, which rounding may make 0
_MOST_LOSS = 50.0  # of one image: limits the effect of outliers and the range of secure sums


@dataclass(frozen=True)
class PersonalRidge(Ridge):
    """`Ridge` on pooled and patch features, with double weight of own images, a common choice of `reg`, and the prior.

    The first round is that of `Ridge`. In the second, each client predicts each of its images by its weights without
    this image. With A = G + r G_i + reg I, an image x with target y has the weight w = (1 + personal) / n in A, and by
    the Sherman-Morrison formula, with h = w x' A^-1 x, its leave-one-out prediction is

        (x' W - h y) / (1 - h).

    The clients send the mean losses of these predictions for each of `REGS`, and the server takes the reg with the
    least average (Eq. 4). All messages are means over a client's images. See docs/personal-ridge.md.

    Attributes:
        reg: regularisation toward the captions' weights, per image; "loo" chooses it by leave-one-out losses.
        personal: additional weight of a client's own images in its weights; 0 for the same weights for all clients.
    """

    reg: float | Literal["loo"] = "loo"  # type: ignore[assignment]
    personal: float = 1.0
    features: Literal["pooled", "both"] = "both"

    name: ClassVar[str] = "personal-ridge"
    title: ClassVar[str] = "Personal ridge"
    reference: ClassVar[str] = "this project"
    prior: ClassVar[float] = 1.0

    def _require_reg(self) -> None:
        if self._chooses:
            require(self.reg == "loo", "method.reg", self.reg, 'a number above 0 or "loo"')
        else:
            super()._require_reg()

    @property
    def _chooses(self) -> bool:
        return isinstance(self.reg, str)

    @property
    def _sends_sums(self) -> bool:
        return self._chooses or super()._sends_sums

    @property
    def closed_form_rounds(self) -> int:
        """One round for the sums, one for the choice of reg."""
        return 2 if self._chooses else 1

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return the parameters of `Ridge` and the losses (R,) of `REGS`."""
        shared = super().shared(task, n_clients)
        return {**shared, "losses": shared["gram"].new_zeros(len(REGS))} if self._chooses else shared

    def reg_of(self, server: Parameters) -> Tensor:
        """Return the reg with the least loss; without losses, a default."""
        if not self._chooses:
            return super().reg_of(server)
        regs = server["losses"].new_tensor(REGS)
        near = (regs / _BEFORE).log().abs() * torch.finfo(regs.dtype).eps  # breaks ties
        return regs[(server["losses"] + near).argmin()]

    def statistics(self, task: Task, params: Parameters, batch: Batch) -> Parameters:
        """Compute the sums of `Ridge` and the sums of losses (C, R), 0 in the first round."""
        sums = super().statistics(task, params, batch)
        return {**sums, "losses": self._losses(task, params, batch)} if self._chooses else sums

    def _losses(self, task: Task, params: Parameters, batch: Batch) -> Tensor:
        n_clients, n_images = batch.labels.shape
        losses = batch.image.pooled.new_zeros(n_clients, len(REGS), dtype=torch.float64)
        if "all_gram" not in params or not n_images or not bool((params[IMAGES] > 0).any()):
            return losses
        image, labels = self.regression(task, batch)
        weight = (1 + self.personal) / params[IMAGES].clamp_min(1)[:, None, None]
        found = left_out(image, labels, *self._with_own(params), params["target"], weight)
        for number, scores in enumerate(found):
            each = self.losses_of(scores, batch.labels.clamp_min(0))
            losses[:, number] = (each * (batch.labels >= 0)).sum(1)
        return losses

    def losses_of(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Compute the cross-entropy of each image from scores (..., K) and labels (...), at most `_MOST_LOSS`."""
        right = (self.sharpness * scores).log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return -right.clamp_min(-_MOST_LOSS)

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return the means G (C, e, e) and B (C, e, K), and the mean losses (C, R)."""
        sent = super().upload(params, received, draws)
        return {**sent, "losses": params["losses"]} if self._chooses else sent


def left_out(
    image: Tensor, labels: Tensor, gram: Tensor, cross: Tensor, target: Tensor, weight: Tensor | float
) -> Iterator[Tensor]:
    """Yield for each of `REGS` the leave-one-out predictions (C, B, K) of images by a ridge.

    Each of `image` (C, B, e), with `labels` (C, B, K), has `weight` in `gram` G (C, e, e) and `cross` B (C, e, K).
    """
    values, vectors = (each.to(gram.device) for each in torch.linalg.eigh(gram.cpu()))  # slower on a GPU for many
    seen, cross, target = image @ vectors, vectors.mT @ cross, vectors.mT @ target
    for reg in REGS:
        inverse = 1 / (values.clamp_min(0) + reg)  # (C, e)
        fitted = seen @ ((cross + reg * target) * inverse[..., None])  # (C, B, K)
        own = weight * (seen.square() * inverse[:, None]).sum(-1, keepdim=True)  # h: (C, B, 1)
        yield (fitted - own * labels) / (1 - own).clamp_min(_LEAST)
