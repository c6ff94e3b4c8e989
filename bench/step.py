"""A training step of ViT-B/16 shapes on cached tokens: ours against the reference formulation of the same step.

FedOTP with one global and one local prompt of 16 vectors, 32 images of 196 patches per client, random weights of the
real shapes, breeds of OxfordPets as class names. Both sides start from the same prompts, see the same tokens, and make
one step of SGD.

- Ours is `LocalTrainer.train` on one batch: it reads the tokens, trains all clients side by side and checks the result.
- The reference formulation is restated from its description, in float32: clients in turn, every prompt of every class
  through all 77 positions, transport by products with V x V diagonal matrices, at most 100 iterations, one stopping
  test for the whole batch. It gets the tokens, too, ready in float32, although the authors' code sends its images
  through the image tower in every step; what that would add is a figure of its own.
"""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench._record import medians, medians_by_clock
from bench.ot import MASS
from bench.ot import reference as reference_plan
from fedotp.clip import CLIP, CONFIGS
from fedotp.federation import FederatedData, HeldFeatures, Images, RoundSettings, Settings
from fedotp.federation.clients import LocalTrainer, LocalWork
from fedotp.methods import FedOTP, Parameters, Precision, Task
from fedotp.prompts import PromptEncoder

BREEDS = (
    "abyssinian", "american bulldog", "american pit bull terrier", "basset hound", "beagle", "bengal", "birman",
    "bombay", "boxer", "british shorthair", "chihuahua", "egyptian mau", "english cocker spaniel", "english setter",
    "german shorthaired", "great pyrenees", "havanese", "japanese chin", "keeshond", "leonberger", "maine coon",
    "miniature pinscher", "newfoundland", "persian", "pomeranian", "pug", "ragdoll", "russian blue", "saint bernard",
    "samoyed", "scottish terrier", "shiba inu", "siamese", "sphynx", "staffordshire bull terrier", "wheaten terrier",
    "yorkshire terrier",
)  # fmt: skip
N_CLIENTS, BATCH, REPEATS = 2, 32, 3
OURS: tuple[Precision, ...] = ("float32", "bfloat16")


def cannot_run() -> str | None:
    return "it compares on the CPU" if torch.cuda.is_available() else None


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for n_classes in (10, 37):
        title = f"{n_classes} classes, {N_CLIENTS} clients"
        step = Step(n_classes)
        ours: dict[str, Callable[[], object]] = {precision: partial(step.ours, precision) for precision in OURS}
        seconds, busy = medians_by_clock({"reference formulation": step.reference, **ours}, repeats=REPEATS)
        figures |= {f"{title}: {name}, ms": 1e3 * value for name, value in seconds.items()}
        losses, moved = step.reference()
        for precision in OURS:
            for clock, times in (("", seconds), (", processor time", busy)):
                ratio = times["reference formulation"] / times[precision]
                figures[f"{title}: reference formulation / {precision}{clock}"] = ratio
            our_losses, our_moved = step.ours(precision)
            figures[f"{title}: {precision}, largest difference of a loss"] = float((our_losses - losses).abs().max())
            figures[f"{title}: {precision}, difference of the update"] = step.difference(our_moved, moved)
    pixels = torch.randn(BATCH, 3, 224, 224)
    encoded = medians({"images": lambda: vit_b_16().encode_image(pixels)}, repeats=REPEATS)["images"]
    return {**figures, f"left out: {BATCH} images through the image tower, ms": 1e3 * encoded}


@cache
def vit_b_16() -> CLIP:
    return CLIP.random(CONFIGS["ViT-B/16"])


class Step:
    """One step of `N_CLIENTS` clients from the same prompts, in two formulations: losses (C,) and new prompts."""

    def __init__(self, n_classes: int, clip: CLIP | None = None) -> None:
        self.method = FedOTP(mass=MASS)
        self.task = Task(clip or vit_b_16(), BREEDS[:n_classes])
        generator = torch.Generator().manual_seed(0)
        config = self.task.clip.config
        n = N_CLIENTS * BATCH
        tokens = torch.randn(1, n, config.n_patches, config.embed_dim, generator=generator).half()  # as they are stored
        self.tokens = tokens[0].float()
        features = HeldFeatures(torch.randn(1, n, config.embed_dim, generator=generator), tokens)
        rows = tuple(np.arange(n).reshape(N_CLIENTS, BATCH))
        self.labels = np.arange(n) % n_classes
        images = Images(features, self.labels, rows)
        names = tuple(f"client {i}" for i in range(N_CLIENTS))
        self.data = FederatedData(names, (None,) * N_CLIENTS, train=images, test=images)
        self.received = self.method.send(self.method.shared(self.task, N_CLIENTS), None, N_CLIENTS)
        self.private = {name: x.expand(N_CLIENTS, *x.shape) for name, x in self.method.private(self.task).items()}
        self.settings = Settings(RoundSettings(batch_size=BATCH)).of(self.method)

    def ours(self, precision: Precision) -> tuple[Tensor, Parameters]:
        """Side by side, by what fedotp trains with."""
        trainer = LocalTrainer(self.method, self.task.in_precision(precision), self.data, self.settings)
        work = LocalWork(np.arange(N_CLIENTS), round=0, epochs=1, lr=self.settings.optimizer.rate)
        result = trainer.train(work, self.received, self.private)
        return result.loss, result.params

    def reference(self) -> tuple[Tensor, Parameters]:
        """In turn, by the reference formulation."""
        losses, moved = [], []
        for client in range(N_CLIENTS):
            rows = slice(client * BATCH, (client + 1) * BATCH)
            start = torch.cat([self.received["shared"][client], self.private["private"][client]])
            context = start.clone().requires_grad_()  # (N, s, d)
            optimizer = torch.optim.SGD(
                [context],
                lr=self.settings.optimizer.rate,
                momentum=self.settings.optimizer.momentum,
                weight_decay=self.settings.optimizer.weight_decay,
            )
            labels = torch.from_numpy(self.labels[rows])
            loss = reference_loss(self.task, context, self.tokens[rows], labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            moved.append(context.detach())
        shared, private = torch.stack(moved).split([self.method.n_shared, self.method.n_private], dim=1)
        return torch.stack(losses), {"shared": shared, "private": private}

    def difference(self, one: Parameters, other: Parameters) -> float:
        """How far two updates are apart, relative to the second's size."""
        begin = {**self.received, **self.private}
        apart = sum((one[name] - other[name]).square().sum() for name in begin)
        size = sum((other[name] - begin[name]).square().sum() for name in begin)
        return float((apart / size) ** 0.5)


def reference_loss(task: Task, context: Tensor, tokens: Tensor, labels: Tensor) -> Tensor:
    """The loss of one client, prompts (N, s, d), tokens (B, V, e), as the authors' code forms it."""
    assert isinstance(task.encoder, PromptEncoder)
    classes = F.normalize(task.encoder.encode_plain(context[None])[0], dim=-1)  # (N, K, e)
    patches = F.normalize(tokens, dim=-1)
    similar = torch.einsum("bvd,nkd->bkvn", patches, classes)  # (B, K, V, N)
    with torch.no_grad():
        plan = reference_plan(1 - similar.flatten(0, 1), FedOTP().reg).view_as(similar)
    scores = (plan * similar).sum((-2, -1))
    return F.cross_entropy(scores * task.logit_scale.exp(), labels)
