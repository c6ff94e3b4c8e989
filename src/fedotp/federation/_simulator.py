"""A whole federation on one machine: rounds of sampling, local training and aggregation (Algorithm 2)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fedotp.federation._data import FederatedData
from fedotp.federation._evaluate import Predictions, predict
from fedotp.federation._groups import group_size
from fedotp.federation._kept import KeptRows
from fedotp.federation._local import LocalResult, LocalTrainer, LocalWork, OnImages
from fedotp.federation._optimizer import fresh_state, learning_rate
from fedotp.federation._random import Ints, draws, order
from fedotp.federation._sampling import held_out, sampled, survivors
from fedotp.federation._settings import Settings
from fedotp.methods import Method, Parameters, Task

_OPTIMIZER = "optimizer."  # prefix of what a client keeps of its optimizer


@dataclass(frozen=True, eq=False)
class RoundReport:
    """What happened in a round, counted from 1.

    `sampled` clients were asked, `answered` sent an update; `loss` (answered,) are their mean objectives, `examples`
    their numbers of images. Bytes are those of all messages down to and up from the clients.
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

    @property
    def mean_loss(self) -> float:
        """Mean objective, clients weighted by examples; nan where nobody answered."""
        return float(np.average(self.loss, weights=self.examples)) if len(self.loss) else float("nan")


class Simulator:
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
        self.method = method
        self.task = task
        self.data = data
        self.settings = settings
        self.trainer = LocalTrainer(method, task, data, settings)
        self.device = self.trainer.device
        self.round = 0
        self.server = method.shared(task, len(data))
        private = method.private(task)
        self.private_names = frozenset(private)
        kept = {**private, **({} if settings.optimizer.reset else self._optimizer_state(private))}
        self.kept = make_kept(kept, len(data))
        self.held_out = held_out(settings.federation, len(data), settings.seed)
        with_images = np.flatnonzero(data.train.sizes(np.arange(len(data))) > 0)
        self.members = np.setdiff1d(with_images, self.held_out)
        n_prompts = sum(map(len, private.values())) + sum(value.shape[1] for value in self._messages().values())
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
        lr = learning_rate(self.settings.optimizer, self.round, rounds.rounds)
        work = LocalWork(answering, self.round, rounds.local_epochs, lr, self.round * rounds.local_epochs)
        uploads: list[Parameters] = []
        losses: list[torch.Tensor] = []
        n_images = 0
        for clients, result in self._train(work, on_images):
            uploads.append(self.method.upload(result.params, self.private_names))
            self._keep(clients, result)
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
            lr=lr,
            bytes_down=len(asked) * message_bytes(self._messages()),
            bytes_up=message_bytes(sent),
            n_images=n_images,
            seconds=time.perf_counter() - start,
        )

    def _train(
        self, work: LocalWork, on_images: OnImages | None = None, *, new: bool = False
    ) -> Iterator[tuple[Ints, LocalResult]]:
        """Train the clients of `work` in groups that fit; `new` clients start from the initial private parameters."""
        todo = work.clients
        while len(todo):
            clients = todo[: self.group_size]
            try:
                received = self._received(clients, new=new)
                kept = self.kept.read(clients, self.device, initial=new)
                private = {name: kept[name] for name in self.private_names}
                state = {name.removeprefix(_OPTIMIZER): kept[name] for name in kept if name.startswith(_OPTIMIZER)}
                group = LocalWork(**{**vars(work), "clients": clients})
                result = self.trainer.train(group, received, private, state or None, on_images)
            except torch.OutOfMemoryError:
                if len(clients) == 1:
                    raise
                self.group_size = len(clients) // 2  # the estimate was too high: smaller groups from here on
                continue
            yield clients, result
            todo = todo[len(clients) :]

    # Evaluation --------------------------------------------------------------------------------------------

    def predict(self, clients: Ints | None = None, on_images: OnImages | None = None) -> Predictions:
        """What `clients` (all that took part in training, if not given) predict for their test images."""
        clients = np.setdiff1d(np.arange(len(self.data)), self.held_out) if clients is None else clients
        parts = []
        if epochs := self._finetune_epochs():
            work = LocalWork(clients, self.round, epochs, self.settings.optimizer.lr, purpose="finetune")
            for group, result in self._train(work):
                parts.append(self._predict(group, result.params, on_images))
        else:
            for start in range(0, len(clients), self.group_size):
                group = clients[start : start + self.group_size]
                parts.append(self._predict(group, self.parameters(group), on_images))
        return Predictions.join(parts)

    def drawn_for_evaluation(self) -> Ints | None:
        """The clients evaluated after this round; None for all."""
        k = self.settings.evaluation.clients
        everyone = np.setdiff1d(np.arange(len(self.data)), self.held_out)
        everyone = everyone[self.data.test.sizes(everyone) > 0]
        if not 0 < k < len(everyone):
            return None
        rng = draws(self.settings.seed, "evaluate", self.round)
        return np.sort(everyone[order(rng, len(everyone))[:k]])

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
        for group, result in self._train(work, on_images, new=True):
            self._keep(group, result)
            parts.append(self._predict(group, result.params, on_images))
        return Predictions.join(parts)

    def predict_new(self, clients: Ints) -> Predictions:
        """What clients new to the federation predict before they have trained anything."""
        return self._predict(clients, self.parameters(clients, new=True), None)

    def parameters(self, clients: Ints, *, new: bool = False) -> Parameters:
        """What `clients` (C,) predict with: (C, ...); `new` ones have not trained anything yet."""
        kept = self.kept.read(clients, self.device, initial=new)
        private = {name: kept[name] for name in self.private_names}
        return self.method.deployed(self._received(clients, new=new), private)

    def _predict(self, clients: Ints, params: Parameters, on_images: OnImages | None) -> Predictions:
        predictions = predict(self.method, self.task, self.data, clients, params, self.settings)
        if on_images:
            on_images(len(predictions.row))
        return predictions

    # Messages ----------------------------------------------------------------------------------------------

    def _received(self, clients: Ints, *, new: bool = False) -> Parameters:
        numbers = None if new else torch.from_numpy(clients).to(self.device)
        return self.method.send(self.server, numbers, len(clients))

    def _messages(self) -> Parameters:
        """What one client is sent, with a client axis of 1."""
        return self._received(np.zeros(1, np.int64))

    def _optimizer_state(self, private: Parameters) -> Parameters:
        """What one client keeps of its optimizer, before the first step."""
        params = self.method.start(self._messages(), {name: value[None] for name, value in private.items()})
        state = fresh_state(self.settings.optimizer, {name: value[0] for name, value in params.items()})
        state["steps"] = torch.zeros((), device=self.device)
        return {f"{_OPTIMIZER}{name}": value for name, value in state.items()}

    def _keep(self, clients: Ints, result: LocalResult) -> None:
        """Let clients keep what is theirs: private parameters and, if it goes on, their optimizer."""
        rows = {name: result.params[name] for name in self.private_names}
        if not self.settings.optimizer.reset:
            # A client that joins has trained some parameters only; the optimizer of the others is still fresh.
            fresh = self.kept.read(clients, self.device, initial=True)
            rows = fresh | rows | {f"{_OPTIMIZER}{name}": value for name, value in result.optimizer.items()}
        self.kept.write(clients, rows)

    def _finetune_epochs(self) -> int:
        epochs = self.method.finetune_epochs
        return self.settings.federation.local_epochs if epochs is None else epochs


def message_bytes(message: Parameters) -> int:
    """Bytes of the tensors of a message."""
    return sum(value.numel() * value.element_size() for value in message.values())
