"""PromptFL + FedAMP: for each client the server mixes the prompts of similar clients."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedotp._values import MOST, require_from
from fedotp.methods._method import LearningRates
from fedotp.methods._parts import Parameters
from fedotp.methods._promptfl import CoOp
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PromptFLAmp(CoOp):
    """Huang et al., AAAI 2021, applied to prompts.

    The server stores every client's last prompt P_i and sends it the mixture

        u_i = sum_j xi_ij P_j,   xi_ij = alpha A'(||P_i - P_j||^2) for j != i,   xi_ii = 1 - sum_{j != i} xi_ij,

    with A(x) = 1 - exp(-x / sigma); the client minimises its loss + lambda / (2 alpha) ||P - u_i||^2, starting from
    u_i, and predicts with the result. The paper gives no values, and good ones depend on the scale of prompts, so the
    options here are independent of it. A new client receives the mean of all prompts.

    Attributes:
        strength: weight c of other clients' prompts: xi_ij = c / n exp(-||P_i - P_j||^2 / sigma), that is
            alpha = c sigma / n, with n clients that have sent a prompt. With c = 1 and equal prompts the mixture is the
            mean.
        sigma: squared distance at which similarity falls to 1/e; 0 for the mean squared distance.
        mu: weight lambda / alpha of the penalty on the distance from the mixture.
    """

    strength: float = 1.0
    sigma: float = 0.0
    mu: float = 0.5

    name: ClassVar[str] = "promptfl-fedamp"
    title: ClassVar[str] = "PromptFL+FedAMP"
    reference: ClassVar[str] = "Huang et al., AAAI 2021"
    learning_rates: ClassVar[LearningRates] = LearningRates(mini=0.03)
    publishes: ClassVar[frozenset[str]] = frozenset({"prompt"})

    def __post_init__(self) -> None:
        require_from(0, 1, "method.strength", self.strength)
        require_from(0, MOST, "method.sigma", self.sigma, " (0: the mean squared distance between prompts)")
        require_from(0, MOST, "method.mu", self.mu)

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return the last prompt of every client (n, 1, s, d), and flags (n,) of the clients that have sent one."""
        start = task.contexts(1)
        return {
            "prompts": start.expand(n_clients, *start.shape).clone(),
            "sent": torch.zeros(n_clients, device=start.device),
        }

    def start(self, received: Parameters, private: Parameters) -> Parameters:
        """Start training from the mixture."""
        return {"prompt": received["mixture"]}

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """Predict with the client's own prompt, not the mixture."""
        return private

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor | None:
        """Return mu / 2 times the squared distance from the mixture, (C,)."""
        return self.mu / 2 * (params["prompt"] - received["mixture"]).square().flatten(1).sum(1)

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """Return every client's mixture (C, 1, s, d)."""
        prompts, sent = server["prompts"], server["sent"] > 0
        if clients is None:
            mean = (prompts[sent] if sent.any() else prompts).mean(0)
            return {"mixture": mean.expand(n_clients, *mean.shape)}
        own, known = prompts[clients].flatten(1).double(), prompts[sent].flatten(1).double()
        if len(known) == 0:
            return {"mixture": prompts[clients]}
        squared = torch.cdist(own, known).square()  # (C, known)
        others = clients[:, None] != sent.nonzero().flatten()
        # Over all pairs: a client's mixture must not depend on the other clients of the call.
        spread = 2 * (known - known.mean(0)).square().sum() / max(len(known) - 1, 1)
        sigma = self.sigma or float(spread) or 1.0
        xi = torch.where(others, self.strength / len(known) * torch.exp(-squared / sigma), 0.0)
        mixture = xi @ known + (1 - xi.sum(1, keepdim=True)) * own
        return {"mixture": mixture.to(prompts.dtype).view(-1, *prompts.shape[1:])}

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Store the sent prompts."""
        prompts, sent = server["prompts"].clone(), server["sent"].clone()
        prompts[clients] = uploads["prompt"].to(prompts.dtype)
        sent[clients] = 1
        return {"prompts": prompts, "sent": sent}
