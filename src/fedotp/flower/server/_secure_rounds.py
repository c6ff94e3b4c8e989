"""Secure sums with real sites: the five steps of a round in which the server sees no single update.

A failed sum is repeated with the sites that are then connected.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import Message

from fedotp.errors import FedotpError
from fedotp.federation import Ints
from fedotp.flower import _wire as wire
from fedotp.flower._defaults import LEAST_SITES
from fedotp.flower._wire import digest_of, facts_of, pack, read_array, unpack, untrusted_input
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.secure import Advert, Average, SealedShares, ServerSession, Session, VoidSumError
from fedotp.flower.server._registration import Member, Registration, fault_of
from fedotp.flower.server._requests import Requests
from fedotp.flower.server._updates import Intake, OnStatement
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.server")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before a failed sum is repeated
_MOST_VOID = 8  # consecutive failed sums with answers of all sites: more retries are pointless

Take = Callable[[int, Message], None]
"""Processes the answer of a site, given its number; raises for an invalid one."""


@dataclass
class Opened:
    """The result of a secure sum: the sites in it, the faults of others, and bytes of messages."""

    survivors: list[int] = field(default_factory=list)
    average: Average | None = None
    faults: dict[int, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0


class SecureRound:
    """One attempt at the secure sum of a round."""

    def __init__(
        self, rounds: "SecureRounds", round_: int, weights: Mapping[int, int], server: Parameters, expected: Parameters
    ) -> None:
        """Site `number` weighs at most `weights[number]` images; `expected` has the shapes of an update."""
        self._requests, self._registry, self._round = rounds.requests, rounds.registration.registry, round_
        self._weights, self._server, self._on_statement = weights, server, rounds.on_statement
        like = {name: value.cpu().numpy() for name, value in expected.items()}
        agreement, requests = rounds.registration.agreement, rounds.requests
        assert agreement.secure is not None
        prompts = {digest_of(requests.payloads.sent(number, server)) for number in weights}
        if len(prompts) > 1:
            raise FedotpError("secure sums require a method whose server sends the same prompt to all sites")
        session = Session(
            agreement.run,
            round_ + 1,
            secrets.token_hex(16),
            agreement=agreement.digest,
            prompt=prompts.pop(),
            **asdict(agreement.secure),
            most_images=max(weights.values()),
        )
        self._which = {wire.SESSION: session.text}
        self._sum = ServerSession(session, rounds.identity, like)
        self.opened = Opened()
        self.all_answered = True

    def run(self, present: Sequence[Member], least: int) -> Opened:
        """Go through all steps; raise VoidSumError if the sum cannot be opened.

        With fewer than `least` survivors, no sum is opened.
        """
        members = {self._registry.number(member): member for member in present}
        self._query(wire.KEYS, members, {}, self._take_keys)
        adverts = self._sum.cohort.adverts
        names = pack({number: advert.name.encode() for number, advert in adverts.items()}, wire.NAMES)
        known = names | pack({number: advert.content for number, advert in adverts.items()})
        self._query(wire.SHARES, adverts, known, self._take_shares)
        letters = {n: {**pack(self._sum.letters_for(n)), **self._which} for n in self._sum.dealers}
        orders = self._requests.orders_to_train([members[n] for n in letters], self._round, self._server, letters)
        self._ask(list(letters), orders, self._take_masked)
        survivors = self.opened.survivors = self._sum.survivors
        if len(survivors) < least:
            return self.opened
        # sites that disconnect from here on are still in the sum
        lost = dict(self.opened.faults)
        self._query(wire.SURVIVORS, survivors, {"numbers": survivors}, self._take_signature)
        self._query(wire.SIGNATURES, self._sum.signatures, pack(self._sum.signatures), self._take_revealed)
        self.opened.average = self._sum.average()
        self.opened.faults = lost
        return self.opened

    # Requests -------------------------------------------------------------------------------------------------------

    def _query(self, action: str, numbers: Iterable[int], facts: Mapping[str, object], take: Take) -> None:
        fields = {number: {**facts, **self._which} for number in numbers}
        self._ask(list(fields), self._requests.queries(action, fields, self._round), take)

    def _ask(self, numbers: Sequence[int], messages: Sequence[Message], take: Take) -> None:
        """Send, wait and process the answers; an invalid one is the site's fault."""
        nodes = {number: message.metadata.dst_node_id for number, message in zip(numbers, messages, strict=True)}
        answers = self._requests.exchange(messages)
        self.opened.bytes_down += sum(map(_n_bytes, messages))
        for number, node in nodes.items():
            try:
                if node not in answers:
                    raise FedotpError("no answer within the timeout")
                with untrusted_input():
                    take(number, answers[node])
                self.opened.bytes_up += _n_bytes(answers[node])
            except FedotpError as error:
                self.all_answered &= node in answers
                fault = self.opened.faults[number] = fault_of(error)
                log.warning("round %d, site %s: %s", self._round + 1, self._registry.names[number], fault)

    # Answers ------------------------------------------------------------------------------------------------------

    def _take_keys(self, number: int, reply: Message) -> None:
        keys = facts_of(reply).get(wire.KEYS)
        if not isinstance(keys, bytes):
            raise FedotpError("the answer contains no keys")
        advert, most = Advert.of(self._registry.names[number], keys), self._weights[number]
        if not 1 <= advert.weight <= most:
            raise FedotpError(
                f"its weight must be from 1 to the agreed {most} images, got {advert.weight}. If it has more images "
                "now, stop the server and resume with --allow-new-counts"
            )
        self._sum.take_advert(number, advert)

    def _take_shares(self, number: int, reply: Message) -> None:
        facts = facts_of(reply)
        letters = unpack(facts)
        letters.pop(number, None)
        self._sum.take_shares(number, SealedShares(letters, unpack(facts, wire.MARKS)))

    def _take_masked(self, number: int, reply: Message) -> None:
        facts_of(reply)
        record = reply.content.array_records.get(wire.ARRAYS)
        if record is None or wire.MASKED not in record:
            raise FedotpError("the answer contains no masked values")
        masked = read_array("masked values", record[wire.MASKED], 8 * self._sum.n_values)
        update = digest_of({wire.MASKED: torch.from_numpy(masked.view(np.int64))})
        self._on_statement(number, update, self._sum.cohort.adverts[number].weight, reply)
        self._sum.take_masked(number, masked)

    def _take_signature(self, number: int, reply: Message) -> None:
        signature = facts_of(reply).get(wire.SURVIVORS)
        if not isinstance(signature, bytes):
            raise FedotpError("the answer contains no signature")
        self._sum.take_signature(number, signature)

    def _take_revealed(self, number: int, reply: Message) -> None:
        self._sum.take_revealed(number, unpack(facts_of(reply)))


@dataclass
class SecureRounds:
    """The secure sums of a run with the sites of `registration`; `identity` checks the signatures of their keys.

    `sums` and `voids` count the opened and the failed sums.
    """

    requests: Requests
    intake: Intake
    registration: Registration
    identity: KeyIdentity
    on_statement: OnStatement
    sums: int = 0
    voids: int = 0

    def facts(self) -> dict[str, Any]:
        """Return the terms and the numbers of opened and failed sums."""
        terms = self.registration.agreement.secure
        assert terms is not None
        return {"threshold": terms.share, "range": terms.bound, "sums": self.sums, "void": self.voids}

    def run(
        self, round_: int, server: Parameters, expected: Callable[[int], Parameters], least: int
    ) -> tuple[Ints, list[Member], Opened]:
        """Run the secure sum of a round; return the sampled sites, those of them that were connected, and the sum."""
        in_a_row, pause = 0, _FIRST_PAUSE
        while True:
            asked, present = self.requests.to_train(round_, LEAST_SITES)
            most = self.intake.most_images()
            weights = {self.registration.registry.number(m): max(1, min(m.agreed, most)) for m in present}
            attempt = SecureRound(self, round_, weights, server, expected(next(iter(weights))))
            try:
                opened = attempt.run(present, least)
            except VoidSumError as error:
                self.voids += 1
                in_a_row = in_a_row + 1 if attempt.all_answered else 0
                if in_a_row >= _MOST_VOID:
                    raise FedotpError(
                        f"round {round_ + 1}: secure sum failed {in_a_row} times in a row: {error}"
                    ) from None
                log.warning("round %d: %s; repeating the secure sum in %.0f s", round_ + 1, error, pause)
            else:
                self.sums += opened.average is not None
                return asked, present, opened
            self.requests.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _n_bytes(message: Message) -> int:
    """Count the bytes of the arrays, keys, shares and signatures in a message."""
    if not message.has_content():
        return 0
    arrays = sum(len(array.data) for record in message.content.array_records.values() for array in record.values())
    lists = [v for record in message.content.config_records.values() for v in record.values() if isinstance(v, list)]
    return arrays + sum(len(part) for parts in lists for part in parts if isinstance(part, bytes))
