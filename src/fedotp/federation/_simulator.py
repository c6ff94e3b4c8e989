"""A whole federation on one machine: rounds of sampling, local training and aggregation (Algorithm 2)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedotp.federation._clients import Clients
from fedotp.federation._data import FederatedData
from fedotp.federation._evaluate import Predictions
from fedotp.federation._groups import group_size
from fedotp.federation._kept import KeptRows
from fedotp.federation._local import LocalWork, OnImages
from fedotp.federation._random import Ints
from fedotp.federation._sampling import drawn_for_evaluation, held_out, sampled, survivors
from fedotp.federation._settings import Settings
from fedotp.methods import Method, Parameters, Task


@dataclass(frozen=True, eq=False)
class RoundReport:
    """What happened in a round, counted from 1.

    `sampled` clients were asked, `answered` sent an update; `loss` (answered,) are their mean objectives, `examples`
    their numbers of images. Bytes are those of all messages down to and up from the clients. `faults` says, by the
    client's name, why an update is missing, `shortened` what was cut off one; the simulator leaves both empty.
    """

    round: int
    sampled: Ints
    answered: Ints
    loss: np.ndarray
    examples: Ints
    lr: float
    bytes_down: int
    bytes_up: int
    n_images: int
    seconds: float
    faults: Mapping[str, str] = field(default_factory=dict)
    shortened: Mapping[str, str] = field(default_factory=dict)

    @property
    def mean_loss(self) -> float:
        """Mean objective, clients weighted by examples; nan where nobody told it."""
        told = np.isfinite(self.loss)
        return float(np.average(self.loss[told], weights=self.examples[told])) if told.any() else float("nan")


class Simulator(Clients):
    """The server and all clients of a federation.

    Example:
        >>> simulator = Simulator(FedOTP(), task, data, Settings())   # doctest: +SKIP
        >>> for _ in range(10):                                       # doctest: +SKIP
        ...     simulator.run_round()
        >>> predictions = simulator.predict()                         # doctest: +SKIP
    """

    def __init__(
        self,
        method: Method,
        task: Task,
        data: FederatedData,
        settings: Settings,
        *,
        make_kept: Callable[[Parameters, int], KeptRows] = KeptRows,
    ) -> None:
        """A federation before its first round; `make_kept` says where clients keep what is theirs."""
        self.server = method.shared(task, len(data))
        super().__init__(method, task, data, settings, make_kept=make_kept)
        self.held_out = held_out(settings.federation, len(data), settings.seed)
        with_images = np.flatnonzero(data.train.sizes(np.arange(len(data))) > 0)
        self.members = np.setdiff1d(with_images, self.held_out)
        n_private = sum(map(len, method.private(task).values()))
        n_prompts = n_private + sum(value.shape[1] for value in self._messages().values())
        self.group_size = group_size(method, task, settings, max(n_prompts, 2))

    @property
    def learns(self) -> bool:
        """Whether the method has anything to train."""
        return bool(self.server) or bool(self.private_names)

    # Rounds ------------------------------------------------------------------------------------------------

    def run_round(self, on_images: OnImages | None = None) -> RoundReport:
        """One communication round: sample, train, aggregate."""
        start = time.perf_counter()
        rounds = self.settings.federation
        asked = sampled(rounds, self.members, self.round, self.settings.seed)
        answering = survivors(rounds, asked, self.round, self.settings.seed)
        work = self.round_work(answering)
        uploads: list[Parameters] = []
        losses: list[torch.Tensor] = []
        n_images = 0
        for clients, result in self.train(work, on_images):
            uploads.append(self.method.upload(result.params, self.private_names))
            self.keep(clients, result)
            losses.append(result.loss)
            n_images += result.n_images
        sent = {name: torch.cat([part[name] for part in uploads]) for name in uploads[0]} if uploads else {}
        examples = self.data.train.sizes(answering)
        if sent and len(answering) >= rounds.min_clients:
            numbers, weights = (torch.from_numpy(x).to(self.device) for x in (answering, examples))
            self.server = self.method.aggregate(self.server, numbers, sent, weights)
        self.round += 1
        return RoundReport(
            round=self.round,
            sampled=asked,
            answered=answering,
            loss=torch.cat(losses).cpu().numpy() if losses else np.empty(0),
            examples=examples,
            lr=work.lr,
            bytes_down=len(asked) * message_bytes(self._messages()),
            bytes_up=message_bytes(sent),
            n_images=n_images,
            seconds=time.perf_counter() - start,
        )

    # Evaluation --------------------------------------------------------------------------------------------

    def predict(self, clients: Ints | None = None, on_images: OnImages | None = None) -> Predictions:
        """What `clients` (all that took part in training, if not given) predict for their test images."""
        clients = np.setdiff1d(np.arange(len(self.data)), self.held_out) if clients is None else clients
        return super().predict(clients, on_images)

    def drawn_for_evaluation(self) -> Ints | None:
        """The clients evaluated after this round; None for all."""
        everyone = np.setdiff1d(np.arange(len(self.data)), self.held_out)
        everyone = everyone[self.data.test.sizes(everyone) > 0]
        return drawn_for_evaluation(self.settings.evaluation, everyone, self.round, self.settings.seed)

    def join(self, clients: Ints, on_images: OnImages | None = None) -> Predictions:
        """Fit the private parameters of clients new to the federation, the shared ones frozen, and predict.

        The server learns nothing of them. A method without private parameters predicts with what it is sent.
        """
        rounds = self.settings.federation
        if self.private_names:
            epochs, frozen = rounds.join_epochs or max(rounds.rounds, 1) * rounds.local_epochs, frozenset(self.server)
        else:
            epochs, frozen = self._finetune_epochs(), frozenset[str]()
        work = LocalWork(clients, self.round, epochs, self.settings.optimizer.lr, purpose="join", frozen=frozen)
        parts = []
        for group, result in self.train(work, on_images, new=True):
            self.keep(group, result)
            parts.append(self.predict_with(group, result.params, on_images))
        return Predictions.join(parts)

    # Messages ----------------------------------------------------------------------------------------------

    def _received(self, clients: Ints, *, new: bool = False) -> Parameters:
        numbers = None if new else torch.from_numpy(clients).to(self.device)
        return self.method.send(self.server, numbers, len(clients))

    def _messages(self) -> Parameters:
        """What one client is sent, with a client axis of 1."""
        return self._received(np.zeros(1, np.int64))


def message_bytes(message: Parameters) -> int:
    """Bytes of the tensors of a message."""
    return sum(value.numel() * value.element_size() for value in message.values())
