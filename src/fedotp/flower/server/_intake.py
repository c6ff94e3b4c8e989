"""What is taken of the answers of a round: which updates are in order, how much each counts, and how far it moves."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from flwr.app import Message

from fedotp.errors import FedotpError
from fedotp.flower.server._answers import Update, checked_update
from fedotp.flower.server._faults import Fault
from fedotp.flower.server._limits import furthest, most_images
from fedotp.flower.server._registry import Member, Registry
from fedotp.flower.server._settings import ServerSettings
from fedotp.methods import Parameters
from fedotp.privacy import clipped, length

log = logging.getLogger("fedotp.server")


class Intake:
    """Takes the updates of the sites of `registry`, by their numbers."""

    def __init__(self, registry: Registry, settings: ServerSettings, *, alike: bool = False) -> None:
        """Where the average is private, all sites weigh `alike` and each update is clipped by itself."""
        self._registry = registry
        self._deals = settings
        self._alike = alike
        self._capped: dict[str, int] = {}

    def updates(
        self, present: Iterable[Member], answers: Mapping[int, Message], expected: Callable[[int], Parameters]
    ) -> tuple[dict[int, Update], dict[int, Fault]]:
        """The updates that are in order, and what is wrong with the others; by the sites' numbers.

        `answers` are those of the nodes of the sites that were asked; `expected` is what a site's update would be had
        it not trained.
        """
        updates, faults = {}, {}
        most = self.most_images()
        for member in present:
            number = self._registry.number(member)
            reply = answers.get(member.node) if member.node is not None else None
            if reply is None:
                faults[number] = Fault(f"no answer within {self._deals.round_timeout:g} s")
                continue
            try:
                update = checked_update(reply, expected(number), member, self._deals, most)
            except FedotpError as error:
                faults[number] = Fault.of(error)
                continue
            if update is not None:  # else it had nothing to train on
                updates[number] = update
        return updates, faults

    def most_images(self) -> int:
        """With how many images a site counts at most; says where that is less than it announced."""
        deals = self._deals
        most = most_images((member.agreed for member in self._registry.members), deals.max_times, deals.max_images)
        for member in () if self._alike else self._registry.members:
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

    def shorten(self, updates: dict[int, Update]) -> dict[int, str]:
        """Shorten, in place, the updates that go much further than the others of the round; says how."""
        if self._alike:
            return {}
        moved = [update.moved for update in updates.values()]
        shortened = {}
        for number, update in updates.items():
            most = furthest(moved, length(update.start), self._deals.max_times)
            if update.moved > most:
                updates[number] = replace(update, prompts=clipped(update.prompts, update.start, most))
                shortened[number] = (
                    f"its update moves the prompt by {update.moved:.3g} and is shortened to {most:.3g}, the prompt's "
                    f"length or {self._deals.max_times:g} times the median of the round (--max-times)"
                )
        return shortened
