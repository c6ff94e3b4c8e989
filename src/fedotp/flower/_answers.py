"""Sites' answers, which nobody has checked yet."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.federation import Evaluation, Predictions, evaluate_predictions
from fedotp.federation._metrics import by_domain
from fedotp.flower import _messages as words
from fedotp.flower._records import from_record, read_array, to_record
from fedotp.flower._registry import Member
from fedotp.flower._settings import ServerSettings
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.server")

_MOST = 1e9  # more images, and a larger loss, than anyone has


@dataclass(frozen=True, eq=False)
class Update:
    """A site's answer that was found in order; `loss` is nan where the site does not tell it."""

    reply: Message
    loss: float
    n_examples: int
    n_images: int


def checked_update(reply: Message, expected: Parameters, member: Member, settings: ServerSettings) -> Update | None:
    """The update in a reply; None if the site had nothing to train on. Whatever is not in order is refused.

    `expected` is what the update would be had the site not trained at all.
    """
    metrics = _metrics(reply)
    n_examples = _number(metrics, words.EXAMPLES)
    if n_examples == 0:
        return None
    if not 0 < n_examples <= member.train_images or n_examples != int(n_examples):
        raise FedotpError(
            f"its update is refused: it speaks of {n_examples:g} training images and had {member.train_images}"
        )
    try:
        record = reply.content.array_records[words.ARRAYS]
        update = from_record(record, expected)
    except KeyError:
        raise FedotpError("its update is refused: there is none in the answer") from None
    except FedotpError as error:
        raise FedotpError(f"its update is refused: {error}") from None
    for name, value in update.items():
        moved, length = float((value - expected[name]).norm()), float(expected[name].norm())
        if moved > settings.max_update * max(length, 1.0):
            raise FedotpError(
                f"its update is refused: {name} moved by {moved:.3g}, more than {settings.max_update:g} times "
                f"its length of {length:.3g}"
            )
    weight = int(n_examples) if settings.privacy == "none" else 1  # differential privacy weighs all sites alike
    told = MetricRecord({words.EXAMPLES: weight})
    reply.content = RecordDict({words.ARRAYS: to_record(update), words.METRICS: told})  # and nothing else it sent
    return Update(
        reply,
        loss=_number(metrics, words.LOSS) if words.LOSS in metrics else float("nan"),
        n_examples=int(n_examples),
        n_images=int(_number(metrics, words.IMAGES, least=0)),
    )


def told_scores(
    replies: Mapping[int, Message], members: Sequence[Member], n_classes: int
) -> tuple[Evaluation | None, Predictions | None]:
    """An evaluation from what sites tell of their tests, and all predictions if all sites tell theirs."""
    domains = tuple(member.domain for member in members)
    scores: dict[int, tuple[float, float, float, float]] = {}
    predictions: list[Predictions] = []
    for number, reply in sorted(replies.items()):
        try:
            metrics = _metrics(reply)
            n = _number(metrics, words.EXAMPLES)
            if not n:  # it tells nothing, or has no test images
                continue
            if n != members[number].test_images:
                raise FedotpError(f"it speaks of {n:g} test images and had {members[number].test_images}")
            accuracy, f1 = (_number(metrics, key, least=0, most=1) for key in (words.ACCURACY, words.MACRO_F1))
            told = n, accuracy, f1, _number(metrics, words.LOSS)
            if words.PREDICTIONS in reply.content.array_records:
                predictions.append(_predictions(reply, number, int(n), n_classes))
            scores[number] = told
        except FedotpError as error:
            log.warning("site %s: what it tells of its tests does not count: %s", members[number].name, one_line(error))
    if not scores:
        return None, None
    if len(predictions) == len(scores):
        lines = Predictions.join(predictions)
        return evaluate_predictions(lines, n_classes, domains), lines
    clients = np.array(sorted(scores), np.int64)
    sizes, accuracies, f1s, losses = np.array([scores[int(client)] for client in clients]).T
    evaluation = Evaluation(
        clients=clients,
        n=sizes.astype(np.int64),
        accuracy=accuracies,
        macro_f1=f1s,
        loss=losses,
        class_accuracy=np.full(n_classes, np.nan),
        domain_accuracy=by_domain(clients, accuracies, domains),
    )
    return evaluation, None


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
    if reply.has_error():
        raise FedotpError(f"it failed: {reply.error.reason}")
    config = reply.content.config_records.get(words.CONFIG, ConfigRecord())
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
