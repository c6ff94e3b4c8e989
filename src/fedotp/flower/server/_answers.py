"""Sites' answers, which nobody has checked yet."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord

from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.federation import METRICS, Evaluation, Predictions, by_domain, evaluate_predictions
from fedotp.flower import _messages as words
from fedotp.flower._records import content_of, from_record, read_array, strangers_words
from fedotp.flower.server._members import Member, UpdateRefusedError
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.methods import Parameters
from fedotp.privacy import length

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
    with strangers_words():
        metrics = _metrics(reply)
    try:
        with strangers_words():
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
    n_examples = _number(metrics, words.EXAMPLES)
    if n_examples == 0:
        return None
    if not 0 < n_examples <= member.train_images or n_examples != int(n_examples):
        raise FedotpError(f"it speaks of {n_examples:g} training images and had {member.train_images}")
    if words.ARRAYS not in reply.content.array_records:
        raise FedotpError("there is none in the answer")
    prompts = from_record(reply.content.array_records[words.ARRAYS], expected)
    for name, value in prompts.items():
        moved, size = length({name: value}, expected), length({name: expected[name]})
        if moved > settings.max_update * max(size, 1.0):
            raise FedotpError(
                f"{name} moved by {moved:.3g}, more than {settings.max_update:g} times its length of {size:.3g} "
                "(--max-update)"
            )
    return Update(
        prompts,
        expected,
        moved=length(prompts, expected),
        loss=_number(metrics, words.LOSS) if words.LOSS in metrics else float("nan"),
        n_examples=min(int(n_examples), member.agreed, most_images),
        n_images=int(_number(metrics, words.IMAGES, least=0)),
        steps=int(_number(metrics, words.STEPS, least=0)) if words.STEPS in metrics else 0,
    )


def told_scores(
    replies: Mapping[int, Message], members: Sequence[Member], n_classes: int
) -> tuple[Evaluation | None, Predictions | None]:
    """An evaluation from what sites tell of their tests, and all predictions if all sites tell theirs."""
    domains = tuple(member.domain for member in members)
    scores: dict[int, dict[str, float]] = {}
    predictions: list[Predictions] = []
    for number, reply in sorted(replies.items()):
        try:
            with strangers_words():
                told = _told(reply, members[number].test_images)
                if told is None:
                    continue
                if words.PREDICTIONS in reply.content.array_records:
                    predictions.append(_predictions(reply, number, members[number].test_images, n_classes))
                scores[number] = told
        except FedotpError as error:
            log.warning("site %s: what it tells of its tests does not count: %s", members[number].name, one_line(error))
    if not scores:
        return None, None
    if len(predictions) == len(scores):
        lines = Predictions.join(predictions)
        return evaluate_predictions(lines, n_classes, domains), lines
    clients = np.array(sorted(scores), np.int64)
    values = {key: np.array([scores[int(client)][key] for client in clients]) for key in METRICS}
    evaluation = Evaluation(
        clients=clients,
        n=np.array([members[client].test_images for client in clients]),
        values=values,
        class_accuracy=np.full(n_classes, np.nan),
        domain_accuracy=by_domain(clients, values["accuracy"], domains),
    )
    return evaluation, None


def _told(reply: Message, n_images: int) -> dict[str, float] | None:
    """The metrics by key; None from a site that tells nothing, or has no test images.

    Accuracy must be among them; any other is nan if the site, of an older version perhaps, does not tell it.
    """
    metrics = _metrics(reply)
    n = _number(metrics, words.EXAMPLES)
    if not n:
        return None
    if n != n_images:
        raise FedotpError(f"it speaks of {n:g} test images and had {n_images}")
    told = {}
    for key, metric in METRICS.items():
        word = words.of_metric(key)
        least, most = metric.range
        known = word in metrics or key == "accuracy"
        told[key] = _number(metrics, word, max(least, -_MOST), min(most, _MOST)) if known else math.nan
    return told


def _predictions(reply: Message, number: int, n: int, n_classes: int) -> Predictions:
    record = reply.content.array_records[words.PREDICTIONS]
    if set(record) != set(words.COLUMNS):
        raise FedotpError(f"its predictions hold {', '.join(record)}; right is {', '.join(words.COLUMNS)}")
    columns = {name: read_array(name, record[name], 8 * n) for name in words.COLUMNS}
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
    config = content_of(reply).config_records.get(words.CONFIG, ConfigRecord())
    if words.REFUSED in config:
        raise FedotpError(f"it refuses: {config[words.REFUSED]!s}")
    try:
        return reply.content.metric_records[words.METRICS]
    except KeyError:
        raise FedotpError("its answer says nothing of its images") from None


def _number(metrics: MetricRecord, key: str, least: float = -_MOST, most: float = _MOST) -> float:
    value = metrics.get(key)
    if not isinstance(value, int | float) or not least <= value <= most:
        raise FedotpError(f"its answer says {key} = {value!r}; right is a number from {least:g} to {most:g}")
    return float(value)
