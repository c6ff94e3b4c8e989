"""Sites' answers, which nobody has checked yet."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord

from fedotp.errors import FedotpError
from fedotp.federation import Evaluation, Predictions, evaluate_predictions
from fedotp.federation._metrics import by_domain
from fedotp.flower import _messages as words
from fedotp.flower._records import from_record, to_record
from fedotp.flower._registry import Member
from fedotp.flower._settings import ServerSettings
from fedotp.methods import Parameters


@dataclass(frozen=True, eq=False)
class Update:
    """A site's answer that was found in order; `loss` is nan where the site does not tell it."""

    reply: Message
    loss: float
    n_examples: int
    n_images: int


def checked_update(
    reply: Message, expected: Parameters, sent: Parameters, member: Member, settings: ServerSettings
) -> Update | None:
    """The update in a reply; None if the site had nothing to train on. Whatever is not in order is refused."""
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
        if name in sent:
            moved, length = float((value - sent[name]).norm()), float(sent[name].norm())
            if moved > settings.max_update * max(length, 1.0):
                raise FedotpError(
                    f"its update is refused: {name} moved by {moved:.3g}, more than {settings.max_update:g} times "
                    f"its length of {length:.3g}"
                )
    loss = metrics.get(words.LOSS, float("nan"))
    weight = int(n_examples) if settings.privacy == "none" else 1  # differential privacy weighs all sites alike
    reply.content[words.METRICS] = MetricRecord({words.EXAMPLES: weight})
    reply.content[words.ARRAYS] = to_record(update)
    return Update(
        reply,
        loss=float(loss) if isinstance(loss, int | float) else float("nan"),
        n_examples=int(n_examples),
        n_images=int(_number(metrics, words.IMAGES)),
    )


def told_scores(
    replies: Mapping[int, Message], n_classes: int, domains: tuple[str | None, ...]
) -> tuple[Evaluation | None, Predictions | None]:
    """An evaluation from what sites tell of their tests, and all predictions if all sites tell theirs."""
    scores: dict[int, tuple[float, float, float, float]] = {}
    predictions: list[Predictions] = []
    for number, reply in sorted(replies.items()):
        try:
            metrics = _metrics(reply)
            if not _number(metrics, words.EXAMPLES):
                continue
            told = [_number(metrics, key) for key in (words.EXAMPLES, "accuracy", "macro-f1", words.LOSS)]
            scores[number] = (told[0], told[1], told[2], told[3])
            if words.PREDICTIONS in reply.content.array_records:
                predictions.append(_predictions(reply, number, n_classes))
        except FedotpError:
            continue
    if not scores:
        return None, None
    if len(predictions) == len(scores):
        lines = Predictions.join(predictions)
        return evaluate_predictions(lines, n_classes, domains), lines
    clients = np.array(sorted(scores), np.int64)
    n, accuracy, f1, loss = np.array([scores[int(client)] for client in clients]).T
    evaluation = Evaluation(
        clients=clients,
        n=n.astype(np.int64),
        accuracy=accuracy,
        macro_f1=f1,
        loss=loss,
        class_accuracy=np.full(n_classes, np.nan),
        domain_accuracy=by_domain(clients, accuracy, domains),
    )
    return evaluation, None


def _predictions(reply: Message, number: int, n_classes: int) -> Predictions:
    record = reply.content.array_records[words.PREDICTIONS]
    try:
        row, label, predicted = (np.array(record[name].numpy(), np.int64) for name in words.COLUMNS[:3])
        loss = np.array(record["loss"].numpy(), np.float64)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise FedotpError(f"its predictions cannot be read ({error})") from error
    in_range = all(column.min(initial=0) >= 0 and column.max(initial=0) < n_classes for column in (label, predicted))
    if not (row.ndim == 1 and row.shape == label.shape == predicted.shape == loss.shape and in_range):
        raise FedotpError("its predictions are not one label and one class for every image")
    return Predictions(np.full(len(row), number, np.int64), row, label, predicted, loss)


def _metrics(reply: Message) -> MetricRecord:
    if reply.has_error():
        raise FedotpError(f"it failed: {' '.join(str(reply.error.reason).split())}")
    config = reply.content.config_records.get(words.CONFIG, ConfigRecord())
    if words.REFUSED in config:
        raise FedotpError(f"it refuses: {config[words.REFUSED]!s}")
    try:
        return reply.content.metric_records[words.METRICS]
    except KeyError:
        raise FedotpError("its update is refused: the answer says nothing of its images") from None


def _number(metrics: MetricRecord, key: str) -> float:
    value = metrics.get(key)
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise FedotpError(f"its update is refused: the answer says {key} = {value!r}")
    return float(value)
