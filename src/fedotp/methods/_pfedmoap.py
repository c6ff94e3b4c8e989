"""pFedMoAP: other clients' prompts as experts, weighted by a private gating network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, sqrt
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require_choices, require_from
from fedotp.matching import pooled_score
from fedotp.methods._method import LearningRates, weighted_average
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task, constant, uniform

_WIDTH, _HEADS = 128, 8  # of the gating network: 66,048 numbers
_SHARPNESS = 10.0  # factor of its attention logits, instead of 1 / sqrt(width of a head)
_MOST_EXPERTS = 256  # all are sent in every round


@dataclass(frozen=True)
class PFedMoAP(PromptFL):
    """Luo et al., ICLR 2025: a mixture of experts, which are prompts of other clients.

    The server averages the prompts (Eq. 4) to P_g and stores every client's last one. A client trains its prompt P_i
    starting from P_g. Once it has sent a prompt, it also receives the `experts` prompts P_j of other clients nearest to
    its own last one (`choice` "nearest", L2; "fixed", as in the authors' code: the first in an order of all clients
    drawn once), or fewer if fewer have been sent. They are not trained, and their class features are computed once per
    round. With f the image's pooled feature and z_k(P) the feature of class k, both of length 1, and pool(x) every
    (e / 128)-th component of x,

        score_k = lambda f . z_k(P_i) + pool(f) . T_k,
        T_k = attention(query pool(f); keys and values pool(z_k(P_i)), pool(z_k(P_j)) of all experts j),

    where the attention, the same for all classes, has 8 heads, width 128 and biases, and multiplies its logits by 10
    instead of 1 / sqrt(16). It is the client's private gating network. (In the authors' code a client copies another
    client's in its first round with experts, and later clients of a round get prompts of the same round; a server that
    serves clients in parallel can do neither.)

    Without experts score_k = f . z_k(P_i): in a client's first round (its gating network then only has weight decay),
    for new clients, and in predictions before the gating network has been trained.

    The gating network learns at `gate_rate` times the learning rate of prompts. The paper's rates are 0.01 and 0.002;
    with a much higher learning rate of prompts it needs a smaller factor, or diverges.

    Choices: if e is less than 128, the attention has the width e and gcd(8, e) heads. A client predicts with its own
    last prompt, P_g if it has never trained. Missing experts are replaced by P_g and masked in the attention, so that
    all messages have the same size.

    Attributes:
        experts: maximum number of other clients' prompts that a client receives.
        choice: choice of experts: "nearest" to the client's prompt, or "fixed", the first in an order drawn once.
        lam: weight lambda of the client's own prompt relative to the experts.
        gate_rate: learning rate of the gating network, as a multiple of that of prompts.
    """

    experts: int = 9
    choice: Literal["nearest", "fixed"] = "nearest"
    lam: float = 0.5
    gate_rate: float = 5.0

    name: ClassVar[str] = "pfedmoap"
    title: ClassVar[str] = "pFedMoAP"
    reference: ClassVar[str] = "Luo et al., ICLR 2025"
    learning_rates: ClassVar[LearningRates] = LearningRates(paper=0.002, mini=0.003)
    publishes: ClassVar[frozenset[str]] = frozenset({"own"})
    fixed: ClassVar[frozenset[str]] = frozenset({"experts", "present", "stage"})

    def __post_init__(self) -> None:
        require_from(1, _MOST_EXPERTS, "method.experts", self.experts, " (the paper uses 9)")
        require_choices(self, "method.")
        require_from(0, MOST, "method.lam", self.lam)
        require_from(0, MOST, "method.gate_rate", self.gate_rate, " (times optimizer.lr; the paper: 0.01 / 0.002 = 5)")

    @property
    def rate(self) -> Mapping[str, float]:
        """The factor of the gating network's learning rate."""
        return dict.fromkeys(("gate_in", "gate_in_bias", "gate_out", "gate_out_bias"), self.gate_rate)

    # Parameters --------------------------------------------------------------------------------------------

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return P_g (1, s, d), all clients' last prompts (n, 1, s, d), flags of sent ones (n,), and an order (n,)."""
        start = task.contexts(1)
        return {
            "prompt": start,
            "pool": start.expand(n_clients, *start.shape).clone(),
            "sent": torch.zeros(n_clients, device=start.device),
            **({"order": uniform(task, "order", n_clients, bound=1.0)} if self.choice == "fixed" else {}),
        }

    def private(self, task: Task) -> Parameters:
        """Return the client's last prompt (1, s, d), gating network, and stage (1: trained, 2: with experts)."""
        width = _width(task.clip.config.embed_dim)
        layers = {
            "gate_in": (3 * width, width),  # queries, keys, values
            "gate_in_bias": (3 * width,),
            "gate_out": (width, width),
            "gate_out_bias": (width,),
        }
        return {
            "own": task.contexts(1),
            **{name: uniform(task, name, *shape, bound=1 / sqrt(width)) for name, shape in layers.items()},
            "stage": constant(task, 0.0),
        }

    # Client ------------------------------------------------------------------------------------------------

    def start(self, received: Parameters, private: Parameters) -> Parameters:
        """Start training from the average, with the current experts."""
        stage = torch.maximum(private["stage"], 1 + received["present"].amax(-1))
        return {
            **private,
            "own": received["prompt"],
            "experts": received["experts"],
            "present": received["present"],
            "stage": stage,
        }

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """Predict with the client's own prompt, and with experts once its gating network has been trained."""
        stage = private["stage"]
        own = private["own"]
        trained = (stage > 0).view(-1, *[1] * (own.dim() - 1))
        return {
            **private,
            "own": torch.where(trained, own, received["prompt"]),
            "experts": received["experts"],
            "present": received["present"] * (stage > 1)[:, None],
        }

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the client's own prompt, then the experts."""
        return Prompt(Kind.LOCAL, params["own"]), Prompt(Kind.OTHERS, params["experts"])

    def training_prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the client's own prompt only; the experts' features are in `derived`."""
        return self.prompts(task, params)[:1]

    def derived(self, task: Task, params: Parameters, own_classes: Tensor | None) -> Parameters:
        """Encode the n experts, equal ones once: class features (C, n, K, e)."""
        experts = params["experts"]  # (C, n, s, d)
        different, at = experts.flatten(0, 1).flatten(1).unique(dim=0, return_inverse=True)
        prompts = different.view(-1, 1, *experts.shape[2:])
        encode = task.encoder_for(experts.shape[-2])
        features = torch.cat([encode(some) for some in prompts.split(len(experts))])  # at most C at once
        return {"expert_features": features[at, 0].unflatten(0, experts.shape[:2]).to(task.dtype)}

    def class_features(self, task: Task, params: Parameters, prompts: Sequence[Prompt] | None = None) -> Tensor:
        """Return the features of the client's own prompt, then of the experts: (C, 1 + n, K, e)."""
        return torch.cat([task.features(params["own"]), params["expert_features"]], dim=1)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute lambda f . z_k(P_i) + pool(f) . T_k, (C, B, K); f . z_k(P_i) without experts."""
        plain = pooled_score(batch.image.pooled, classes[:, :1])
        present = F.pad(params["present"], (1, 0), value=1.0)  # (C, N): the client's own prompt is always present
        mixed = self.lam * plain + _gated(params, batch.image.pooled, classes, present)
        alone = params["present"].amax(-1) == 0
        return torch.where(alone[:, None, None], plain, mixed)

    def upload(self, params: Parameters, received: Parameters, draws: object) -> Parameters:
        """Return the trained prompt."""
        return {"prompt": params["own"]}

    # Server ------------------------------------------------------------------------------------------------

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """Return P_g (C, 1, s, d), the experts (C, n, s, d), and their mask (C, n)."""
        prompt = server["prompt"]
        filled = prompt.expand(n_clients, self.experts, *prompt.shape[1:])
        present = prompt.new_zeros(n_clients, self.experts)
        if clients is not None:
            chosen, there = self._chosen(server, clients)
            n = chosen.shape[1]
            present = F.pad(there.to(prompt.dtype), (0, self.experts - n))
            shown = there.view(*there.shape, *[1] * (prompt.dim() - 1))
            nearest = torch.where(shown, server["pool"][chosen].squeeze(2), filled[:, :n])
            filled = torch.cat([nearest, filled[:, n:]], dim=1)
        return {"prompt": prompt.expand(n_clients, *prompt.shape), "experts": filled, "present": present}

    def _chosen(self, server: Parameters, clients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the clients whose prompts `clients` (C,) receive, (C, n), and a mask of those that exist, (C, n)."""
        pool, sent = server["pool"].flatten(1).double(), server["sent"] > 0
        everyone = torch.arange(len(pool), device=pool.device)
        if self.choice == "nearest":
            # Not by products: a client's distances must not depend on the other clients of the call.
            order = torch.cdist(pool[clients], pool, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            order = server["order"].double().expand(len(clients), -1)
        may = sent & sent[clients, None] & (everyone != clients[:, None])
        first = torch.where(may, order, torch.inf).sort(dim=1, stable=True)
        return first.indices[:, : self.experts], first.values[:, : self.experts].isfinite()

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Return the average and all clients' last prompts."""
        pool, sent = server["pool"].clone(), server["sent"].clone()
        pool[clients] = uploads["prompt"].to(pool.dtype)
        sent[clients] = 1
        return {**server, **weighted_average(uploads, weights), "pool": pool, "sent": sent}


def _width(features: int) -> int:
    """Return the number of components of a feature (e,) that the gating network uses."""
    return min(_WIDTH, features)


def _pool(features: Tensor) -> Tensor:
    """Return every (e / 128)-th component of normalised features (..., e)."""
    width = features.shape[-1]
    step = width // _width(width)
    return F.normalize(features, dim=-1)[..., : step * _width(width) : step]


def _gated(params: Parameters, pooled: Tensor, classes: Tensor, present: Tensor) -> Tensor:
    """Compute pool(f) . T_k (C, B, K): pooled (C, B, e), classes (C, N, K, e), present (C, N) 0 or 1.

    The output projection is applied to pool(f) instead of the T_k, of which there are K times as many.
    """
    image, experts = _pool(pooled), _pool(classes)  # (C, B, w), (C, N, K, w)
    heads = (gcd(_HEADS, image.shape[-1]), -1)
    weights, biases = params["gate_in"].chunk(3, dim=1), params["gate_in_bias"].chunk(3, dim=1)
    query = torch.baddbmm(biases[0][:, None], image, weights[0].mT).unflatten(-1, heads)  # (C, B, h, x)
    flat = experts.flatten(1, 2)  # (C, NK, w)
    key, value = (
        torch.baddbmm(bias[:, None], flat, weight.mT).unflatten(1, experts.shape[1:3]).unflatten(-1, heads)
        for weight, bias in zip(weights[1:], biases[1:], strict=True)
    )  # (C, N, K, h, x)
    logits = _SHARPNESS * torch.einsum("cbhx,cnkhx->chbkn", query, key)
    attention = logits.masked_fill(present[:, None, None, None] == 0, -torch.inf).softmax(-1)
    reader = (image @ params["gate_out"]).unflatten(-1, heads)  # (C, B, h, x)
    read = torch.einsum("cbhx,cnkhx->chbkn", reader, value)
    constant_part = image @ params["gate_out_bias"][..., None]  # (C, B, 1)
    return (attention * read).sum(dim=(1, 4)) + constant_part
