"""Closed forms on image features: one round without gradients, exactly the centralised solution.

With X (n, e) the features of a client's n images, of length 1, and Y (n, K) their labels, one-hot minus 1/K, a client
sends the means G = X'X / n and B = X'Y / n. Their averages with weights n (Eq. 4) are those of all images, for any
partition. So secure sums can add them, and differential privacy covers them.

With `reg = "loo"` a second round chooses `reg`: each client predicts each of its images by its weights without this
image. With A = G + r G_i + reg I, an image x with target y has the weight w = (1 + personal) / n in A, and by the
Sherman-Morrison formula, with h = w x' A^-1 x, its leave-one-out prediction is

    (x' W - h y) / (1 - h).

The clients send the mean losses of these predictions for each of `REGS`, and the server takes the reg with the least
average (Eq. 4). All messages are means over a client's images. See docs/personal-ridge.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require, require_choices, require_from
from fedotp.clip import ImageFeatures
from fedotp.methods._method import Method
from fedotp.methods._parts import IMAGES, Batch, Need, Parameters
from fedotp.methods._promptfl import ZeroShot
from fedotp.methods._task import Task

REGS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""Candidates of `reg` for `reg = "loo"`."""
_BEFORE = 0.03  # `reg` before the choice
_LEAST = 1e-6  # minimum of 1 - h, which rounding may make 0
_MOST_LOSS = 50.0  # of one image: limits the effect of outliers and the range of secure sums
_ROUNDING = 1e-9  # tolerance for negative eigenvalues of a mean of x x' due to rounding


@dataclass(frozen=True)
class Ridge(ZeroShot):
    """Fed3R (Fani et al., ICML 2024) and AFL (He et al., CVPR 2025), regularised toward the captions' features.

    With Z (K, e) the features of the captions, of length 1, and G and B of the n images of all clients,

        W = (G + reg I)^-1 (B + reg text Z')                         (e, K)

    which is text Z', zero-shot CLIP, before the first round. With `personal` > 0 the n_i images of client i have the
    weight 1 + personal in its own W: with r = personal n_i / n, it uses G + r G_i and B + r B_i in place of the
    received G and B. An image with features f has score_k = f . W_k sharpness / exp(logit scale), so that its logits
    are sharpness f . W_k. All statistics are float64.

    Attributes:
        reg: regularisation toward the captions' weights, per image; "loo" chooses it by leave-one-out losses.
        text: length of the captions' features in the regularisation; 0 for the ridge of Fed3R and AFL.
        personal: additional weight of a client's own images in its weights; 0 for the same weights for all clients.
        sharpness: factor of the logits.
        features: image features: "pooled", or "both": the direction halfway between the pooled feature and the mean
            direction of patches.
    """

    reg: float | Literal["loo"] = 0.03
    text: float = 2.0
    personal: float = 0.0
    sharpness: float = 10.0
    features: Literal["pooled", "both"] = "pooled"

    name: ClassVar[str] = "ridge"
    title: ClassVar[str] = "Ridge"
    reference: ClassVar[str] = "Fani et al., ICML 2024; He et al., CVPR 2025"
    fixed: ClassVar[frozenset[str]] = frozenset({"weights", "all_gram", "all_cross", "target", "reg", IMAGES})

    def __post_init__(self) -> None:
        right = self.reg == "loo" if isinstance(self.reg, str) else 0 < self.reg <= MOST
        require(right, "method.reg", self.reg, 'a number above 0 or "loo"')
        require_choices(self, "method.")
        for key in ("text", "personal", "sharpness"):
            require_from(0, MOST, f"method.{key}", getattr(self, key))

    @property
    def bound_to_classes(self) -> str:
        """Reason why the weights cannot predict other classes."""
        return "its weights are those of the trained classes"

    @property
    def needs(self) -> frozenset[Need]:
        """Tokens only if they are among the features."""
        return frozenset({Need.POOLED if self.features == "pooled" else Need.TOKENS})

    @property
    def closed_form_rounds(self) -> int:
        """One round for the sums, one for the choice of reg."""
        return 2 if self.reg == "loo" else 1

    @property
    def global_part(self) -> Method:
        """The method with shared weights."""
        return replace(self, personal=0.0)

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return G (e, e) and B (e, K) of no images, the captions' Z (K, e), n and, with "loo", losses (R,)."""
        captions = F.normalize(task.template_features()[0, 0].double(), dim=-1)  # (K, e)
        n_classes, width = captions.shape
        zeros = {"gram": captions.new_zeros(width, width), "cross": captions.new_zeros(width, n_classes)}
        losses = {"losses": captions.new_zeros(len(REGS))} if self.reg == "loo" else {}
        return {**zeros, "captions": captions, IMAGES: captions.new_zeros(()), **losses}

    def private(self, task: Task) -> Parameters:
        """Return a client's own G and B and its number of images, if it uses them."""
        if not self.personal:
            return {}
        shared = self.shared(task, 1)
        return {"own_gram": shared["gram"], "own_cross": shared["cross"], "own_images": shared[IMAGES]}

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """Return the weights W (C, e, K); with `personal` or "loo", the sums to compute them from."""
        target = self.text * server["captions"].mT
        reg = self.reg_of(server)
        gram, cross = _without_negative(server["gram"]), server["cross"]
        sent = {"all_gram": gram, "all_cross": cross, "target": target, "reg": reg, IMAGES: server[IMAGES]}
        if not self.personal and self.reg != "loo":
            sent = {"weights": _solved(gram, cross, target, reg)}
        return {name: value.expand(n_clients, *value.shape) for name, value in sent.items()}

    def reg_of(self, server: Parameters) -> Tensor:
        """Return the current `reg` as a scalar tensor; with "loo" that of the least loss, without losses a default."""
        if not isinstance(self.reg, str):
            return torch.full_like(server[IMAGES], self.reg)
        regs = server["losses"].new_tensor(REGS)
        near = (regs / _BEFORE).log().abs() * torch.finfo(regs.dtype).eps  # breaks ties
        return regs[(server["losses"] + near).argmin()]

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """Return the shared weights, or each client's own: (C, e, K)."""
        if "weights" in received:
            return {"weights": received["weights"]}
        gram, cross = self._with_own(received | private)
        return {"weights": _solved(gram, cross, received["target"], received["reg"][:, None, None])}

    def _with_own(self, params: Parameters) -> tuple[Tensor, Tensor]:
        """Return G (C, e, e) and B (C, e, K) with the additional weight `personal` of own images."""
        if "own_gram" not in params:
            return params["all_gram"], params["all_cross"]
        share = self.personal * params["own_images"] / params[IMAGES].clamp_min(1)  # (C,)
        share = share[:, None, None]
        return params["all_gram"] + share * params["own_gram"], params["all_cross"] + share * params["own_cross"]

    def seen(self, image: ImageFeatures) -> Tensor:
        """Compute the features (C, B, e) of images, of length 1."""
        pooled = F.normalize(image.pooled, dim=-1)
        if self.features == "pooled":
            return pooled
        patches = F.normalize(F.normalize(image.tokens, dim=-1).mean(-2), dim=-1)
        return F.normalize(pooled + patches, dim=-1)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute f . W sharpness / exp(logit scale): (C, B, K)."""
        image = self.seen(batch.image)
        scale = self.sharpness / task.logit_scale.exp()
        return image @ params["weights"].to(image.dtype) * scale.to(image.dtype)

    def statistics(self, task: Task, params: Parameters, batch: Batch) -> Parameters:
        """Compute sums over a batch: X'X (C, e, e), X'Y (C, e, K) and, with "loo", losses (C, R), first 0."""
        image, labels = self.regression(task, batch)
        sums = {"gram": image.mT @ image, "cross": image.mT @ labels}
        return {**sums, "losses": self._losses(task, params, batch)} if self.reg == "loo" else sums

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

    def regression(self, task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return X (C, B, e), 0 for padding, and Y (C, B, K)."""
        image = self.seen(batch.image).double() * (batch.labels >= 0)[..., None]
        n_classes = len(task.classes)
        return image, F.one_hot(batch.labels.clamp_min(0), n_classes).double() - 1 / n_classes

    def sensitivity(self, task: Task) -> float:
        """Return sqrt(|x x'|^2 + |x y'|^2) = sqrt(1 + (1 - 1/K)), for x of length 1 and y one-hot minus 1/K."""
        return float(np.sqrt(2 - 1 / len(task.classes)))

    def settled(self, params: Parameters, means: Parameters, n_images: Tensor) -> Parameters:
        """Return the means to send and, with `personal`, to store, and the resulting weights."""
        named = {"own_gram": means["gram"], "own_cross": means["cross"], "own_images": n_images}
        own = named if self.personal else {}
        return {**params, **own, **self.deployed(params, own), **means}

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return the means G (C, e, e) and B (C, e, K) and, with "loo", the mean losses (C, R)."""
        return {name: params[name] for name in ("gram", "cross", *(["losses"] if self.reg == "loo" else []))}


@dataclass(frozen=True)
class PersonalRidge(Ridge):
    """`Ridge` on pooled and patch features, with double weight of own images, a choice of `reg`, and the prior."""

    reg: float | Literal["loo"] = "loo"
    personal: float = 1.0
    features: Literal["pooled", "both"] = "both"

    name: ClassVar[str] = "personal-ridge"
    title: ClassVar[str] = "Personal ridge"
    reference: ClassVar[str] = "this project"
    prior: ClassVar[float] = 1.0


@dataclass(frozen=True)
class FedCOF(Ridge):
    """Goswami et al., NeurIPS 2025: clients send class means and class counts, but no second moments.

    With m_ic (e,) the mean of the n_ic images of class c of client i, and n_c and m_c of all clients, the server takes

        S_c = sum_i n_ic (m_ic - m_c)(m_ic - m_c)' / (C_c - 1) + shrinkage I,

    an unbiased estimate of the covariance of class c from the C_c clients that have images of it, as means of n images
    have the covariance S_c / n. Then n G = sum_c (n_c - 1) S_c + n_c m_c m_c', and B and W are those of `Ridge`. The
    server sees the class counts of every client.

    Attributes:
        shrinkage: number added to the variances, which few clients estimate poorly.
    """

    reg: float = 0.03
    shrinkage: float = 0.001

    name: ClassVar[str] = "fedcof"
    title: ClassVar[str] = "FedCOF"
    reference: ClassVar[str] = "Goswami et al., NeurIPS 2025"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not isinstance(self.reg, str), "method.reg", self.reg, "a number above 0")
        require_from(0, MOST, "method.shrinkage", self.shrinkage)

    def statistics(self, task: Task, params: Parameters, batch: Batch) -> Parameters:
        """Compute sums of features (C, K, e) and counts (C, K) by class over a batch; with `personal` also G and B."""
        image = self.seen(batch.image).double()
        labels = F.one_hot(batch.labels.clamp_min(0), len(task.classes)).double() * (batch.labels >= 0)[..., None]
        of_classes = {"class_sum": labels.mT @ image, "class_count": labels.sum(1)}
        return {**super().statistics(task, params, batch), **of_classes} if self.personal else of_classes

    def sensitivity(self, task: Task) -> float:
        """Return sqrt(2): an image adds features of length 1 and a count of 1."""
        return float(np.sqrt(2))

    def settled(self, params: Parameters, means: Parameters, n_images: Tensor) -> Parameters:
        """Return the means and, with `personal`, those of `Ridge`."""
        return super().settled(params, means, n_images) if self.personal else params | means

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return sums of features (C, K, e) and counts (C, K) by class, divided by the client's number of images."""
        return {name: params[name] for name in ("class_sum", "class_count")}

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Compute G and B from the means and the scatter of the clients' class means."""
        n_images = weights.double()[:, None]
        sums, counts = uploads["class_sum"] * n_images[..., None], uploads["class_count"].clamp_min(0) * n_images
        means = sums / counts.clamp_min(1)[..., None]
        n = counts.sum(0)  # (K,)
        mean = sums.sum(0) / n.clamp_min(1)[:, None]  # (K, e)
        apart = (means - mean) * counts.sqrt()[..., None]
        spread = torch.einsum("cke,ckf->kef", apart, apart) / ((counts > 0).sum(0) - 1).clamp_min(1)[:, None, None]
        eye = torch.eye(mean.shape[1], dtype=mean.dtype, device=mean.device)
        within = ((n - 1).clamp_min(0)[:, None, None] * (spread + self.shrinkage * eye)).sum(0)
        total = n.sum().clamp_min(1)
        gram = (within + (mean.mT * n) @ mean) / total
        cross = (mean * n[:, None]).mT - (mean * n[:, None]).sum(0)[:, None] / len(n)
        return {**server, "gram": gram, "cross": cross / total}


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


def _solved(gram: Tensor, cross: Tensor, target: Tensor, reg: Tensor) -> Tensor:
    """Compute (G + reg I)^-1 (B + reg target), for G (..., e, e), B and target (..., e, K)."""
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(cross + reg * target, torch.linalg.cholesky(gram + reg * eye))


def _without_negative(gram: Tensor) -> Tensor:
    """Symmetrise G (e, e) and remove negative eigenvalues, which noise adds; a G without noise does not change."""
    gram = (gram + gram.mT) / 2
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    if not torch.linalg.cholesky_ex(gram + _ROUNDING * eye).info:  # faster than eigenvalues
        return gram
    values, vectors = torch.linalg.eigh(gram)
    return (vectors * values.clamp_min(0)) @ vectors.mT
