"""FedCLIP: no prompt is learned, but an adapter on the image's feature, averaged by the server."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.matching import pooled_score
from fedotp.methods._batch import Batch
from fedotp.methods._method import Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class FedCLIP(Method):
    """Lu et al., IEEE Data Engineering Bulletin 2023: attention over the numbers of the pooled feature f.

        A(f) = softmax(W_2 tanh(W_1 f + b_1) + b_2),   score_k = cos(A(f) * f, z_k), z_k of the hand-written caption.

    f has length 1. Every client counts alike in the average, whatever it has of images. The authors train with Adam,
    a learning rate of 5e-5 and a weight decay of 0.2: `optimizer.name = "adam"` and so on.
    """

    name: ClassVar[str] = "fedclip"
    title: ClassVar[str] = "FedCLIP"
    reference: ClassVar[str] = "Lu et al., IEEE Data Eng. Bull. 2023"

    @property
    def global_part(self) -> Method:
        """Everything, as nobody has anything of his own."""
        return self

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """W_1, W_2 (e, e) and b_1, b_2 (e,), drawn as torch.nn.Linear draws them."""
        width = task.clip.config.embed_dim
        generator = torch.Generator().manual_seed(task.seed)
        return {
            f"{layer}_{part}": torch.empty(shape)
            .uniform_(-(width**-0.5), width**-0.5, generator=generator)
            .to(task.device, task.dtype)
            for layer in ("first", "second")
            for part, shape in (("weight", (width, width)), ("bias", (width,)))
        }

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The captions."""
        return (Prompt(Kind.CAPTION, None),)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Cosines of adapted images with the captions, (C, B, K)."""
        image = F.normalize(batch.image.pooled, dim=-1)
        hidden = _linear(image, params, "first").tanh()
        return pooled_score(_linear(hidden, params, "second").softmax(-1) * image, classes)

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """The mean over clients."""
        return super().aggregate(server, clients, uploads, torch.ones_like(weights))


def _linear(x: Tensor, params: Parameters, layer: str) -> Tensor:
    """W x + b of each client's own layer: (C, B, e)."""
    return x @ params[f"{layer}_weight"].mT + params[f"{layer}_bias"].unsqueeze(1)
