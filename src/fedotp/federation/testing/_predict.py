"""The one predictor: what C clients make of images. A simulator has many clients, a site and a classifier one."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError
from fedotp.matching import Matching, similarity
from fedotp.methods import Batch, Dial, Kind, Memory, Method, Parameters, Task


@dataclass(frozen=True, eq=False)
class Predictor:
    """The classifiers of C clients, the text tower's work done.

    Attributes:
        params: (C, ...) what the clients predict with, by the method's names.
        classes: (C, N, K, e) class features of length 1.
        kinds: (N,) what the prompts are.
        memory: of the clients' training images, for methods that look them up.
    """

    method: Method
    task: Task
    params: Parameters
    classes: Tensor
    kinds: tuple[Kind, ...]
    memory: Memory | None = None

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        method: Method,
        task: Task,
        params: Parameters,
        n_clients: int = 1,
        *,
        memory: Memory | None = None,
        derived: Parameters | None = None,
    ) -> "Predictor":
        """Encode the prompts that `params` (C, ...) make; `n_clients` is C, which a method without any does not say.

        `derived` (C, ...) is what the method derives from them, where that is known already.
        """
        known = params | (method.derived(task, params, None) if derived is None else derived)
        classes = F.normalize(method.class_features(task, known), dim=-1).expand(n_clients, -1, -1, -1)
        return cls(method, task, params, classes, method.kinds(task, params), memory)

    def __repr__(self) -> str:
        n_prompts, n_classes = self.classes.shape[1:3]
        return f"<Predictor of {len(self)} clients: {self.method.title}, {n_prompts} prompts, {n_classes} classes>"

    def __len__(self) -> int:
        """Return the number of clients C."""
        return len(self.classes)

    def rows(self, at: Tensor | slice) -> "Predictor":
        """Some of the clients, in the order given."""
        params = {name: value[at] for name, value in self.params.items()}
        memory = None if self.memory is None else self.memory.rows(at)
        return replace(self, params=params, classes=self.classes[at], memory=memory)

    # Prediction --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self, image: ImageFeatures, padded: Tensor | None = None) -> Tensor:
        """Scores (C, B, K) of images, pooled (C, B, e) and tokens (C, B, V, e); `padded` (C, B) are none."""
        unknown = torch.full(image.pooled.shape[:2], -1, device=image.pooled.device)
        batch = Batch(image, unknown, memory=self.memory, padded=padded)
        return self.method.score(self.task, self.params, batch, self.classes)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Logarithms of the probabilities (C, B, K) that scores mean (Eq. 1 and 10), in float64."""
        return (scores.double() * self.task.logit_scale.double().exp()).log_softmax(-1)

    @torch.no_grad()
    def judge(self, image: ImageFeatures, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The predicted classes (C, B) of images, and the losses (C, B) for `labels` (C, B); -1 gives some number."""
        scores = self.scores(image, labels < 0)
        loss = -self.log_probabilities(scores).gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        return scores.argmax(-1), loss

    @property
    def shown(self) -> list[int]:
        """Which of the N prompts a client is shown with: all but those of other clients."""
        return [n for n, kind in enumerate(self.kinds) if kind != Kind.OTHERS]

    # Where prompts look ------------------------------------------------------------------------------------

    @torch.no_grad()
    def similarity(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Cosines (C, B, V, N) of patches (C, B, V, e) and the prompts of one class of each image, `labels` (C, B)."""
        clients = torch.arange(len(self), device=labels.device)[:, None]
        own = self.classes.transpose(1, 2)[clients, labels]  # (C, B, N, e)
        alone = similarity(tokens.flatten(0, 1)[:, None], own.flatten(0, 1)[:, :, None])  # (CB, 1, 1, V, N)
        return alone[:, 0, 0].unflatten(0, labels.shape)

    @property
    def matching(self) -> Matching:
        """How images are matched with classes."""
        return self.method.matching

    @torch.no_grad()
    def plan(self, similar: Tensor, image: ImageFeatures, matching: Matching | None = None) -> Tensor:
        """Transport plans (C, B, V, N) of images, by the method's rule or another `matching`.

        `similar` is their `similarity` (C, B, V, N).
        """
        rule = self.task.rule(matching or self.matching)
        weights = self.method.weights(self.task, self.params, image, self.classes)
        if weights is not None and weights.dim() == 2:
            weights = weights[:, None].expand(-1, similar.shape[1], -1)
        return rule.plan(similar, weights)

    # Others of its kind ------------------------------------------------------------------------------------

    def with_matching(self, matching: Matching) -> "Predictor":
        """The same prompts under another rule."""
        options = {"rule": matching.rule, "reg": matching.reg, "mass": matching.mass}
        return replace(self, method=self.method.adjusted(**options))

    def with_mass(self, mass: float) -> "Predictor":
        """The same prompts with another share of the image transported."""
        if not self.matching.has_mass:
            rule = f" with rule {self.matching.rule}" if self.matching.has_plan else ""
            raise FedotpError(f"{self.method.title}{rule} has no mass to choose: only unbalanced transport has")
        return replace(self, method=self.method.adjusted(mass=mass))

    def with_dial(self, dial: Dial) -> "Predictor":
        """The same prompts, the mass divided between global (dial 0) and local ones (1) in another way."""
        return replace(self, method=self.method.adjusted(dial=dial))

    def with_task(self, task: Task) -> "Predictor":
        """The same prompts for another task, such as other classes."""
        return Predictor.of(self.method, task, self.params, len(self), memory=self.memory)
