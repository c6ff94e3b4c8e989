"""Rounds with secure sums: one that cannot be opened is made again, with those who are there then."""

import logging
import time
from collections.abc import Callable
from typing import Any

from fedotp.errors import FedotpError
from fedotp.federation import Ints
from fedotp.flower.secure import LEAST_SITES, Identity, VoidSumError
from fedotp.flower.server._asking import Asking
from fedotp.flower.server._intake import Intake
from fedotp.flower.server._registry import Member
from fedotp.flower.server._secure import Opened, SecureRound
from fedotp.flower.server._welcome import Welcome
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.server")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before a sum that was void is made again
_REMIND = 30.0  # seconds between two lines about who is missing
_MOST_VOID = 8  # sums in a row that were void though everybody answered: it will not get better


class SecureRounds:
    """Makes the secure sums of a run with the sites of `welcome`."""

    def __init__(self, asking: Asking, intake: Intake, welcome: Welcome, identity: Identity) -> None:
        """`identity` tells sites' signatures, where they have keys."""
        self._asking, self._intake, self._welcome, self._identity = asking, intake, welcome, identity
        self._registry = welcome.registry
        self.sums = self.voids = 0

    def facts(self) -> dict[str, Any]:
        """What was agreed on, and how many sums were opened, or void."""
        terms = self._welcome.agreement.secure
        assert terms is not None
        return {"threshold": terms.share, "range": terms.bound, "sums": self.sums, "void": self.voids}

    def run(
        self, round_: int, server: Parameters, expected: Callable[[int], Parameters], least: int
    ) -> tuple[Ints, list[Member], Opened]:
        """The secure sum of a round: who was asked, who of them was there, and what came of it."""
        in_a_row, pause = 0, _FIRST_PAUSE
        while True:
            asked, present = self._enough(round_)
            most = self._intake.most_images()
            weights = {self._registry.number(m): max(1, min(m.agreed, most)) for m in present}
            attempt = SecureRound(
                self._asking,
                self._registry,
                self._welcome.agreement,
                self._identity,
                round_,
                weights,
                server,
                expected(next(iter(weights))),
            )
            try:
                opened = attempt.run(present, least)
            except VoidSumError as error:
                self.voids += 1
                in_a_row = in_a_row + 1 if attempt.all_answered else 0
                if in_a_row >= _MOST_VOID:
                    raise FedotpError(f"round {round_ + 1} was void {in_a_row} times in a row: {error}") from None
                log.warning("round %d: %s; it is made again", round_ + 1, error)
            else:
                self.sums += opened.average is not None
                return asked, present, opened
            self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _enough(self, round_: int) -> tuple[Ints, list[Member]]:
        """Who is asked to train, once those who are there are enough for a sum."""
        reminded = 0.0
        while True:
            asked, present = self._asking.to_train(round_)
            if len(present) >= LEAST_SITES:
                return asked, present
            known = sum(bool(member.train_images) for member in self._registry.members)
            if len(asked) < LEAST_SITES <= known:
                raise FedotpError(
                    f"federation.participation draws {len(asked)} of {known} sites; a secure sum needs {LEAST_SITES} "
                    "or more: raise it"
                )
            if time.monotonic() - reminded > _REMIND:
                reminded = time.monotonic()
                there = f"{len(present)} sites are there, and a secure sum needs {LEAST_SITES}"
                log.warning("round %d: %s; waiting", round_ + 1, there)
            self._pause(_FIRST_PAUSE)

    def _pause(self, seconds: float) -> None:
        if self._asking.is_stopping:
            raise KeyboardInterrupt
        time.sleep(seconds)
