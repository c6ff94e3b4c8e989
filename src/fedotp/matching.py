"""Scores of images against classes, from image tokens and class features.

Shapes: C clients, B images, V patches, N prompts, K classes, e the shared embedding width.
"""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from fedotp import ot
from fedotp._values import require_one_of
from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError

Rule = Literal["pooled", ot.Rule]
_EPS = 1e-7  # not 0 in float16


def pooled_score(pooled: Tensor, classes: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute the cosine of the pooled image feature and the class features (Eq. 1): CoOp and PromptFL.

    Args:
        pooled:  (C, B, e) pooled image features.
        classes: (C, N, K, e) class features; with several prompts the cosines are averaged.
        weights: (N,) of that average, summing to 1; equal by default.

    Returns:
        (C, B, K)
    """
    return F.normalize(pooled, dim=-1) @ _mean_direction(classes, weights).mT


def _mean_direction(classes: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean (C, K, e) over prompts of normalised class features (C, N, K, e)."""
    directions = F.normalize(classes, dim=-1)
    return directions.mean(1) if weights is None else (weights[:, None, None] * directions).sum(1)


def similarity(tokens: Tensor, classes: Tensor) -> Tensor:
    """Compute the cosine of every patch and every prompt of every class, G_m' H_k (Section 4.2; cost is 1 minus it).

    One matrix product per client, in the precision of the tokens. The result is a view of memory ordered
    (C, K, N, B, V), which `fedotp.ot.score` reads without a copy.

    Args:
        tokens:  (C, B, V, e) patch tokens.
        classes: (C, N, K, e) class features.

    Returns:
        (C, B, K, V, N)
    """
    n_clients, n_images, n_patches, width = tokens.shape
    n_prompts, n_classes = classes.shape[1:3]
    patches = F.normalize(tokens, dim=-1, eps=_EPS).reshape(n_clients, n_images * n_patches, width)
    prompts = F.normalize(classes, dim=-1).transpose(1, 2).reshape(n_clients, n_classes * n_prompts, width)
    products = prompts.to(patches.dtype) @ patches.mT  # (C, KN, BV)
    return products.view(n_clients, n_classes, n_prompts, n_images, n_patches).permute(0, 3, 1, 4, 2)


@dataclass(frozen=True)
class Matching:
    """Rule that scores images against classes.

    Rules: "pooled" (Eq. 1), "average" (mean similarity of patches and prompts: the paper's ablation without
    transport), "classical" (Eq. 3, entropic) and "unbalanced" (Eq. 6 to 9, the paper's method).

    Attributes:
        reg: entropic regularisation of the transport problem, the paper's lambda.
        mass: share of the patches' mass that is transported, the paper's gamma ("unbalanced" only).
        solver: solver of the transport problem, as in `fedotp.ot.solve`.

    Examples:
        >>> from fedotp.clip import ImageFeatures
        >>> image = ImageFeatures(pooled=torch.randn(3, 8, 32), tokens=torch.randn(3, 8, 16, 32))  # C = 3, B = 8
        >>> Matching()(image, torch.randn(3, 2, 10, 32)).shape  # N = 2 prompts, K = 10 classes
        torch.Size([3, 8, 10])
    """

    rule: Rule = "unbalanced"
    reg: float = ot.REG
    mass: float = ot.MASS
    solver: ot.Solver = ot.SOLVER

    def __post_init__(self) -> None:
        require_one_of(Rule, "rule", self.rule)
        require_one_of(ot.Solver, "solver", self.solver)
        ot.require_reg(self.reg)
        ot.require_mass(self.mass)

    @property
    def has_plan(self) -> bool:
        """True if the rule uses patches and so has a transport plan."""
        return self.rule != "pooled"

    @property
    def has_mass(self) -> bool:
        """True if the transported share of the mass can be chosen."""
        return self.rule == "unbalanced"

    def __call__(
        self, image: ImageFeatures, classes: Tensor, weights: Tensor | None = None, counted: Tensor | None = None
    ) -> Tensor:
        """Score images, pooled (C, B, e) and tokens (C, B, V, e), against classes (C, N, K, e): (C, B, K).

        `weights` (N,) or (C, B, N), summing to 1, are the weights of prompts, with transport their shares of the
        mass; equal by default. Plan and weights are constant in the gradient (Section 4.2). `counted` (C, B) is
        false for padding; only the solver "batch" uses it.
        """
        if self.rule == "pooled":
            return pooled_score(image.pooled, classes, weights)
        if self.rule == "average":
            # Averaging normalised features first gives the mean cosine without a similarity tensor.
            patches = F.normalize(image.tokens, dim=-1, eps=_EPS).mean(-2, dtype=classes.dtype)  # (C, B, e)
            if weights is not None and weights.dim() == 3:
                each = patches[:, None] @ F.normalize(classes, dim=-1).mT  # (C, N, B, K)
                return (weights.mT[..., None] * each).sum(1)
            return patches @ _mean_direction(classes, weights).mT
        shares = weights
        if weights is not None and weights.dim() == 3:
            shares = weights[:, :, None].expand(-1, -1, classes.shape[2], -1)  # (C, B, K, N)
        return ot.score(
            similarity(image.tokens, classes),
            rule=self.rule,
            reg=self.reg,
            mass=self.mass if self.has_mass else None,
            shares=shares,
            solver=self.solver,
            counted=None if counted is None else counted[..., None].expand(*counted.shape, classes.shape[2]),
        )

    def plan(self, similarity: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the transport plan (..., V, N) for similarities (..., V, N): mass from patch m to prompt n (Eq. 6).

        Without transport ("average") the plan is uniform. `weights` (N,) as for the scores.
        """
        if self.rule == "pooled":
            raise FedotpError("rule = 'pooled' has no transport plan: it does not use patches")
        mass = {"unbalanced": self.mass, "classical": None, "average": 1.0}[self.rule]
        return ot.solve(
            1 - similarity, rule=self.rule, reg=self.reg, mass=mass, shares=weights, solver=self.solver
        ).plan


def cross_entropy(
    scores: Tensor, labels: Tensor, logit_scale: Tensor, *, apart: bool = False, prior: Tensor | None = None
) -> Tensor:
    """Compute the mean negative log-probability of the labels per client (Eq. 2, with the logarithm missing in print).

    Args:
        scores: (C, B, K).
        labels: (C, B) class indices; -1 marks padding, which is ignored.
        apart: return the loss of each image instead of the mean.
        prior: (C, K), added to the logits: the logarithms of class frequencies, for logit adjustment.

    Returns:
        (C,), 0 for a client with padding only; with `apart` (C, B), 0 for padding.
    """
    n_clients = len(scores)
    logits = scores * logit_scale.exp()
    if prior is not None:
        logits = logits + prior[:, None]
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none")
    if apart:
        return each.view(n_clients, -1)
    counted = (labels >= 0).sum(1).clamp_min(1)
    return each.view(n_clients, -1).sum(1) / counted
