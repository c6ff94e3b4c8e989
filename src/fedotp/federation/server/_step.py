"""The server's optimizer, applied to the average of a round.

With x_t the server's parameters and x' the result of the method's `aggregate`, Delta_t = x' - x_t is the
pseudo-gradient of the round. The next x_{t+1} is, by name,

    average    x'                                 FedAvg: Eq. 4, without state
    momentum   x_t + eta m_t                      FedAvgM [1]
               m_t = beta m_{t-1} + Delta_t
    adam       x_t + eta m_t / (sqrt(v_t) + tau)  FedAdam [2]
               m_t = beta_1 m_{t-1} + (1 - beta_1) Delta_t
               v_t = beta_2 v_{t-1} + (1 - beta_2) Delta_t^2
    yogi       like adam, with                    FedYogi [2]
               v_t = v_{t-1} - (1 - beta_2) Delta_t^2 sign(v_{t-1} - Delta_t^2)

starting from m = 0 and v = tau^2, the minimum in [2] (Algorithm 2). [1] has eta = 1. As in [2], there is no bias
correction. Flower's strategies differ: their v starts from 0, and FedAdam's eta is multiplied by
sqrt(1 - beta_2^(t+1)) / (1 - beta_1^(t+1)) in round t = 1, 2, ...; FedAvgM is the same, and equals torch.optim.SGD.

[1] Hsu, Qi, Brown: Measuring the effects of non-identical data distribution for federated visual classification, 2019.
[2] Reddi et al.: Adaptive federated optimization, ICLR 2021.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from fedotp.federation._settings import ServerStepSettings
from fedotp.methods import Parameters

_REMEMBERED: dict[str, tuple[str, ...]] = {
    "average": (),
    "momentum": ("momentum",),
    "adam": ("first", "second"),
    "yogi": ("first", "second"),
}


class ServerStep:
    """The server's optimizer.

    `state` is kept from round to round, in float64, with names of kind and parameter ("momentum.shared"). A round
    without an average makes no step.

    Examples:
        >>> step = ServerStep(ServerStepSettings("momentum", momentum=0.5))
        >>> server = {"prompt": torch.tensor([1.0])}
        >>> for _ in range(2):
        ...     server = step(server, {"prompt": server["prompt"] + 1}, ["prompt"])
        >>> server["prompt"], step.state["momentum.prompt"]
        (tensor([3.5000]), tensor([1.5000], dtype=torch.float64))
    """

    def __init__(self, settings: ServerStepSettings) -> None:
        self.settings = settings
        self.state: Parameters = {}

    @torch.no_grad()
    def __call__(self, server: Parameters, aggregated: Parameters, uploaded: Collection[str]) -> Parameters:
        """Return the server's next parameters from its current ones and the `aggregated` ones of the `uploaded` names.

        The step applies to averaged parameters: floating-point ones that both clients and server have by the same name.
        Others, such as the clients' prompts at FedAMP's server, are taken from `aggregated`.
        """
        if self.settings.name == "average":
            return aggregated
        averaged = [name for name, value in server.items() if name in uploaded and value.is_floating_point()]
        return {**aggregated, **{name: self._stepped(name, server[name], aggregated[name]) for name in averaged}}

    def fits(self, state: Parameters, server: Parameters) -> bool:
        """True if this optimizer can continue from `state` on these parameters."""
        shapes = {
            f"{kind}.{name}": value.shape for name, value in server.items() for kind in _REMEMBERED[self.settings.name]
        }
        return all(shapes.get(name) == value.shape and value.dtype == torch.float64 for name, value in state.items())

    def _stepped(self, name: str, x: Tensor, average: Tensor) -> Tensor:
        delta = average.double() - x.double()
        if self.settings.name == "momentum":
            momentum = self._remembered("momentum", name, delta, 0.0)
            direction = self._remember("momentum", name, self.settings.momentum * momentum + delta)
        else:
            direction = self._adaptive(name, delta)
        return (x.double() + self.settings.lr * direction).to(x.dtype)

    def _adaptive(self, name: str, delta: Tensor) -> Tensor:
        beta1, beta2, tau = self.settings.beta1, self.settings.beta2, self.settings.epsilon
        first = self._remembered("first", name, delta, 0.0)
        second = self._remembered("second", name, delta, tau**2)
        square = delta.square()
        first = beta1 * first + (1 - beta1) * delta
        if self.settings.name == "adam":
            second = beta2 * second + (1 - beta2) * square
        else:
            second = second - (1 - beta2) * square * torch.sign(second - square)
        return self._remember("first", name, first) / (self._remember("second", name, second).sqrt() + tau)

    def _remembered(self, kind: str, name: str, like: Tensor, start: float) -> Tensor:
        return self.state.get(f"{kind}.{name}", torch.full_like(like, start))

    def _remember(self, kind: str, name: str, value: Tensor) -> Tensor:
        self.state[f"{kind}.{name}"] = value
        return value
