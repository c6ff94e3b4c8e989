"""The server of a real federation: the same rounds as the simulator's, with sites that come, go and fail."""

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import PrivacyBudgetExhausted

from fedotp._text import one_line
from fedotp.config import Config
from fedotp.errors import FedotpError, listed
from fedotp.federation import Evaluation, KeptRows, Predictions, Progress, RoundReport, Settings, save_checkpoint
from fedotp.federation._local import OnImages
from fedotp.federation._optimizer import learning_rate
from fedotp.federation._random import Ints
from fedotp.federation._sampling import drawn_for_evaluation, sampled
from fedotp.flower import _messages as words
from fedotp.flower._answers import Update, checked_update, told_scores
from fedotp.flower._records import from_record, to_record
from fedotp.flower._registry import Member
from fedotp.flower._settings import ServerSettings
from fedotp.flower._strategy import PlainAverage, PromptStrategy, with_privacy
from fedotp.flower._welcome import Welcome
from fedotp.methods import Parameters, Task

log = logging.getLogger("fedotp.server")

_PAUSE = 1.0


class Deployed:
    """A federation of real sites, as a run sees it (`fedotp.runs._loop.Federation`)."""

    def __init__(
        self,
        grid: Grid,
        config: Config,
        task: Task,
        welcome: Welcome,
        settings: ServerSettings,
        *,
        n_sites: int | None = None,
        n_releases: int = 0,
        on_save: Callable[[], object] | None = None,
    ) -> None:
        """The sites of `welcome` have gathered.

        Of a run that goes on, `n_sites` is the number of sites it began with, and `n_releases` how many averages it
        has published. `on_save` is called before each checkpoint.
        """
        self.config = config
        self.method = config.method
        self.welcome = welcome
        self.registry = welcome.registry
        self.round = 0
        self.group_size = 1
        self.device = torch.device("cpu")
        self.n_sites = len(self.registry.members) if n_sites is None else n_sites
        self.server = {name: value.cpu() for name, value in self.method.shared(task, self.n_sites).items()}
        self.kept = KeptRows({}, self.n_sites)  # nothing: what sites keep is at the sites
        self._task = task
        self._grid = grid
        self._deals = settings
        self._on_save = on_save
        self._stopping = False
        if settings.privacy != "none" and (self.method.publishes or not self.server):
            raise FedotpError(f"privacy = {settings.privacy!r}: {self.method.title} has no average to protect this way")
        self._strategy = (PlainAverage if settings.delta else PromptStrategy)(self.method)
        self._wrapped = with_privacy(self._strategy, settings, self.n_sites, n_releases)

    # What a run wants to know ------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """How the federation is run."""
        return self.config.settings

    @property
    def learns(self) -> bool:
        """Whether the method has anything to train, here or at the sites."""
        return bool(self.server) or bool(self.method.private(self._task))

    @property
    def names(self) -> tuple[str, ...]:
        """The sites' names."""
        return self.registry.names

    @property
    def domains(self) -> tuple[str | None, ...]:
        """The sites' domains, as they say themselves."""
        return tuple(member.domain for member in self.registry.members)

    @property
    def images_per_round(self) -> int:
        """Of the ready sites' images, those of the share that takes part, in every epoch."""
        rounds = self.settings.federation
        return int(rounds.participation * rounds.local_epochs * sum(m.train_images for m in self.registry.members))

    def join_held_out(self, on_images: OnImages | None = None) -> None:
        """Nobody is held out: a site that comes later joins by itself."""

    def save(self, path: Path, progress: Progress) -> None:
        """Write a checkpoint: the server's parameters and how far the run has come."""
        if self._on_save:
            self._on_save()
        save_checkpoint(path, self, progress)

    def stop_waiting(self) -> None:
        """Somebody asked to stop: if no site is there, do not wait for one."""
        self._stopping = True

    def facts(self) -> dict[str, Any]:
        """How often each site failed, and the privacy spent."""
        facts: dict[str, Any] = {"faults": {m.name: m.faults for m in self.registry.members if m.faults}}
        spent = getattr(self._wrapped, "privacy_spent", lambda: None)()
        if spent is not None:
            facts["privacy"] = {"epsilon": spent.epsilon, "delta": spent.delta, "releases": spent.num_releases}
        return facts

    # Rounds ------------------------------------------------------------------------------------------------

    def run_round(self, on_images: OnImages | None = None) -> RoundReport:
        """One communication round with those who are there."""
        start = time.perf_counter()
        rounds, seed = self.settings.federation, self.settings.seed
        answers: dict[int, Message] = {}
        while not answers:  # a round that nobody answered has not taken place
            asked, present = self._present(lambda members: sampled(rounds, members, self.round, seed))
            messages = self._messages(present)
            answers = self.welcome.post.exchange(messages, self._deals.round_timeout, self._deals.wait)
            if not answers and self._stopping:
                raise KeyboardInterrupt
            if not answers:
                log.warning("round %d: none of %d sites answered; asking again", self.round + 1, len(present))
        updates, faults = self._updates(present, answers)
        faults |= {self.registry.names[n]: "not connected" for n in asked if self.registry.members[n] not in present}
        for name, why in faults.items():
            log.warning("round %d, site %s: %s", self.round + 1, name, why)
            self.registry.members[self.registry.names.index(name)].faults += 1
        bytes_up = self._aggregate(updates)
        self.round += 1
        for number in updates:
            self.registry.members[number].accepted = self.round
        answered = np.array(sorted(updates), np.int64)
        n_images = sum(update.n_images for update in updates.values())
        if on_images:
            on_images(n_images)
        return RoundReport(
            round=self.round,
            sampled=np.asarray(asked, np.int64),
            answered=answered,
            loss=np.array([updates[n].loss for n in answered]),
            examples=np.array([updates[n].n_examples for n in answered], np.int64),
            lr=learning_rate(self.settings.optimizer, self.round - 1, rounds.rounds),
            bytes_down=sum(_array_bytes(message) for message in messages),
            bytes_up=bytes_up,
            n_images=n_images,
            seconds=time.perf_counter() - start,
            faults=faults,
        )

    def _messages(self, present: list[Member]) -> list[Message]:
        """What the sites that take part are sent to train on."""
        numbers = {member.node: self.registry.number(member) for member in present if member.node is not None}
        self._strategy.ask(self.server, self._orders(present, MessageType.TRAIN), numbers)
        self._expect(len(present))
        try:
            return list(
                self._wrapped.configure_train(self.round + 1, to_record(self.server), ConfigRecord(), self._grid)
            )
        except PrivacyBudgetExhausted as error:
            raise FedotpError(f"{error} Every round so far is written down.") from error

    def _updates(
        self, present: Iterable[Member], answers: dict[int, Message]
    ) -> tuple[dict[int, Update], dict[str, str]]:
        """The updates that are in order, by the site's number, and what is wrong with the others, by its name."""
        updates, faults = {}, {}
        for member in present:
            number = self.registry.number(member)
            reply = answers.get(member.node) if member.node is not None else None
            if reply is None:
                faults[member.name] = f"no answer within {self._deals.round_timeout:g} s"
                continue
            try:
                sent = self._sent_to(number)
                update = checked_update(reply, self._expected_upload(sent), member, self._deals)
            except FedotpError as error:
                faults[member.name] = one_line(error)
                continue
            if update is not None:  # else it had nothing to train on
                updates[number] = update
        return updates, faults

    def _aggregate(self, updates: dict[int, Update]) -> int:
        """The server step; returns how many bytes the sites sent."""
        replies = [update.reply for update in updates.values()]
        n_bytes = sum(_array_bytes(reply) for reply in replies)
        if len(replies) < (fewest := self.settings.federation.min_clients):
            log.warning(
                "round %d: %d updates, fewer than %d: nothing is averaged", self.round + 1, len(replies), fewest
            )
            return n_bytes
        if not self.server:
            return n_bytes
        self._expect(len(replies))
        record, _ = self._wrapped.aggregate_train(self.round + 1, replies)
        if record is not None:
            self.server = from_record(record, self.server)
        return n_bytes

    def _expect(self, n: int) -> None:
        """Tell the privacy wrapper of how many sites the average is: its noise, and its account, must fit."""
        if self._wrapped is not self._strategy:
            self._wrapped.num_sampled_clients = n  # type: ignore[attr-defined]

    # Evaluation --------------------------------------------------------------------------------------------

    def evaluate(self, *, everyone: bool) -> tuple[Evaluation | None, Predictions | None]:
        """What the sites tell of their own tests; at the end, those that have just gone away are awaited."""
        self.welcome.step()
        while everyone and not self._stopping and self.welcome.returning(self.registry.members, self._deals.wait):
            time.sleep(_PAUSE)
            self.welcome.step()
        ready = [n for n, member in enumerate(self.registry.members) if member.state == "ready"]
        tested = np.array([n for n in ready if self.registry.members[n].test_images], np.int64)
        drawn = drawn_for_evaluation(self.settings.evaluation, tested, self.round, self.settings.seed)
        wanted = ready if everyone else tested if drawn is None else drawn  # at the end, all keep their classifier
        present = [self.registry.members[n] for n in wanted]
        messages = self._orders(present, MessageType.EVALUATE)(ConfigRecord({words.LAST: everyone}))
        answers = self.welcome.post.exchange(messages, self._deals.round_timeout, self._deals.wait)
        for member in present:
            if member.node not in answers:
                log.warning("site %s did not say how well it does", member.name)
        replies = {self.registry.number(m): answers[m.node] for m in present if m.node in answers}
        return told_scores(replies, self.registry.members, len(self._task.classes))

    # Messages ----------------------------------------------------------------------------------------------

    def _members(self) -> Ints:
        """Sites that may be asked to train: those that have said that they have images.

        A method whose server keeps every site's own has no place for one that came after the first round.
        """
        members = self.registry.members[: self.n_sites if self.method.publishes else None]
        return np.array([n for n, member in enumerate(members) if member.train_images], np.int64)

    def _present(self, sample: Callable[[Ints], Ints]) -> tuple[Ints, list[Member]]:
        """The sites sampled for this round and those of them that are ready.

        One that has just gone away is awaited. If none of them is ready, others are sampled from those that are; if
        nobody is there, it waits.
        """
        reminded = 0.0
        while True:
            self.welcome.step()
            members = self._members()
            asked = sample(members) if len(members) else members
            ready = np.array([n for n in members if self.registry.members[n].state == "ready"], np.int64)
            awaited = self.welcome.returning((self.registry.members[n] for n in asked), self._deals.wait)
            if len(ready) and not awaited:
                if not np.isin(asked, ready).any():
                    log.warning("round %d: none of the sites drawn is there; drawing among the others", self.round + 1)
                    asked = sample(ready)
                return asked, [self.registry.members[n] for n in asked if n in ready]
            if self._stopping:
                raise KeyboardInterrupt
            if time.monotonic() - reminded > 30:
                reminded = time.monotonic()
                missing = listed([member.name for member in awaited]) or "any site"
                log.warning("round %d: waiting for %s to come back", self.round + 1, missing)
            time.sleep(_PAUSE)

    def _orders(self, members: Iterable[Member], kind: str) -> Callable[[ConfigRecord], list[Message]]:
        """Makes a message to each of `members`, with what all of them are told."""

        def addressed(told: ConfigRecord) -> list[Message]:
            return [self._order(member, kind, told) for member in members]

        return addressed

    def _order(self, member: Member, kind: str, told: ConfigRecord) -> Message:
        number = self.registry.number(member)
        training = kind == MessageType.TRAIN
        config = ConfigRecord(dict(told))
        config[words.NUMBER] = number
        config[words.ROUND] = self.round + 1 if training else self.round
        config[words.ACCEPTED] = member.accepted
        self.welcome.agreement.put(config)
        content = RecordDict({words.ARRAYS: to_record(self._sent_to(number)), words.CONFIG: config})
        assert member.node is not None
        return Message(content, dst_node_id=member.node, message_type=kind, group_id=str(self.round + 1))

    def _sent_to(self, number: int) -> Parameters:
        """What the server sends to a site, without client axis."""
        known = torch.tensor([number]) if number < self.n_sites else None
        return {name: value[0] for name, value in self.method.send(self.server, known, 1).items()}

    def _expected_upload(self, sent: Parameters) -> Parameters:
        """What a site's update holds, as names, shapes and types."""
        private = {name: value.cpu() for name, value in self.method.private(self._task).items()}
        params = self.method.start(_with_axis(sent), _with_axis(private))
        return {name: value[0] for name, value in self.method.upload(params, private).items()}


def _with_axis(params: Parameters) -> Parameters:
    return {name: value[None] for name, value in params.items()}


def _array_bytes(message: Message) -> int:
    """Bytes of the prompts in a message."""
    records = message.content.array_records.values() if message.has_content() else ()
    return sum(array.numpy().nbytes for record in records for array in record.values())
