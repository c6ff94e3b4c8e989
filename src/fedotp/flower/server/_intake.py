"""What is taken of the answers of a round: which updates are in order, how much each counts, how far it moves.

One site can do only so much to the average, as the number of images it announces, and its update, are its word only.
No site counts with more images than ten times the median of all sites', nor, where there are three or more, than all
others together (or it counts with as many as the administrator says); and none moves the prompt further than ten times
the median of a round's updates, or than the prompt is long, whichever is more. What is beyond is cut, and said. Of two
in the middle the median is the smaller: of two sites, one cannot raise it.

Honest sites stay below, or near. Of Fed-ISIC2019's six, the largest has 5.5 times the median of images, which is 53 %
of all: it would count with 50 %. In the preset `demo` the longest update of a round was 1.3 to 5.6 times the median in
47 of 48 rounds (FedOTP and PromptFL, two ways to divide the images, learning rate 0.001 with 1 epoch and 0.1 with 1 and
5, four rounds each), and 11.5 times in one, PromptFL's first at 0.1. Nothing fixed would do: at 0.001 the longest was
0.01 to 0.4 times as long as the prompt, at 0.1 it was 0.3 to 48 times. (Measured once, by hand.)
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from flwr.app import Message

from fedotp.errors import FedotpError
from fedotp.federation import Settings, images_epsilon, steps_per_round
from fedotp.flower.server._answers import Update, checked_update
from fedotp.flower.server._members import Fault, Member, Registry
from fedotp.flower.server._server_settings import ServerSettings
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


def median(values: Iterable[float]) -> float:
    """The one in the middle, the smaller of two; 0 of none."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def most_images(announced: Iterable[int], times: float, max_images: int) -> int:
    """With how many images a site may count; `max_images` is the administrator's word, 0 for none."""
    known = sorted(n for n in announced if n)
    most = int(times * median(known))
    if len(known) > 2:
        most = min(most, sum(known[:-1]))
    return max_images or max(1, most)


def furthest(moved: Iterable[float], size: float, times: float) -> float:
    """How far an update may move a prompt of length `size` where the updates of the round moved it so far."""
    return max(size, 1.0, times * median(moved))


class ToldPrivacy:
    """The privacy of their images that sites have spent, from what they tell of their steps.

    A site keeps its own account, and stops by itself.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        """`settings.privacy.of_steps` holds."""
        self._settings = settings
        self._registry = registry

    @property
    def epsilon(self) -> float | None:
        """Of the site that has spent most; None without noise."""
        return max(self._of_sites().values(), default=0.0) if self._settings.privacy.noise else None

    @property
    def is_spent(self) -> bool:
        """Whether one more round would exceed some site's budget."""
        budget = self._settings.privacy.epsilon
        return bool(budget) and any(self._epsilon(member, 1) > budget for member in self._registry.with_a_part)

    def count(self, member: Member, told: int | None) -> None:
        """An update of a site was taken; it has told how many steps are behind all it sent, or in a sum cannot."""
        each = steps_per_round(self._settings, member.train_images)
        member.steps = member.steps + each if told is None else max(member.steps, told)

    def facts(self) -> dict[str, Any]:
        """What was promised, and spent."""
        most = max((member.steps for member in self._registry.with_a_part), default=0)
        facts = self._settings.privacy.facts(most, self.epsilon)
        return facts if self.epsilon is None else {**facts, "clients": self._of_sites()}

    def _of_sites(self) -> dict[str, float]:
        return {member.name: self._epsilon(member) for member in self._registry.with_a_part}

    def _epsilon(self, member: Member, rounds: int = 0) -> float:
        n = member.train_images
        return images_epsilon(self._settings, n, member.steps + rounds * steps_per_round(self._settings, n))
