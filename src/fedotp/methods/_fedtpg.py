"""FedTPG: a shared network that generates the prompt from the class names."""

from dataclasses import dataclass
from math import gcd, sqrt
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import require_from
from fedotp.errors import FedotpError
from fedotp.methods._method import LearningRates, Method, weighted_average
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._task import Task, constant, uniform

_HEADS = 4
_MOST_VECTORS = 1000  # more than the positions of any text tower (77 for CLIP)


@dataclass(frozen=True)
class FedTPG(Method):
    """Qiu et al., ICLR 2024: text-driven prompt generation, without private parameters.

    With t_k (e,) the unit text feature of the bare name of class k, and Q (s, d) learned vectors, the prompt is

        x = attention(query LN(Q); keys and values LN(t_k) of all candidate classes k),   prompt = x + FF(x),
        FF(x) = W_2 (a * gelu(g)) + b_2,   [a, g] = W_1 LN(x) + b_1,   W_1 (8d, d), W_2 (d, 4d),

    with 4 heads (fewer if 4 does not divide the width) and no residual around the attention. The prompt precedes the
    name of each of these classes, and the image is matched by its pooled feature (Eq. 1).

    In training the candidates are the classes that the client has images of: others are neither in the context nor in
    the softmax. In prediction they are all classes, for every client. The server's average is unweighted.

    Choices: all projections have biases; the attention is initialised like torch.nn.MultiheadAttention, other layers
    like torch.nn.Linear, Q like prompts (`prompt.std`).

    Attributes:
        n_ctx: number s of vectors of the generated prompt; `prompt.n_ctx` is ignored.
    """

    n_ctx: int = 4

    name: ClassVar[str] = "fedtpg"
    title: ClassVar[str] = "FedTPG"
    reference: ClassVar[str] = "Qiu et al., ICLR 2024"
    learning_rates: ClassVar[LearningRates] = LearningRates(paper=0.003, mini=0.03)

    def __post_init__(self) -> None:
        require_from(1, _MOST_VECTORS, "method.n_ctx", self.n_ctx, " (the paper uses 4)")

    @property
    def global_part(self) -> Method:
        """The method itself: clients keep nothing private."""
        return self

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return Q (s, d) and the layers: attention and feed-forward."""
        task.require_context("FedTPG generates context vectors from class names")
        if task.prompt.per_class:
            raise FedotpError("prompt.per_class = true: must be false, as FedTPG has one prompt for all classes")
        d, e = task.clip.text.width, task.clip.config.embed_dim
        found = {"soft": task.contexts(1, self.n_ctx)[0]}
        # Xavier bounds; if their widths are equal, torch has the three in one matrix (3d, d)
        for name, n_in in {"query": d, "key": e, "value": e}.items():
            found[name] = uniform(task, name, d, n_in, bound=sqrt(6 / ((3 * d if d == e else d) + n_in)))
            found[f"{name}_bias"] = constant(task, 0.0, d)
        found["out"], found["out_bias"] = uniform(task, "out", d, d, bound=1 / sqrt(d)), constant(task, 0.0, d)
        for name, (n_out, n_in) in {"ff_in": (8 * d, d), "ff_out": (d, 4 * d)}.items():
            found[name] = uniform(task, name, n_out, n_in, bound=1 / sqrt(n_in))
            found[f"{name}_bias"] = uniform(task, f"{name}_bias", n_out, bound=1 / sqrt(n_in))
        for name, width in {"query_norm": d, "context_norm": e, "ff_norm": d}.items():
            found[name] = constant(task, 1.0, width)
            found[f"{name}_bias"] = constant(task, 0.0, width)
        return found

    def derived(self, task: Task, params: Parameters, own_classes: Tensor | None) -> Parameters:
        """Return the candidate classes in training: (C, K), 0 or 1."""
        return {} if own_classes is None else {"own": own_classes.to(task.dtype)}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the generated prompt (C, 1, s, d)."""
        n_clients = len(params["soft"])
        if all(value.stride(0) == 0 for value in params.values()):  # one network, one prompt for all clients
            params = {name: value[:1] for name, value in params.items()}
        prompt = _generated(params, task.name_features, params.get("own"))[:, None]
        return (Prompt(Kind.GLOBAL, prompt.expand(n_clients, -1, -1, -1)),)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute Eq. 1; in training -inf for classes that the client has no image of, (C, B, K)."""
        score = super().score(task, params, batch, classes)
        own = params.get("own")
        return score if own is None else score.masked_fill(own[:, None] == 0, -torch.inf)

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Return the unweighted mean over clients."""
        return {**server, **weighted_average(uploads, torch.ones_like(weights))}


def _generated(params: Parameters, names: Tensor, own: Tensor | None) -> Tensor:
    """Generate prompts (C, s, d) by networks (C, ...) from features (K, e) of names; `own` (C, K) selects classes."""
    query = _linear(params, "query", _norm(params, "query_norm", params["soft"]))  # (C, s, d)
    context = _norm(params, "context_norm", names.expand(len(query), -1, -1))  # (C, K, e)
    key, value = (_linear(params, name, context) for name in ("key", "value"))  # (C, K, d)
    heads = (gcd(_HEADS, query.shape[-1]), -1)
    query, key, value = (x.unflatten(-1, heads).transpose(1, 2) for x in (query, key, value))  # (C, h, s or K, d / h)
    counts = None if own is None else (own > 0)[:, None, None]
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=counts)
    x = _linear(params, "out", attended.transpose(1, 2).flatten(2))  # (C, s, d)
    values, gates = _linear(params, "ff_in", _norm(params, "ff_norm", x)).chunk(2, dim=-1)  # (C, s, 4d)
    return x + _linear(params, "ff_out", values * F.gelu(gates))


def _linear(params: Parameters, name: str, x: Tensor) -> Tensor:
    """Apply the layer `name` of every client to x (C, n, width)."""
    return torch.baddbmm(params[f"{name}_bias"][:, None], x, params[name].mT)


def _norm(params: Parameters, name: str, x: Tensor) -> Tensor:
    """Apply LayerNorm to x (C, n, width)."""
    return F.layer_norm(x, x.shape[-1:]) * params[name][:, None] + params[f"{name}_bias"][:, None]
