"""Closed forms on the images' pooled features: no gradient, one round, and exactly the centralised solution.

With X (n, e) the features of a client's n images, of length 1, and Y (n, K) their labels, one-hot minus 1/K, a client
sends the means G = X'X / n and B = X'Y / n. Their averages with weights n (Eq. 4) are those of all images pooled,
whatever the partition. So secure sums add them, a private release covers them, and subtraction forgets a client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require, require_from
from fedotp.methods._method import Method
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class Ridge(Method):
    """Fed3R (Fani et al., ICML 2024) and AFL (He et al., CVPR 2025), toward the captions' features, then personal.

    With Z (K, e) the features of the captions, of length 1, the server sends

        W = (G + reg I)^-1 (B + reg text Z')                         (e, K)

    which is text Z', zero-shot CLIP, before the first round. A client with `personal` > 0 does the same with its own
    images, toward W instead of the captions: W_i = (G_i + r I)^-1 (B_i + r W) with r = personal / n_i. An image f has
    score_k = f . W_k sharpness / exp(logit scale), so that its logits are sharpness f . W_k.

    All statistics are float64.

    Attributes:
        reg: how strongly weights are held at the captions', per image.
        text: length of the captions' features that weights are held at; 0 is the ridge of Fed3R and AFL.
        personal: how many images the shared weights count for beside a client's own; 0: clients use them as they are.
        sharpness: of the probabilities, whose logits are this times the scores.
    """

    reg: float = 0.03
    text: float = 2.0
    personal: float = 0.0
    sharpness: float = 10.0

    name: ClassVar[str] = "ridge"
    title: ClassVar[str] = "Ridge"
    reference: ClassVar[str] = "Fani et al., ICML 2024; He et al., CVPR 2025"

    def __post_init__(self) -> None:
        require(0 < self.reg <= MOST, "method.reg", self.reg, "more than 0")
        for key in ("text", "personal", "sharpness"):
            require_from(0, MOST, f"method.{key}", getattr(self, key))

    @property
    def bound_to_classes(self) -> str:
        """Weights are of the classes trained on."""
        return "its weights are of the classes it was trained on"

    @property
    def in_closed_form(self) -> bool:
        """One round of statistics replaces all gradient steps."""
        return True

    @property
    def global_part(self) -> Method:
        """The shared weights."""
        return replace(self, personal=0.0)

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """G (e, e) and B (e, K) of no images, and the captions' Z (K, e)."""
        captions = F.normalize(task.template_features()[0, 0].double(), dim=-1)  # (K, e)
        n_classes, width = captions.shape
        zeros = {"gram": captions.new_zeros(width, width), "cross": captions.new_zeros(width, n_classes)}
        return {**zeros, "captions": captions}

    def private(self, task: Task) -> Parameters:
        """A client's own G and B, and the number of its images, where it uses them."""
        if not self.personal:
            return {}
        shared = self.shared(task, 1)
        return {"own_gram": shared["gram"], "own_cross": shared["cross"], "own_images": shared["gram"].new_zeros(())}

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """The weights W (C, e, K), the same to everyone."""
        target = self.text * server["captions"].mT
        weights = _solved(server["gram"], server["cross"], target, self.reg)
        return {"weights": weights.expand(n_clients, *weights.shape)}

    @property
    def fixed(self) -> frozenset[str]:
        """The weights follow from statistics."""
        return frozenset({"weights"})

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """The shared weights, or a client's own: (C, e, K)."""
        weights = received["weights"]
        if self.personal and private:
            reg = self.personal / private["own_images"].clamp_min(1)  # (C,)
            weights = _solved(private["own_gram"], private["own_cross"], weights, reg[:, None, None])
        return {"weights": weights}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The captions."""
        return (Prompt(Kind.CAPTION, None),)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """f . W sharpness / exp(logit scale): (C, B, K)."""
        image = F.normalize(batch.image.pooled, dim=-1)
        scale = self.sharpness / task.logit_scale.exp()
        return image @ params["weights"].to(image.dtype) * scale.to(image.dtype)

    def statistics(self, task: Task, batch: Batch) -> Parameters:
        """Sums over the images of a batch: X'X (C, e, e) and X'Y (C, e, K)."""
        image = F.normalize(batch.image.pooled.double(), dim=-1) * (batch.labels >= 0)[..., None]  # (C, B, e)
        n_classes = len(task.classes)
        labels = F.one_hot(batch.labels.clamp_min(0), n_classes).double() - 1 / n_classes
        return {"gram": image.mT @ image, "cross": image.mT @ labels}

    def sensitivity(self, task: Task) -> float:
        """|x x'|^2 + |x y'|^2 is 1 + (1 - 1/K) for x of length 1 and y one-hot minus 1/K."""
        return float(np.sqrt(2 - 1 / len(task.classes)))

    def settled(self, params: Parameters, means: Parameters, n_images: Tensor) -> Parameters:
        """The means to send and, with `personal`, to keep; and the weights that follow."""
        named = {"own_gram": means["gram"], "own_cross": means["cross"], "own_images": n_images}
        own = named if self.personal else {}
        return {**params, **means, **own, **self.deployed(params, own)}

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """The means G (C, e, e) and B (C, e, K)."""
        return {name: params[name] for name in ("gram", "cross")}


@dataclass(frozen=True)
class FedCOF(Ridge):
    """Goswami et al., NeurIPS 2025: clients send means of classes and their numbers of images, and no second moments.

    With m_ic (e,) the mean of the n_ic images of class c of client i, and n_c and m_c of all clients, the server takes

        S_c = sum_i n_ic (m_ic - m_c)(m_ic - m_c)' / (C_c - 1) + shrinkage I,

    an unbiased estimate of the covariance of class c from the C_c clients that have images of it, as means of n images
    spread by S_c / n. Then n G = sum_c (n_c - 1) S_c + n_c m_c m_c', and B and W follow as for `Ridge`. The server sees
    the class counts of every client.

    Attributes:
        shrinkage: what is added to the variances, of which few clients say little.
    """

    shrinkage: float = 0.001

    name: ClassVar[str] = "fedcof"
    title: ClassVar[str] = "FedCOF"
    reference: ClassVar[str] = "Goswami et al., NeurIPS 2025"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_from(0, MOST, "method.shrinkage", self.shrinkage)

    def statistics(self, task: Task, batch: Batch) -> Parameters:
        """Sums over the images of a batch by class: features (C, K, e), numbers (C, K); with `personal` also G, B."""
        image = F.normalize(batch.image.pooled.double(), dim=-1)
        labels = F.one_hot(batch.labels.clamp_min(0), len(task.classes)).double() * (batch.labels >= 0)[..., None]
        of_classes = {"class_sum": labels.mT @ image, "class_count": labels.sum(1)}
        return {**super().statistics(task, batch), **of_classes} if self.personal else of_classes

    def sensitivity(self, task: Task) -> float:
        """An image adds its features, of length 1, and 1."""
        return float(np.sqrt(2))

    def settled(self, params: Parameters, means: Parameters, n_images: Tensor) -> Parameters:
        """With `personal` as for `Ridge`."""
        return super().settled(params, means, n_images) if self.personal else params | means

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Sums of features by class (C, K, e) and numbers (C, K), both divided by the number of the client's images."""
        return {name: params[name] for name in ("class_sum", "class_count")}

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """G and B from what means of different clients have in common and how they spread."""
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


def _solved(gram: Tensor, cross: Tensor, target: Tensor, reg: float | Tensor) -> Tensor:
    """(G + reg I)^-1 (B + reg target), for G (..., e, e), B and target (..., e, K).

    Noise makes G indefinite and not symmetric: its negative eigenvalues count as 0, which changes no true G.
    """
    values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
    wanted = vectors.mT @ (cross + reg * target)
    return vectors @ (wanted / (values.clamp_min(0).unsqueeze(-1) + reg))
