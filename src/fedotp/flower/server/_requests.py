"""Requests to sites: sampling of sites, and messages to them."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from fedotp.config import Config
from fedotp.errors import FedotpError, listed
from fedotp.federation import Ints, draws
from fedotp.flower import _wire as wire
from fedotp.flower._events import record
from fedotp.flower._wire import digest_of, to_record
from fedotp.flower.server._registration import Member, Registration, State
from fedotp.methods import Batch, Method, Parameters, Task

log = logging.getLogger("fedotp.server")

_PAUSE = 1.0
_REMIND = 30.0  # seconds between log lines about missing sites


@dataclass(frozen=True)
class Payloads:
    """The parameters in messages, of a run that began with `n_sites` sites; they have no client axis."""

    method: Method
    task: Task
    seed: int
    n_sites: int

    def sent(self, number: int, server: Parameters) -> Parameters:
        """Return the parameters that the server sends to a site."""
        known = torch.tensor([number]) if number < self.n_sites else None
        return {name: value[0] for name, value in self.method.send(server, known, 1).items()}

    def untrained(self, number: int, round_: int, server: Parameters) -> Parameters:
        """Compute a site's update without training: its names, shapes and types."""
        private = {name: value.cpu() for name, value in self.method.private(self.task).items()}
        received = _with_axis(self.sent(number, server))
        params = self.method.start(received, _with_axis(private))
        params |= self.method.statistics(self.task, params, Batch.of_no_images(self.task))
        chance = [draws(self.seed, "upload", round_, number)]
        return {name: value[0] for name, value in self.method.upload(params, received, chance).items()}


class Requests:
    """Sends requests to the sites of `registration`; rounds count from 0, `server` are the server's parameters."""

    def __init__(self, config: Config, task: Task, registration: Registration, n_sites: int) -> None:
        """Prepare requests of a run that began with `n_sites` sites."""
        self.is_stopping = False
        self._settings, self._options = config.settings, registration.settings
        self._registration, self._registry = registration, registration.registry
        self.payloads = Payloads(config.method, task, config.seed, n_sites)
        self._n_trainable = n_sites if config.method.knows_clients(task) else None

    # Sampling ------------------------------------------------------------------------------------------------------

    def to_train(self, round_: int, least: int = 1) -> tuple[Ints, list[Member]]:
        """Sample the sites of a round; return them and those of them that are ready.

        Wait for sampled sites that have just disconnected, and until at least `least` are ready (a secure sum requires
        several); if none of them is ready, sample others. Raise KeyboardInterrupt when the user stops the server.
        """
        reminded = 0.0
        while True:
            self._registration.step()
            # with server parameters for each site, sites that joined after the first round cannot train
            known = self._registry.members[: self._n_trainable]
            members = np.array([n for n, member in enumerate(known) if member.train_images], np.int64)
            asked = self._sample(members, round_) if len(members) else members
            ready = np.array([n for n in members if self._registry.members[n].state is State.READY], np.int64)
            awaited = self._registration.returning((self._registry.members[n] for n in asked), self._options.wait)
            if len(ready) and not awaited:
                if not np.isin(asked, ready).any():
                    log.warning("round %d: no sampled site is connected; sampling from the others", round_ + 1)
                    asked = self._sample(ready, round_)
                present = [self._registry.members[n] for n in asked if n in ready]
                if len(present) >= least:
                    return asked, present
                if len(asked) < least <= len(members):
                    raise FedotpError(
                        f"federation.participation samples {len(asked)} of {len(members)} sites, but a secure sum "
                        f"requires at least {least}; increase it"
                    )
            if time.monotonic() - reminded > _REMIND:
                reminded = time.monotonic()
                some = "any site" if least == 1 else f"{least} sites"
                missing = listed([member.name for member in awaited]) or some
                log.warning("round %d: waiting for %s to reconnect", round_ + 1, missing)
            self.pause(_PAUSE)

    def pause(self, seconds: float) -> None:
        """Wait, or raise KeyboardInterrupt if the user has stopped the server."""
        if self.is_stopping:
            raise KeyboardInterrupt
        time.sleep(seconds)

    def to_test(self, round_: int, *, everyone: bool) -> list[Member]:
        """Choose the sites to evaluate; with `everyone`, wait for sites that have just disconnected."""
        self._registration.step()
        members = self._registry.members
        while everyone and not self.is_stopping and self._registration.returning(members, self._options.wait):
            time.sleep(_PAUSE)
            self._registration.step()
        ready = [n for n, member in enumerate(members) if member.state is State.READY]
        tested = np.array([n for n in ready if members[n].test_images], np.int64)
        drawn = self._settings.evaluation.drawn(tested, round_, self._settings.seed)
        wanted = ready if everyone else tested if drawn is None else drawn  # at the end, all save their classifier
        return [members[n] for n in wanted]

    def _sample(self, members: Ints, round_: int) -> Ints:
        return self._settings.federation.sampled(members, round_, self._settings.seed)

    # Messages --------------------------------------------------------------------------------------------------

    def orders_to_train(
        self,
        members: Sequence[Member],
        round_: int,
        server: Parameters,
        more: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> list[Message]:
        """Make training requests; `more` contains further fields by the sites' numbers."""
        orders = []
        for member in members:
            fields = {wire.ROUND: round_ + 1, **(more or {}).get(self._registry.number(member), {})}
            orders.append(self._order(member, MessageType.TRAIN, fields, round_, server))
        return orders

    def queries(self, action: str, fields: Mapping[int, Mapping[str, Any]], round_: int) -> list[Message]:
        """Make queries of one kind, without a prompt, from their fields by the sites' numbers."""
        kind = f"{MessageType.QUERY}.{action}"
        return [self._order(self._registry.members[n], kind, record, round_, None) for n, record in fields.items()]

    def orders_to_test(
        self, members: Sequence[Member], round_: int, server: Parameters, *, last: bool
    ) -> list[Message]:
        """Make evaluation requests after `round_` rounds; `last`: the run has ended."""
        fields = {wire.LAST: last, wire.ROUND: round_}
        return [self._order(member, MessageType.EVALUATE, fields, round_, server) for member in members]

    def exchange(self, messages: Sequence[Message]) -> dict[int, Message]:
        """Send and wait for at most `round_timeout`; return the answers by node."""
        return self._registration.transport.exchange(messages, self._options.round_timeout, self._options.wait)

    def _order(
        self, member: Member, kind: str, fields: Mapping[str, Any], round_: int, server: Parameters | None
    ) -> Message:
        number, agreement = self._registry.number(member), self._registration.agreement
        config = ConfigRecord({**fields, wire.NUMBER: number, wire.ACCEPTED: member.accepted})
        agreement.put(config)
        content = RecordDict({wire.CONFIG: config})
        sent = None if server is None else self.payloads.sent(number, server)
        if sent is not None:
            content[wire.ARRAYS] = to_record(sent)
        assert member.node is not None
        facts = {"run": agreement.run, "round": config.get(wire.ROUND, round_ + 1), "agreement": agreement.digest}
        digest = "" if sent is None else digest_of(sent)
        record("order", kind=kind.removeprefix("query."), site=member.name, **facts, digest=digest)
        return Message(content, dst_node_id=member.node, message_type=kind, group_id=str(round_ + 1))


def _with_axis(params: Parameters) -> Parameters:
    return {name: value[None] for name, value in params.items()}
