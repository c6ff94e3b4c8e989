"""A whole federation on one machine: rounds of sampling, local training and aggregation (Algorithm 2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedotp._system import own_seconds
from fedotp.errors import FedotpError
from fedotp.federation._attack import Attack, Trap
from fedotp.federation._canaries import Canaries
from fedotp.federation._checkpoint import save_checkpoint
from fedotp.federation._clients import Clients
from fedotp.federation._controls import GLOBAL_PART, MAJORITY, accuracy_of, control_testers, majority_accuracy
from fedotp.federation._data import FederatedData
from fedotp.federation._evaluation import Evaluation, Predictions, evaluate_predictions
from fedotp.federation._hardware import group_size, n_fitting
from fedotp.federation._kept import KeptRows
from fedotp.federation._local import LocalWork, OnImages
from fedotp.federation._metrics import Floats
from fedotp.federation._progress import Progress
from fedotp.federation._random import Ints, draws
from fedotp.federation._rule import Rule, Updates
from fedotp.federation._sampling import absent, drawn_for_evaluation, held_out, n_sampled, sampled, survivors
from fedotp.federation._server_step import ServerStep
from fedotp.federation._settings import Settings
from fedotp.federation._spent import Spent, require_average
from fedotp.federation._views import Novel, View, Views
from fedotp.methods import Method, Parameters, Task
from fedotp.privacy import noisy_average


@dataclass(frozen=True, eq=False)
class RoundReport:
    """What happened in a round, counted from 1.

    `sampled` clients were asked, `answered` sent an update; `loss` (answered,) are their mean objectives, `examples`
    their numbers of images. Bytes are those of all messages down to and up from the clients. `faults` says, by the
    client's name, why an update is missing, `shortened` what was cut off one; the simulator leaves both empty.
    `averaged` are, under a robust rule that chooses among updates, those whose it took; None under others.
    `epsilon` is the privacy spent so far, of who has spent most, where some is promised.
    `known_loss` is the mean objective where nobody knows those of single clients.
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
    averaged: Ints | None = None
    epsilon: float | None = None
    known_loss: float | None = None

    @property
    def mean_loss(self) -> float:
        """Mean objective, clients weighted by examples; nan where nobody told it."""
        if self.known_loss is not None:
            return self.known_loss
        told = np.isfinite(self.loss)
        return float(np.average(self.loss[told], weights=self.examples[told])) if told.any() else float("nan")

    @property
    def spent(self) -> str:
        """The privacy spent so far, to go on a line; nothing where none is promised."""
        return "" if self.epsilon is None else f", epsilon {self.epsilon:.2f}"


class Simulator(Clients):
    """The server and all clients of a federation.

    Examples:
        >>> simulator = Simulator(FedOTP(), task, data, Settings())   # doctest: +SKIP
        >>> for _ in range(10):                                       # doctest: +SKIP
        ...     simulator.run_round()
        >>> predictions = simulator.predict()                         # doctest: +SKIP
    """

    _canaries: Canaries | None = None  # sites of an audit

    def __init__(
        self,
        method: Method,
        task: Task,
        data: FederatedData,
        settings: Settings,
        *,
        novel: Novel | None = None,
        trap: Trap | None = None,
        make_kept: Callable[[Parameters, int], KeptRows] = KeptRows,
    ) -> None:
        """A federation before its first round; `make_kept` says where clients keep what is theirs.

        `novel` are images of other classes, for the view of that name; `trap` is what attackers need of images.
        """
        away = absent(settings.federation, data.names)
        data = data.without(away) if len(away) else data
        self.held_out = held_out(settings.federation, data.names, data.domains, settings.seed)
        self.trained = np.setdiff1d(np.arange(len(data)), np.union1d(self.held_out, away))
        self.members = self.trained[data.train.sizes(self.trained) > 0]
        # Who attacks does so whoever else is there: they are drawn among the absent, too.
        self.attack = Attack(settings.attack, method, task, np.union1d(self.members, away), settings.seed)
        self.attack.clients = np.intersect1d(self.attack.clients, self.members)
        self.honest = np.setdiff1d(self.trained, self.attack.clients)
        data = self.attack.on_data(data, trap, settings.seed)
        self.server = method.shared(task, len(data))
        self.rule, self.step = Rule(settings.server), ServerStep(settings.server)
        super().__init__(method, task, data, settings, make_kept=make_kept)
        self.rule.require(method, self.task, self.clients_per_round)
        self.group_size = group_size(method, task, settings)
        self.n_fitting = n_fitting(method, task, settings)
        self.views = Views(
            method, self.task, data, settings, held_out=self.held_out, absent=away, novel=novel, trap=trap
        )
        self._spent = Spent(settings, data.names, data.train.sizes(np.arange(len(data))), self._who_answers)
        self._spent.require_room()
        if settings.privacy.unit == "site":
            require_average(method, task, self.rule)
        self._controls = control_testers(method, self.task, data, settings)
        self.testers |= self.views.testers | self._controls

    # What a run wants to know (`Federation` in runs/one/_loop.py) ---------------------------------------------

    @property
    def learns(self) -> bool:
        """Whether the method has anything to train."""
        return bool(self.server) or bool(self.private_names)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names."""
        return self.data.names

    @property
    def domains(self) -> tuple[str | None, ...]:
        """The clients' domains, None where mixed."""
        return self.data.domains

    @property
    def clients_per_round(self) -> int:
        """How many are asked in a round, the first one apart."""
        return n_sampled(self.settings.federation, len(self.members))

    @property
    def images_per_round(self) -> int:
        """Of the members' images, those of the share that takes part, in every epoch."""
        rounds = self.settings.federation
        return int(rounds.participation * rounds.local_epochs * self.data.train.sizes(self.members).sum())

    def may_go_on(self) -> bool:
        """Whether the privacy budget has room for another round."""
        return self._spent.has_room(self.round + 1)

    def save(self, path: Path, progress: Progress) -> None:
        """Write a checkpoint."""
        progress.group_size = self.group_size
        save_checkpoint(path, self, progress)

    def facts(self) -> dict[str, Any]:
        """Images that could not be read, views there can be no number of, who attacked, and the privacy spent."""
        facts: dict[str, Any] = {"skipped_images": self.data.n_skipped}
        if missing := self.views.missing:
            facts["missing_views"] = missing
        if malicious := [self.names[client] for client in self.attack.clients]:
            facts["malicious"] = malicious
        if spent := self._spent.facts(self.round):
            ended = self.round < self.settings.federation.rounds and not self.may_go_on()
            facts["privacy"] = {**spent, **({"ended_the_run": True} if ended else {})}
        return facts

    # Rounds ------------------------------------------------------------------------------------------------

    def run_round(self, on_images: OnImages | None = None) -> RoundReport:
        """One communication round: sample, train, aggregate."""
        start = own_seconds()
        rounds = self.settings.federation
        asked, answering = self._who_trains(self.round)
        work, lr = self.round_work(answering), self.lr
        uploads: list[Parameters] = []
        losses: list[torch.Tensor] = []
        n_images = 0
        for clients, result in self.train(work, on_images):
            uploads.append(self.upload(clients, result))
            self.keep(clients, result)
            losses.append(result.loss)
            n_images += result.n_images
        sent = {name: torch.cat([part[name] for part in uploads]) for name in uploads[0]} if uploads else {}
        sent = self.attack.on_updates(self.server, answering, sent)
        examples = self.data.train.sizes(answering)
        averaged: Updates | None = None
        if sent and len(answering) >= rounds.min_clients and self.settings.privacy.unit == "site":
            self.server = self.step(self.server, self._released(sent), sent)
        elif sent and len(answering) >= rounds.min_clients:
            numbers, weights = (torch.from_numpy(x).to(self.device) for x in (answering, examples))
            averaged = self.rule(self.server, Updates(numbers, self._as_learned(sent), weights))
        if averaged is not None:
            aggregated = self.method.aggregate(self.server, *averaged)
            aggregated = {name: value.to(self.server.get(name, value).dtype) for name, value in aggregated.items()}
            self.server = self.step(self.server, aggregated, sent)
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
            seconds=own_seconds() - start,
            averaged=self.rule.chosen_of(averaged),
            epsilon=self._spent.epsilon(self.round),
        )

    def _released(self, sent: Parameters) -> Parameters:
        """The average of what clients sent (C, ...), made private for every one of them."""
        rounds, privacy = self.settings.federation, self.settings.privacy
        everyone = self.round == 0 and rounds.first_round == "all"
        updates = [dict(zip(sent, values, strict=True)) for values in zip(*sent.values(), strict=True)]
        n = len(self.members) if everyone else self.clients_per_round
        chance = draws(self.settings.seed, "release", self.round)
        planted = self._canaries.updates(self.server) if self._canaries else []
        released = noisy_average(
            self.server, [*updates, *planted], n, clip=privacy.clip, noise=privacy.noise, chance=chance
        )
        if self._canaries:
            without = noisy_average(self.server, updates, n, clip=privacy.clip, noise=0.0, chance=chance)
            self._canaries.see_average(released, without, n)
        return released

    def plant(self, n: int) -> Canaries:
        """Put n canaries into what is made private, to audit it; `fedotp.audit` does, before the first round."""
        canaries = Canaries(n, self.members, self.settings.privacy, self.settings.seed)
        if self.settings.privacy.unit == "site":
            self._canaries = canaries
        else:
            self.trainer.plant(canaries)
        return canaries

    def _who_answers(self, round_: int) -> Ints:
        """Those who answer in a round."""
        return self._who_trains(round_)[1]

    def _who_trains(self, round_: int) -> tuple[Ints, Ints]:
        """Those asked in a round, and those of them who answer."""
        rounds, seed = self.settings.federation, self.settings.seed
        asked = sampled(rounds, self.members, round_, seed)
        return asked, survivors(rounds, asked, round_, seed)

    def _last_trained(self) -> int | None:
        before = (self._who_trains(round_)[1] for round_ in reversed(range(self.round)))
        return next((int(answering[-1]) for answering in before if len(answering)), None)

    # Evaluation --------------------------------------------------------------------------------------------

    def predict(self, clients: Ints | None = None, on_images: OnImages | None = None) -> Predictions:
        """What `clients` (all honest ones that took part in training, if not given) predict for their test images."""
        return super().predict(self.honest if clients is None else clients, on_images)

    def evaluate(self, *, everyone: bool = True) -> tuple[Evaluation, Predictions]:
        """Evaluate all that took part in training, or those drawn for this round, or those it sampled."""
        whole = everyone and not self.task.authors.evaluate_sampled
        predictions = self.predict(None if whole else self.drawn_for_evaluation())
        if not len(predictions.row):
            raise FedotpError(
                "no client that trains has a test image: nothing can be evaluated; divide the data otherwise"
            )
        return self._count(predictions), predictions

    def see(self, *, everyone: bool = True, on_images: OnImages | None = None) -> list[View]:
        """Evaluate the views that are asked for, of all that took part in training or those drawn for this round.

        The clients' own tests are `evaluate`'s; held-out clients have not joined yet.
        """
        drawn = None if everyone else self.drawn_for_evaluation()
        clients = self.honest if drawn is None else drawn
        return self.views.see(self, clients, self.newcomers(1), on_images)

    def controls(self, clients: Ints) -> dict[str, Floats]:
        """How well the controls do on the test images of `clients` (C,), who have some: accuracies (C,) of each."""
        found = {MAJORITY: majority_accuracy(self.data, clients)}
        for name, tester in self._controls.items():
            lines = []
            for start in range(0, len(clients), self.group_size):
                group = clients[start : start + self.group_size]
                received = self._received(group, new=True) if name == GLOBAL_PART else {}
                lines.append(self.predict_with(group, tester.method.deployed(received, {}), test=name))
            found[name] = accuracy_of(Predictions.join(lines), clients)
        return found

    def join_held_out(self, on_images: OnImages | None = None) -> tuple[Evaluation, Predictions] | None:
        """Let the clients join that never trained; None where there are none."""
        if not len(self.held_out):
            return None
        predictions = self.join(self.held_out, on_images)
        return self._count(predictions), predictions

    def _count(self, predictions: Predictions) -> Evaluation:
        return evaluate_predictions(predictions, len(self.task.classes), self.domains)

    def drawn_for_evaluation(self) -> Ints | None:
        """The clients evaluated after this round; None for all."""
        everyone = self.honest[self.data.test.sizes(self.honest) > 0]
        if self.task.authors.evaluate_sampled:
            return np.intersect1d(everyone, self._who_trains(self.round - 1)[0]) if self.round else None
        return drawn_for_evaluation(self.settings.evaluation, everyone, self.round, self.settings.seed)

    def join(self, clients: Ints, on_images: OnImages | None = None) -> Predictions:
        """Fit the private parameters of clients new to the federation, the shared ones frozen, and predict.

        The server learns nothing of them. A method without private parameters predicts with what it is sent.
        """
        rounds = self.settings.federation
        if self.private_names:
            epochs = rounds.join_epochs or max(rounds.rounds, 1) * rounds.local_epochs
            frozen = frozenset(self._messages())
        else:
            epochs, frozen = self._finetune_epochs(), frozenset[str]()
        work = LocalWork(clients, self.round, epochs, self.settings.optimizer.rate, purpose="join", frozen=frozen)
        parts = []
        for group, result in self.train(work, on_images, new=True):
            self.keep(group, result, sent=False)
            parts.append(self.predict_with(group, result.params, on_images))
        return Predictions.join(parts)

    # Messages ----------------------------------------------------------------------------------------------

    def _received(self, clients: Ints, *, new: bool = False) -> Parameters:
        numbers = None if new else torch.from_numpy(clients).to(self.device)
        return self.method.send(self.server, numbers, len(clients))

    def newcomers(self, n: int) -> Parameters:
        """What the server sends to `n` clients that it does not know: (n, ...)."""
        return self._received(np.zeros(n, np.int64), new=True)

    def _as_learned(self, uploads: Parameters) -> Parameters:
        """The uploads in the number format that clients learn in."""
        return {name: value.half() for name, value in uploads.items()} if self.task.authors.half_precision else uploads

    def _messages(self) -> Parameters:
        """What one client is sent, with a client axis of 1."""
        return self._received(np.zeros(1, np.int64))


def message_bytes(message: Parameters) -> int:
    """Bytes of the tensors of a message."""
    return sum(value.numel() * value.element_size() for value in message.values())
