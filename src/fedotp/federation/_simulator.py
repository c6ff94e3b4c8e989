"""Simulation of a federation on one machine: rounds of sampling, local training and aggregation (Algorithm 2)."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedotp._system import own_seconds
from fedotp.errors import FedotpError
from fedotp.federation._checkpoint import Checkpoint
from fedotp.federation._data import Backdoor, FederatedData, Images, Novel, OnImages
from fedotp.federation._hardware import group_size, n_fitting
from fedotp.federation._progress import Progress, RoundReport
from fedotp.federation._sampling import Ints, draws
from fedotp.federation._settings import Settings
from fedotp.federation.clients import Attack, Clients, LocalWork
from fedotp.federation.server import Accountant, Server, Updates
from fedotp.federation.testing import GLOBAL, PERSONAL, ZERO_SHOT, Evaluation, ModelTests, Predictions, View
from fedotp.methods import Method, Parameters, Task, ZeroShot
from fedotp.privacy import Canaries, noisy_average


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
        backdoor: Backdoor | None = None,
        kept_in: Path | None = None,
    ) -> None:
        """Create a federation; clients' private parameters are in the file `kept_in`, by default in memory.

        `novel` are images of novel classes, for the view "novel"; `backdoor` are the images of attackers.
        """
        settings = settings.of(method)
        rounds, seed = settings.federation, settings.seed
        absent = rounds.absent(data.names)
        data = data.without(absent) if len(absent) else data
        self.held_out = rounds.held_out(data.names, data.domains, seed)
        self.trained = np.setdiff1d(np.arange(len(data)), np.union1d(self.held_out, absent))
        self.members = self.trained[data.train.sizes(self.trained) > 0]
        self.attack = Attack(settings.attack, self.members, absent, seed)
        self.honest = np.setdiff1d(self.trained, self.attack.clients)
        data = self.attack.on_data(data, backdoor)
        release = self._release if settings.privacy.unit == "site" else None
        self.server = Server(method, task, settings, len(data), len(self.members), release=release)
        if settings.attack.name != "none":
            self.server.require_average(f'attack.name = "{settings.attack.name}": must be "none"')
        super().__init__(method, task, data, settings, kept_in=kept_in)
        self.group_size = group_size(method, task, settings)
        self.n_fitting = n_fitting(method, task, settings)
        self.tests = ModelTests(
            method,
            self.task,
            data,
            settings,
            held_out=self.held_out,
            trained=self.trained,
            novel=novel,
            backdoor=backdoor,
        )
        self.testers |= self.tests.testers
        self._accountant = Accountant(
            self.settings, data.names, data.train.sizes(np.arange(len(data))), lambda n: self._who_trains(n)[1]
        )
        if (once := self._accountant.epsilon(1)) is not None:
            settings.privacy.require_room(once)

    # Interface of runs (`Federation` in runs/one/_loop.py) ----------------------------------------------------

    @property
    def learns(self) -> bool:
        return bool(self.server.params) or bool(self.private_names)

    @property
    def names(self) -> tuple[str, ...]:
        return self.data.names

    @property
    def domains(self) -> tuple[str | None, ...]:
        return self.data.domains

    @property
    def clients_per_round(self) -> int:
        """Number of clients sampled in a round after the first."""
        return self.settings.federation.n_sampled(len(self.members))

    @property
    def images_per_round(self) -> int:
        """Expected number of training images of a round, over all epochs."""
        rounds = self.settings.federation
        return int(rounds.participation * rounds.local_epochs * self.data.train.sizes(self.members).sum())

    def may_go_on(self) -> bool:
        """True if the privacy budget allows another round."""
        return self._accountant.has_room(self.round + 1)

    def save(self, path: Path, progress: Progress) -> None:
        progress.group_size = self.group_size
        Checkpoint.write(path, self, progress)

    def facts(self) -> dict[str, Any]:
        """Return skipped images, views without a result, attackers, and the privacy spent."""
        facts: dict[str, Any] = {"skipped_images": self.data.n_skipped}
        if missing := self.tests.missing:
            facts["missing_views"] = missing
        if malicious := [self.names[client] for client in self.attack.clients]:
            facts["malicious"] = malicious
        if spent := self._accountant.facts(self.round):
            ended = self.round < self.settings.federation.rounds and not self.may_go_on()
            facts["privacy"] = {**spent, **({"ended_the_run": True} if ended else {})}
        return facts

    # Rounds ------------------------------------------------------------------------------------------------

    def run_round(self, on_images: OnImages | None = None) -> RoundReport:
        """Run one communication round: sample, train, aggregate."""
        start = own_seconds()
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
        sent = self.attack.on_updates(self.server.params, answering, sent)
        examples = self.data.train.sizes(answering)
        numbers, weights = (torch.from_numpy(x).to(self.device) for x in (answering, examples))
        accepted = self.server.accept(Updates(numbers, sent, weights), self.round)
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
            averaged=accepted.chosen,
            epsilon=self._accountant.epsilon(self.round),
        )

    def _release(self, params: Parameters, updates: Sequence[Parameters], n: int, round_: int) -> Parameters:
        """Average updates, n of them expected, with differential privacy for every client."""
        chance = draws(self.settings.seed, "release", round_ - 1)
        return noisy_average(params, updates, n, self.settings.privacy, chance, self._canaries)

    def plant(self, n: int) -> Canaries:
        """Plant n canaries before the first round, to audit the privacy; used by `fedotp.audit`."""
        canaries = Canaries(n, self.members, self.settings.privacy, partial(draws, self.settings.seed, "canaries", 0))
        if self.settings.privacy.unit == "site":
            self._canaries = canaries
        else:
            self.trainer.plant(canaries)
        return canaries

    def _who_trains(self, round_: int) -> tuple[Ints, Ints]:
        """Return the clients asked in a round, and those that answer."""
        rounds, seed = self.settings.federation, self.settings.seed
        asked = rounds.sampled(self.members, round_, seed)
        return asked, rounds.survivors(asked, round_, seed)

    def _last_trained(self) -> int | None:
        before = (self._who_trains(round_)[1] for round_ in reversed(range(self.round)))
        return next((int(answering[-1]) for answering in before if len(answering)), None)

    # Evaluation --------------------------------------------------------------------------------------------

    def predict(self, clients: Ints | None = None, on_images: OnImages | None = None) -> Predictions:
        """Predict the test images of `clients`, by default of all honest ones that participated in training."""
        return super().predict(self.honest if clients is None else clients, on_images)

    def evaluate(self, *, everyone: bool = True) -> tuple[Evaluation, Predictions]:
        """Evaluate all clients that participated in training, or those drawn for or sampled in this round."""
        whole = everyone and not self.task.authors.evaluate_sampled
        predictions = self.predict(None if whole else self.drawn_for_evaluation())
        if not len(predictions.row):
            raise FedotpError("cannot evaluate: no training client has a test image; use a different partition")
        return self._count(predictions), predictions

    def see(self, *, everyone: bool = True) -> list[View]:
        """Evaluate the requested views of all clients that participated in training, or of those drawn for this round.

        The clients' own tests are in `evaluate`; held-out clients have not joined yet.
        """
        drawn = None if everyone else self.drawn_for_evaluation()
        return self.tests.see(self, self.honest if drawn is None else drawn)

    def controls(self, clients: Ints) -> dict[str, Evaluation]:
        """Evaluate the controls, and the method with the class prior, on the test images of `clients` (C,)."""
        return self.tests.control_evaluations(self, clients)

    def judge(self, clients: Ints, images: Images) -> dict[str, Predictions]:
        """Return the predictions of each model, by name, for the `images` of `clients` (C,), by client and row."""
        return self.tests.judge(self, clients, images)

    def deployed(self, clients: Ints, *, new: bool = False, model: str = PERSONAL) -> Iterator[tuple[Ints, Parameters]]:
        """Yield, in groups that fit into memory, the parameters (C, ...) with which `clients` predict under `model`."""
        if model == PERSONAL:
            yield from super().deployed(clients, new=new)
            return
        method = ZeroShot() if model == ZERO_SHOT else self.method.global_part
        assert method is not None
        for start in range(0, len(clients), self.group_size):
            group = clients[start : start + self.group_size]
            received = self.server.send(None, len(group)) if model == GLOBAL else {}
            yield group, method.deployed(received, {})

    def join_held_out(self, on_images: OnImages | None = None) -> tuple[Evaluation, Predictions] | None:
        """Let the held-out clients join and evaluate them; return None if there are none."""
        if not len(self.held_out):
            return None
        predictions = self.join(self.held_out, on_images)
        return self._count(predictions), predictions

    def _count(self, predictions: Predictions) -> Evaluation:
        return Evaluation.of(predictions, len(self.task.classes), self.domains)

    def drawn_for_evaluation(self) -> Ints | None:
        """Return the clients evaluated after this round; None for all."""
        everyone = self.honest[self.data.test.sizes(self.honest) > 0]
        if self.task.authors.evaluate_sampled:
            return np.intersect1d(everyone, self._who_trains(self.round - 1)[0]) if self.round else None
        return self.settings.evaluation.drawn(everyone, self.round, self.settings.seed)

    def join(self, clients: Ints, on_images: OnImages | None = None) -> Predictions:
        """Fit the private parameters of new clients, with shared ones frozen and nothing sent, and predict.

        A method without private parameters predicts with the shared ones.
        """
        rounds = self.settings.federation
        if self.private_names:
            epochs = rounds.join_epochs or max(rounds.rounds, 1) * rounds.local_epochs
            frozen = frozenset(self._messages())
        else:
            epochs, frozen = self.finetune_epochs(), frozenset[str]()
        work = LocalWork(clients, self.round, epochs, self.settings.optimizer.rate, purpose="join", frozen=frozen)
        parts = []
        for group, result in self.train(work, on_images, new=True):
            self.keep(group, result, sent=False)
            parts.append(self.predict_with(group, result.params, on_images))
        return Predictions.join(parts)

    # Messages ----------------------------------------------------------------------------------------------

    def _received(self, clients: Ints, *, new: bool = False) -> Parameters:
        return self.server.send(None if new else torch.from_numpy(clients).to(self.device), len(clients))

    def _messages(self) -> Parameters:
        """Return the message to one client, with a client axis of 1."""
        return self._received(np.zeros(1, np.int64))


def message_bytes(message: Parameters) -> int:
    """Return the size of a message's tensors in bytes."""
    return sum(value.numel() * value.element_size() for value in message.values())
