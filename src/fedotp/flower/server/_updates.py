"""Validation of sites' answers, and limits on the weight and norm of updates.

The number of images that a site reports, and its update, cannot be verified, so the influence of one site is limited.
Its weight is at most ten times the median of all sites and, with three or more sites, at most that of all others
together (or `--max-images`). The norm of its update is at most ten times the median of the round's updates, or the
norm of the prompt if larger; longer updates are clipped and logged. The median of two is the smaller one.

Honest sites rarely reach these limits. Of Fed-ISIC2019's six sites, the largest has 5.5 times the median of images; in
the preset `demo` the longest update of a round was 1.3 to 5.6 times the median in 47 of 48 rounds, and 11.5 times in
one. A fixed limit is unsuitable: the longest was 0.01 to 48 times as long as the prompt. (Measured once, by hand.)
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Message, MetricRecord

from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.federation import METRICS, Settings
from fedotp.federation.server import Updates
from fedotp.federation.testing import Evaluation, Predictions
from fedotp.flower import _wire as wire
from fedotp.flower._wire import digest_of, facts_of, from_record, read_array, untrusted_input
from fedotp.flower.server._registration import Member, Registration, UpdateRefusedError, fault_of
from fedotp.methods import Parameters
from fedotp.privacy import clipped, length

log = logging.getLogger("fedotp.server")

_MOST = 1e9  # upper limit of images and losses

OnStatement = Callable[[int, str, int, Message], None]
"""Takes a site's number, the digest of its update, its weight and its answer; raises for an invalid signature."""


@dataclass(frozen=True, eq=False)
class Update:
    """A site's valid answer.

    `start` are its prompts before training, `moved` their distance from `start`. `loss` is nan if the site does not
    share it; `n_examples` is its weight in the average, `reported` before limits. `steps` is the site's total number of
    noisy training steps, for privacy of images; None if unknown. Of an update in a secure sum only the weight is known.
    """

    n_examples: int
    prompts: Parameters = field(default_factory=dict)
    start: Parameters = field(default_factory=dict)
    moved: float = 0.0
    loss: float = math.nan
    n_images: int = 0
    reported: int = 0
    steps: int | None = 0


def checked_update(reply: Message, expected: Parameters, member: Member, most_images: int) -> Update | None:
    """Validate the update in a reply; return None if the site has no training images, or raise UpdateRefusedError.

    `expected` is the update without training; the site's weight is at most `most_images`.
    """
    with untrusted_input():
        metrics = _metrics(reply)
    try:
        with untrusted_input():
            n_examples = _number(metrics, wire.EXAMPLES)
            if n_examples == 0:
                return None
            if not 0 < n_examples <= member.train_images or n_examples != int(n_examples):
                raise FedotpError(f"it reported {n_examples:g} training images but registered {member.train_images}")
            if wire.ARRAYS not in reply.content.array_records:
                raise FedotpError("the answer contains no update")
            prompts = from_record(reply.content.array_records[wire.ARRAYS], expected)
            return Update(
                min(int(n_examples), member.agreed, most_images),
                prompts,
                expected,
                moved=length(prompts, expected),
                loss=_number(metrics, wire.LOSS) if wire.LOSS in metrics else math.nan,
                n_images=int(_number(metrics, wire.IMAGES, least=0)),
                reported=int(n_examples),
                steps=int(_number(metrics, wire.STEPS, least=0)) if wire.STEPS in metrics else 0,
            )
    except FedotpError as error:
        raise UpdateRefusedError(str(error)) from None


def reported_scores(
    replies: Mapping[int, Message], members: Sequence[Member], n_classes: int
) -> tuple[Evaluation | None, Predictions | None]:
    """Build an evaluation from the scores that sites report, and all predictions if all sites report them."""
    domains = tuple(member.domain for member in members)
    scores: dict[int, dict[str, float]] = {}
    predictions: list[Predictions] = []
    for number, reply in sorted(replies.items()):
        try:
            with untrusted_input():
                reported = _reported(reply, members[number].test_images)
                if reported is None:
                    continue
                if wire.PREDICTIONS in reply.content.array_records:
                    predictions.append(_predictions(reply, number, members[number].test_images, n_classes))
                scores[number] = reported
        except FedotpError as error:
            log.warning("site %s: ignoring invalid scores: %s", members[number].name, one_line(error))
    if not scores:
        return None, None
    if len(predictions) == len(scores):
        lines = Predictions.join(predictions)
        return Evaluation.of(lines, n_classes, domains), lines
    clients = np.array(sorted(scores), np.int64)
    values = {key: np.array([scores[int(client)][key] for client in clients]) for key in METRICS}
    n = np.array([members[client].test_images for client in clients])
    return Evaluation.of_values(clients, n, values, n_classes, domains), None


def _reported(reply: Message, n_images: int) -> dict[str, float] | None:
    """Read the metrics by key; return None for a site that shares none, or has no test images.

    Accuracy is required; other missing metrics are nan.
    """
    metrics = _metrics(reply)
    n = _number(metrics, wire.EXAMPLES)
    if not n:
        return None
    if n != n_images:
        raise FedotpError(f"it reported {n:g} test images but registered {n_images}")
    values = {}
    for key, metric in METRICS.items():
        word = wire.of_metric(key)
        least, most = metric.range
        known = word in metrics or key == "accuracy"
        values[key] = _number(metrics, word, max(least, -_MOST), min(most, _MOST)) if known else math.nan
    return values


def _predictions(reply: Message, number: int, n: int, n_classes: int) -> Predictions:
    record = reply.content.array_records[wire.PREDICTIONS]
    if set(record) != set(wire.COLUMNS):
        raise FedotpError(f"predictions must contain {', '.join(wire.COLUMNS)}, got {', '.join(record)}")
    columns = {name: read_array(name, record[name], 8 * n) for name in wire.COLUMNS}
    most = {"row": 2**31, "label": n_classes, "predicted": n_classes}
    if not (
        all(column.shape == (n,) for column in columns.values())
        and all(columns[name].dtype == np.int64 for name in most)
        and all(columns[name].min() >= 0 and columns[name].max() < most[name] for name in most)
        and columns["loss"].dtype == np.float64
        and np.abs(columns["loss"]).max() <= _MOST  # False for nan
    ):
        raise FedotpError("predictions must contain one valid label and class for every image")
    return Predictions(np.full(n, number, np.int64), **columns)


def _metrics(reply: Message) -> MetricRecord:
    facts_of(reply)
    try:
        return reply.content.metric_records[wire.METRICS]
    except KeyError:
        raise FedotpError("the answer contains no metrics") from None


def _number(metrics: MetricRecord, key: str, least: float = -_MOST, most: float = _MOST) -> float:
    value = metrics.get(key)
    if not isinstance(value, int | float) or not least <= value <= most:
        raise FedotpError(f"{key} must be a number from {least:g} to {most:g}, got {value!r}")
    return float(value)


class Intake:
    """Validates and limits the updates of the sites of `registration`, by their numbers."""

    def __init__(self, registration: Registration, *, alike: bool = False) -> None:
        """`alike`: the average is private: all sites have the same weight, and the mechanism clips updates."""
        self._registry, self._options = registration.registry, registration.settings
        self._alike = alike
        self._capped: dict[str, int] = {}

    def updates(
        self,
        present: Iterable[Member],
        answers: Mapping[int, Message],
        expected: Callable[[int], Parameters],
        on_statement: OnStatement,
    ) -> tuple[dict[int, Update], dict[int, str]]:
        """Return the valid updates, and the faults of the other sites, by the sites' numbers.

        `answers` are by node; `expected` returns a site's update without training.
        """
        updates, faults = {}, {}
        most = self.most_images()
        for member in present:
            number = self._registry.number(member)
            reply = answers.get(member.node) if member.node is not None else None
            if reply is None:
                faults[number] = f"no answer within {self._options.round_timeout:g} s"
                continue
            try:
                update = checked_update(reply, expected(number), member, most)
                if update is not None:  # else the site has no training images
                    on_statement(number, digest_of(update.prompts), update.reported, reply)
                    updates[number] = update
            except FedotpError as error:
                faults[number] = fault_of(error)
        return updates, faults

    def most_images(self) -> int:
        """Compute the maximum weight of a site in images; log the sites that reported more."""
        options = self._options
        most = most_images((member.agreed for member in self._registry.members), options.max_times, options.max_images)
        for member in () if self._alike else self._registry.members:
            if member.agreed > most and self._capped.get(member.name) != most:
                self._capped[member.name] = most
                limit = "--max-images" if options.max_images else f"--max-times {options.max_times:g}"
                log.warning(
                    "site %s reports %d training images; its weight is limited to %d (%s)",
                    *(member.name, member.agreed, most, limit),
                )
        return most


def shorten(updates: dict[int, Update], max_times: float) -> dict[int, str]:
    """Clip, in place, updates that are much longer than the others of the round; return a message for each."""
    moved = [update.moved for update in updates.values()]
    shortened = {}
    for number, update in updates.items():
        most = furthest(moved, length(update.start), max_times)
        if update.moved > most:
            updates[number] = replace(update, prompts=clipped(update.prompts, update.start, most))
            times = f"--max-times {max_times:g}"
            shortened[number] = f"update of norm {update.moved:.3g} shortened to {most:.3g} ({times})"
    return shortened


def stacked(updates: Mapping[int, Update]) -> Updates:
    """Return the updates of a round, by the sites' numbers, as the server averages them."""
    numbers = sorted(updates)
    prompts = [updates[number].prompts for number in numbers]
    uploads = {name: torch.stack([each[name] for each in prompts]) for name in prompts[0]} if prompts else {}
    weights = torch.tensor([updates[number].n_examples for number in numbers])
    return Updates(torch.tensor(numbers), uploads, weights)


def median(values: Iterable[float]) -> float:
    """Return the lower median; 0 without values."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def most_images(announced: Iterable[int], times: float, max_images: int) -> int:
    """Compute the maximum weight of a site in images; `max_images` is the administrator's limit, 0 for none."""
    known = sorted(n for n in announced if n)
    most = int(times * median(known))
    if len(known) > 2:
        most = min(most, sum(known[:-1]))
    return max_images or max(1, most)


def furthest(moved: Iterable[float], size: float, times: float) -> float:
    """Compute the largest allowed distance of an update from a prompt of norm `size`, given those of the round."""
    return max(size, 1.0, times * median(moved))


class ReportedPrivacy:
    """The privacy that sites have spent, from the steps they report; each site enforces the budget with its ledger."""

    def __init__(self, settings: Settings, registration: Registration) -> None:
        """`settings.privacy.of_steps` must be true."""
        self._settings, self._registry = settings, registration.registry

    @property
    def epsilon(self) -> float | None:
        """The largest epsilon of a site; None without noise."""
        return max(self._of_sites().values(), default=0.0) if self._settings.privacy.noise else None

    @property
    def is_spent(self) -> bool:
        """True if another round would exceed the budget of a site."""
        budget = self._settings.privacy.epsilon
        return bool(budget) and any(self._epsilon(member, 1) > budget for member in self._registry.participants)

    def count(self, member: Member, reported: int | None) -> None:
        """Count an accepted update; `reported` is the site's total number of steps (None in a secure sum)."""
        each = self._settings.noisy_steps(member.train_images)
        member.steps = member.steps + each if reported is None else max(member.steps, reported)

    def facts(self) -> dict[str, Any]:
        """Return the guarantee and the epsilon spent."""
        most = max((member.steps for member in self._registry.participants), default=0)
        facts = self._settings.privacy.facts(most, self.epsilon)
        return facts if self.epsilon is None else {**facts, "clients": self._of_sites()}

    def _of_sites(self) -> dict[str, float]:
        return {member.name: self._epsilon(member) for member in self._registry.participants}

    def _epsilon(self, member: Member, rounds: int = 0) -> float:
        n = member.train_images
        return self._settings.images_epsilon(n, member.steps + rounds * self._settings.noisy_steps(n))
