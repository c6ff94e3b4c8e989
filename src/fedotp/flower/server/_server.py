"""The server of a real federation: the same rounds as the simulator's, with sites that come, go and fail."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from fedotp.config import Config
from fedotp.errors import FedotpError, listed
from fedotp.federation import (
    Evaluation,
    Ints,
    KeptRows,
    OnImages,
    Predictions,
    Progress,
    RoundReport,
    ServerStep,
    Settings,
    drawn_for_evaluation,
    draws,
    learning_rate,
    sampled,
    save_checkpoint,
)
from fedotp.flower import _messages as words
from fedotp.flower._lengths import clipped, length
from fedotp.flower._records import to_record
from fedotp.flower.server._answers import Update, checked_update, told_scores
from fedotp.flower.server._faults import Fault
from fedotp.flower.server._limits import furthest, most_images
from fedotp.flower.server._privacy import Mechanism, Releases
from fedotp.flower.server._registry import Member, State
from fedotp.flower.server._settings import ServerSettings
from fedotp.flower.server._welcome import Welcome
from fedotp.methods import Parameters, Task

log = logging.getLogger("fedotp.server")

_PAUSE = 1.0


class Deployed:
    """A federation of real sites, as a run sees it (`fedotp.runs._loop.Federation`)."""

    def __init__(
        self,
        config: Config,
        task: Task,
        welcome: Welcome,
        settings: ServerSettings,
        *,
        releases: Releases,
        n_sites: int | None = None,
        on_save: Callable[[], object] | None = None,
    ) -> None:
        """The sites of `welcome` have gathered.

        `releases` are the private averages published before. Of a run that goes on, `n_sites` is the number of sites
        it began with. `on_save` is called before each checkpoint.
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
        self.step = ServerStep(self.settings.server)
        self.kept = KeptRows({}, self.n_sites)  # nothing: what sites keep is at the sites
        self._task = task
        self._deals = settings
        self._on_save = on_save
        self._stopping = False
        if settings.privacy != "none" and (self.method.publishes or not self.server):
            raise FedotpError(f"privacy = {settings.privacy!r}: {self.method.title} has no average to protect this way")
        n_expected = len(self.registry.members)  # fixed before anybody sends anything
        self._privacy = None if settings.privacy == "none" else Mechanism(settings, n_expected, releases)
        self._is_out_of_budget = False
        self._capped: dict[str, int] = {}

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

    def may_go_on(self) -> bool:
        """Whether the privacy budget has room for another round."""
        if self._privacy is None or not self._privacy.is_spent:
            return True
        self._is_out_of_budget = True
        spent = self._privacy.facts()
        log.warning(
            "the privacy budget is spent: epsilon %.3f of %g at delta %g; the run ends after round %d",
            *(spent["epsilon"], spent["max_epsilon"], spent["delta"], self.round),
        )
        return False

    def facts(self) -> dict[str, Any]:
        """With how many images each site counts, how often it failed, and the privacy spent."""
        members, most = self.registry.members, self._most_images()
        facts: dict[str, Any] = {
            "faults": {m.name: m.faults for m in members if m.faults},
            "refused": {m.name: m.refused for m in members if m.refused},
            "shortened": {m.name: m.shortened for m in members if m.shortened},
        }
        if self._privacy is not None:
            ended = {"ended_the_run": True} if self._is_out_of_budget else {}
            return {**facts, "privacy": {**self._privacy.facts(), **ended}}  # all sites weigh alike
        return {
            **facts,
            "weights": {m.name: min(m.agreed, most) for m in members},
            "capped": {m.name: m.agreed for m in members if m.agreed > most},
        }

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
        faults |= {int(n): Fault("not connected") for n in asked if self.registry.members[n] not in present}
        for number, fault in faults.items():
            log.warning("round %d, site %s: %s", self.round + 1, self.registry.names[number], fault)
            self.registry.members[number].fail(fault)
        shortened = self._shorten(updates) if self._privacy is None else {}  # privacy clips each by itself
        for name, how in shortened.items():
            log.warning("round %d, site %s: %s", self.round + 1, name, how)
            self.registry.members[self.registry.names.index(name)].shortened += 1
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
            faults={self.registry.names[number]: str(fault) for number, fault in faults.items()},
            shortened=shortened,
        )

    def _messages(self, present: list[Member]) -> list[Message]:
        """What the sites that take part are sent to train on."""
        told = ConfigRecord({words.CLIP: self._deals.clip} if self._deals.privacy == "client" else {})
        return self._orders(present, MessageType.TRAIN)(told)

    def _updates(
        self, present: Iterable[Member], answers: dict[int, Message]
    ) -> tuple[dict[int, Update], dict[int, Fault]]:
        """The updates that are in order, by the site's number, and what is wrong with the others."""
        updates, faults = {}, {}
        most = self._most_images()
        for member in present:
            number = self.registry.number(member)
            reply = answers.get(member.node) if member.node is not None else None
            if reply is None:
                faults[number] = Fault(f"no answer within {self._deals.round_timeout:g} s")
                continue
            try:
                update = checked_update(reply, self._expected_upload(number), member, self._deals, most)
            except FedotpError as error:
                faults[number] = Fault.of(error)
                continue
            if update is not None:  # else it had nothing to train on
                updates[number] = update
        return updates, faults

    def _most_images(self) -> int:
        """With how many images a site counts at most; says where that is less than it announced."""
        deals = self._deals
        most = most_images((member.agreed for member in self.registry.members), deals.max_times, deals.max_images)
        for member in self.registry.members if self._privacy is None else ():
            if member.agreed > most and self._capped.get(member.name) != most:
                self._capped[member.name] = most
                log.warning(
                    "site %s announces %d training images and counts with %d, %s",
                    *(member.name, member.agreed, most),
                    "as many as --max-images allows"
                    if deals.max_images
                    else f"{deals.max_times:g} times the median or as much as all others (--max-images, --max-times)",
                )
        return most

    def _shorten(self, updates: dict[int, Update]) -> dict[str, str]:
        """Shorten the updates that go much further than the others of the round; says how, by the sites' names."""
        moved = [update.moved for update in updates.values()]
        shortened = {}
        for number, update in updates.items():
            most = furthest(moved, length(update.start), self._deals.max_times)
            if update.moved > most:
                updates[number] = replace(update, prompts=clipped(update.prompts, update.start, most))
                shortened[self.registry.names[number]] = (
                    f"its update moves the prompt by {update.moved:.3g} and is shortened to {most:.3g}, the prompt's "
                    f"length or {self._deals.max_times:g} times the median of the round (--max-times)"
                )
        return shortened

    def _aggregate(self, updates: dict[int, Update]) -> int:
        """The server step; returns how many bytes the sites sent."""
        n_bytes = sum(value.nbytes for update in updates.values() for value in update.prompts.values())
        rounds = self.settings.federation
        if len(updates) < rounds.min_clients:
            log.warning(
                "round %d: %d updates, fewer than %d: nothing is averaged",
                *(self.round + 1, len(updates), rounds.min_clients),
            )
            return n_bytes
        if not self.server:
            return n_bytes
        numbers = sorted(updates)
        prompts = [updates[number].prompts for number in numbers]
        if self._privacy is not None:
            share = 1.0 if self.round == 0 and rounds.first_round == "all" else rounds.participation
            released = self._privacy.release(self.server, prompts, share, self.round + 1)
            self.server = self.step(self.server, released, prompts[0])  # of what is public: it spends no more privacy
            return n_bytes
        uploads = {name: torch.stack([each[name] for each in prompts]) for name in prompts[0]}
        weights = torch.tensor([updates[number].n_examples for number in numbers])
        aggregated = self.method.aggregate(self.server, torch.tensor(numbers), uploads, weights)
        self.server = self.step(self.server, aggregated, uploads)
        return n_bytes

    # Evaluation --------------------------------------------------------------------------------------------

    def evaluate(self, *, everyone: bool) -> tuple[Evaluation | None, Predictions | None]:
        """What the sites tell of their own tests; at the end, those that have just gone away are awaited."""
        self.welcome.step()
        while everyone and not self._stopping and self.welcome.returning(self.registry.members, self._deals.wait):
            time.sleep(_PAUSE)
            self.welcome.step()
        ready = [n for n, member in enumerate(self.registry.members) if member.state is State.READY]
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
            ready = np.array([n for n in members if self.registry.members[n].state is State.READY], np.int64)
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

    def _expected_upload(self, number: int) -> Parameters:
        """What a site's update holds, as names, shapes and types."""
        sent = self._sent_to(number)
        private = {name: value.cpu() for name, value in self.method.private(self._task).items()}
        received = _with_axis(sent)
        params = self.method.start(received, _with_axis(private))
        chance = [draws(self.settings.seed, "upload", self.round, number)]
        return {name: value[0] for name, value in self.method.upload(params, received, chance).items()}


def _with_axis(params: Parameters) -> Parameters:
    return {name: value[None] for name, value in params.items()}


def _array_bytes(message: Message) -> int:
    """Bytes of the prompts in a message."""
    records = message.content.array_records.values() if message.has_content() else ()
    return sum(array.numpy().nbytes for record in records for array in record.values())
