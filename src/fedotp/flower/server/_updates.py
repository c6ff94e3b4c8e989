"""Sites' answers, which nobody has checked yet."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord

from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.federation import METRICS, Settings
from fedotp.federation.testing import Evaluation, Predictions
from fedotp.flower import _wire as wire
from fedotp.flower._wire import content_of, from_record, read_array, untrusted_input
from fedotp.flower.server._members import Fault, Member, Registry, UpdateRefusedError
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.methods import Parameters
from fedotp.privacy import clipped, length

log = logging.getLogger("fedotp.server")

_MOST = 1e9  # more images, and a larger loss, than anyone has


@dataclass(frozen=True, eq=False)
class Update:
    """A site's answer that was found in order.

    `start` is what its prompts would be had it not trained, `moved` how far they are from it. `loss` is nan where the
    site does not tell it; `n_examples` is the number of its images as it counts in the average. `steps` are the noisy
    ones behind all it has sent, where its images are to be private.
    """

    prompts: Parameters
    start: Parameters
    moved: float
    loss: float
    n_examples: int
    n_images: int
    steps: int = 0


def checked_update(
    reply: Message, expected: Parameters, member: Member, settings: ServerSettings, most_images: int
) -> Update | None:
    """The update in a reply; None if the site had nothing to train on. What is not in order raises UpdateRefusedError.

    `expected` is what the update would be had the site not trained at all; it counts as `most_images` at most.
    """
    with untrusted_input():
        metrics = _metrics(reply)
    try:
        with untrusted_input():
            return _update(reply, metrics, expected, member, settings, most_images)
    except FedotpError as error:
        raise UpdateRefusedError(str(error)) from None


def _update(
    reply: Message,
    metrics: MetricRecord,
    expected: Parameters,
    member: Member,
    settings: ServerSettings,
    most_images: int,
) -> Update | None:
    n_examples = _number(metrics, wire.EXAMPLES)
    if n_examples == 0:
        return None
    if not 0 < n_examples <= member.train_images or n_examples != int(n_examples):
        raise FedotpError(f"it speaks of {n_examples:g} training images and had {member.train_images}")
    if wire.ARRAYS not in reply.content.array_records:
        raise FedotpError("there is none in the answer")
    prompts = from_record(reply.content.array_records[wire.ARRAYS], expected)
    return Update(
        prompts,
        expected,
        moved=length(prompts, expected),
        loss=_number(metrics, wire.LOSS) if wire.LOSS in metrics else float("nan"),
        n_examples=min(int(n_examples), member.agreed, most_images),
        n_images=int(_number(metrics, wire.IMAGES, least=0)),
        steps=int(_number(metrics, wire.STEPS, least=0)) if wire.STEPS in metrics else 0,
    )


def reported_scores(
    replies: Mapping[int, Message], members: Sequence[Member], n_classes: int
) -> tuple[Evaluation | None, Predictions | None]:
    """An evaluation from what sites tell of their tests, and all predictions if all sites tell theirs."""
    domains = tuple(member.domain for member in members)
    scores: dict[int, dict[str, float]] = {}
    predictions: list[Predictions] = []
    for number, reply in sorted(replies.items()):
        try:
            with untrusted_input():
                told = _reported(reply, members[number].test_images)
                if told is None:
                    continue
                if wire.PREDICTIONS in reply.content.array_records:
                    predictions.append(_predictions(reply, number, members[number].test_images, n_classes))
                scores[number] = told
        except FedotpError as error:
            log.warning("site %s: what it tells of its tests does not count: %s", members[number].name, one_line(error))
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
    """The metrics by key; None from a site that tells nothing, or has no test images.

    Accuracy must be among them; any other is nan if the site, of an older version perhaps, does not tell it.
    """
    metrics = _metrics(reply)
    n = _number(metrics, wire.EXAMPLES)
    if not n:
        return None
    if n != n_images:
        raise FedotpError(f"it speaks of {n:g} test images and had {n_images}")
    told = {}
    for key, metric in METRICS.items():
        word = wire.of_metric(key)
        least, most = metric.range
        known = word in metrics or key == "accuracy"
        told[key] = _number(metrics, word, max(least, -_MOST), min(most, _MOST)) if known else math.nan
    return told


def _predictions(reply: Message, number: int, n: int, n_classes: int) -> Predictions:
    record = reply.content.array_records[wire.PREDICTIONS]
    if set(record) != set(wire.COLUMNS):
        raise FedotpError(f"its predictions hold {', '.join(record)}; right is {', '.join(wire.COLUMNS)}")
    columns = {name: read_array(name, record[name], 8 * n) for name in wire.COLUMNS}
    most = {"row": 2**31, "label": n_classes, "predicted": n_classes}
    if not (
        all(column.shape == (n,) for column in columns.values())
        and all(columns[name].dtype == np.int64 for name in most)
        and all(columns[name].min() >= 0 and columns[name].max() < most[name] for name in most)
        and columns["loss"].dtype == np.float64
        and np.abs(columns["loss"]).max() <= _MOST  # which a loss that is no number is not
    ):
        raise FedotpError("its predictions are not one label and one class for every image")
    return Predictions(np.full(n, number, np.int64), **columns)


def _metrics(reply: Message) -> MetricRecord:
    config = content_of(reply).config_records.get(wire.CONFIG, ConfigRecord())
    if wire.REFUSED in config:
        raise FedotpError(f"it refuses: {config[wire.REFUSED]!s}")
    try:
        return reply.content.metric_records[wire.METRICS]
    except KeyError:
        raise FedotpError("its answer says nothing of its images") from None


def _number(metrics: MetricRecord, key: str, least: float = -_MOST, most: float = _MOST) -> float:
    value = metrics.get(key)
    if not isinstance(value, int | float) or not least <= value <= most:
        raise FedotpError(f"its answer says {key} = {value!r}; right is a number from {least:g} to {most:g}")
    return float(value)


class Intake:
    """Takes the updates of the sites of `registry`, by their numbers."""

    def __init__(self, registry: Registry, settings: ServerSettings, *, alike: bool = False) -> None:
        """Where the average is private, all sites weigh `alike` and each update is clipped by itself."""
        self._registry = registry
        self._options = settings
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
                faults[number] = Fault(f"no answer within {self._options.round_timeout:g} s")
                continue
            try:
                update = checked_update(reply, expected(number), member, self._options, most)
            except FedotpError as error:
                faults[number] = Fault.of(error)
                continue
            if update is not None:  # else it had nothing to train on
                updates[number] = update
        return updates, faults

    def most_images(self) -> int:
        """With how many images a site counts at most; says where that is less than it announced."""
        options = self._options
        most = most_images((member.agreed for member in self._registry.members), options.max_times, options.max_images)
        for member in () if self._alike else self._registry.members:
            if member.agreed > most and self._capped.get(member.name) != most:
                self._capped[member.name] = most
                log.warning(
                    "site %s announces %d training images and counts with %d, %s",
                    *(member.name, member.agreed, most),
                    "as many as --max-images allows"
                    if options.max_images
                    else f"{options.max_times:g} times the median or as much as all others (--max-images, --max-times)",
                )
        return most

    def shorten(self, updates: dict[int, Update]) -> dict[int, str]:
        """Shorten, in place, the updates that go much further than the others of the round; says how."""
        if self._alike:
            return {}
        moved = [update.moved for update in updates.values()]
        shortened = {}
        for number, update in updates.items():
            most = furthest(moved, length(update.start), self._options.max_times)
            if update.moved > most:
                updates[number] = replace(update, prompts=clipped(update.prompts, update.start, most))
                shortened[number] = (
                    f"its update moves the prompt by {update.moved:.3g} and is shortened to {most:.3g}, the prompt's "
                    f"length or {self._options.max_times:g} times the median of the round (--max-times)"
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


class ReportedPrivacy:
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
        each = self._settings.noisy_steps(member.train_images)
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
        return self._settings.images_epsilon(n, member.steps + rounds * self._settings.noisy_steps(n))
