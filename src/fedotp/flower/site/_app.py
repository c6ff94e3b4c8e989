"""The Flower ClientApp of a site, and the process that runs it: registers, trains and evaluates on request."""

import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from huggingface_hub import constants
from numpy.typing import NDArray

from fedotp._files import cache_folder, held
from fedotp._system import listen
from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.federation.testing import Evaluation
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower._defaults import quiet_flower
from fedotp.flower._events import record, recording_life
from fedotp.flower._log import log_encoding, start_logging
from fedotp.flower._wire import digest_of, from_record, to_record
from fedotp.flower.keys import ExpiryWarnings, SiteKeys
from fedotp.flower.link import Executor, SuperNode
from fedotp.flower.records import security_log
from fedotp.flower.secure import Session, SiteSession
from fedotp.flower.site._policy import read_policy
from fedotp.flower.site._secure import SecureSums
from fedotp.flower.site._site import Site
from fedotp.flower.site._site_settings import SiteSettings
from fedotp.flower.site._state import make_private
from fedotp.flower.status import Status, StatusAddress, serve_status
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.site")

_FAILED = "internal error; see the site's log"


class _App(ClientApp):
    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message; also record one of an unknown kind, or whose answer fails."""
        try:
            return super().__call__(message, context)
        except Exception:
            record("order-refused", **_facts(None, message), reason=_FAILED)
            raise


app = _App()


Order = tuple[Agreement, int, int, int, Parameters]
"""Agreement, the site's number, round, last accepted round, and received parameters."""

Work = Callable[[Site, Agreement, Message], RecordDict]


def _answering(work: Work) -> Callable[[Message, Context], Message]:
    """Make a handler that does `work`, or answers with a refusal; only a DisagreementError is sent in full."""

    def answer(message: Message, context: Context) -> Message:
        agreement = None
        try:
            agreement = Agreement.of(_config(message))
            site = site_of(context)
            site.permit(agreement, _round(message))
            if message.metadata.message_type.startswith(MessageType.QUERY):  # others are recorded by `_order`
                record("order", **_facts(agreement, message), digest="")
            content = work(site, agreement, message)
        except FedotpError as error:
            log.error("request refused: %s", one_line(error))
            reason = one_line(error) if isinstance(error, DisagreementError) else _FAILED
            record("order-refused", **_facts(agreement, message), reason=reason)
            content = _said({wire.REFUSED: reason})
        return Message(content, reply_to=message)

    return answer


@app.query()
@_answering
def hello(site: Site, agreement: Agreement, message: Message) -> RecordDict:
    """Report the site's name and classes or, once the classes are agreed, prepare and report numbers of images."""
    facts: dict[str, Any] = {wire.NAME: site.settings.name, wire.PART: site.settings.part}
    if agreement.classes:
        return _said(facts | site.agree(agreement, _int(_config(message), wire.NUMBER)))
    return _said(facts | {wire.CLASSES: list(site.classes(agreement.config))})


@app.train()
@_answering
def train(site: Site, agreement: Agreement, message: Message) -> RecordDict:
    """Train for a round and send the update, which contains no private parameters."""
    order = _order(site, agreement, message)
    if agreement.secure is not None:
        return _masked(site, _config(message), order)
    done = site.train(*order)
    digest = digest_of(done.update)
    record("update", run=agreement.run, round=order[2], weight=done.n_examples, digest=digest)
    metrics = MetricRecord({wire.EXAMPLES: done.n_examples, wire.IMAGES: done.n_images})
    if site.settings.shares("loss") and done.n_examples and not math.isnan(done.loss):
        metrics[wire.LOSS] = done.loss
    if done.steps is not None:
        metrics[wire.STEPS] = done.steps
    content = _signed(site, order, digest, done.n_examples) if done.n_examples else RecordDict()
    content.update({wire.ARRAYS: to_record(done.update), wire.METRICS: metrics})
    return content


@app.query(wire.KEYS)
@_answering
def secure_keys(site: Site, agreement: Agreement, message: Message) -> RecordDict:
    """Begin a secure sum: make and send keys."""
    config = _config(message)
    number = _int(config, wire.NUMBER)
    n_images = site.agree(agreement, number)[wire.TRAIN_IMAGES]
    return _said({wire.KEYS: site.sums.keys(agreement, config, number, _int(config, wire.ACCEPTED), n_images)})


def _answer_step(step: str, work: Callable[[SecureSums, Agreement, ConfigRecord], dict[str, Any]]) -> None:
    """Let a site answer a step of a secure sum."""
    app.query(step)(_answering(lambda site, agreement, message: _said(work(site.sums, agreement, _config(message)))))


_answer_step(wire.SHARES, SecureSums.shares)
_answer_step(wire.SURVIVORS, SecureSums.endorsed)
_answer_step(wire.SIGNATURES, SecureSums.revealed)


@app.evaluate()
@_answering
def evaluate(site: Site, agreement: Agreement, message: Message) -> RecordDict:
    """Evaluate the site's classifier on its own test images, and report the results that the site shares."""
    order = _order(site, agreement, message)
    site.transcript.evaluation(agreement, order[2], digest_of(order[4]))
    privacy = agreement.config.privacy
    is_covered = privacy.private or not privacy.of_steps  # else private parameters were trained without noise
    silence = RecordDict({wire.METRICS: MetricRecord({wire.EXAMPLES: 0})})
    try:
        predictions, classifier = site.test(*order)
    except FedotpError as error:
        if is_covered:
            raise
        log.error("evaluation failed: %s", one_line(error))  # the server must not receive this
        return silence
    site.keep_classifier(classifier, agreement.run, last=bool(_config(message).get(wire.LAST)))
    if not len(predictions.row):
        return silence
    evaluation = Evaluation.of(predictions, len(agreement.classes), (None,) * (int(predictions.client.max()) + 1))
    record("evaluation", run=agreement.run, round=order[2], accuracy=evaluation.mean)
    if not site.settings.shares("scores") or not is_covered:
        return silence
    values = {wire.of_metric(key): value for key, value in evaluation.of_client(0).items()}
    content = RecordDict({wire.METRICS: MetricRecord({wire.EXAMPLES: int(evaluation.n[0]), **values})})
    if site.settings.shares("predictions"):
        columns = {name: getattr(predictions, name) for name in wire.COLUMNS}
        content[wire.PREDICTIONS] = ArrayRecord({name: Array(value) for name, value in columns.items()})
    return content


def _said(facts: dict[str, Any]) -> RecordDict:
    return RecordDict({wire.CONFIG: ConfigRecord(facts)})


def _signed(site: Site, order: Order, digest: str, weight: int) -> RecordDict:
    """Record an update in the site's transcript; return the signature of the statement about it."""
    agreement, _, round_, _, received = order
    signature = site.transcript.update(agreement, round_, digest_of(received), digest, weight)
    return _said({wire.SIGNATURE: signature})


def _masked(site: Site, config: ConfigRecord, order: Order) -> RecordDict:
    """Train, and mask the result."""

    def work(session: SiteSession) -> NDArray[np.uint64]:
        done = site.train(*order)
        values = {name: value.detach().cpu().numpy() for name, value in done.update.items()}
        has_loss = site.settings.shares("loss") and not math.isnan(done.loss)
        return session.encode(values, loss=done.loss if has_loss else None, n_images=done.n_images)

    masked, weight = site.sums.masked(config, order, work)
    digest = digest_of({wire.MASKED: torch.from_numpy(masked.view(np.int64))})
    record("update", run=order[0].run, round=order[2], weight=weight, digest=digest)
    content = _signed(site, order, digest, weight)
    content[wire.ARRAYS] = ArrayRecord({wire.MASKED: Array(masked)})
    return content


def _facts(agreement: Agreement | None, message: Message) -> dict[str, Any]:
    """Describe a request for the events; invalid requests may lack an agreement."""
    return {
        "kind": message.metadata.message_type.removeprefix("query.").replace("query", "hello"),
        "run": agreement.run if agreement else "",
        "round": _round(message),
        "agreement": agreement.digest if agreement else "",
    }


def _round(message: Message) -> int:
    """Return the round of a request, the later if its secure sum has another; 0 without a valid round."""
    config, rounds = _config(message), [0]
    with suppress(FedotpError):
        rounds.append(_int(config, wire.ROUND))
    with suppress(FedotpError):
        rounds.append(Session.of(str(config.get(wire.SESSION))).round)
    return max(rounds)


def _order(site: Site, agreement: Agreement, message: Message) -> Order:
    """Parse a request."""
    config = _config(message)
    number = _int(config, wire.NUMBER)
    arrays = message.content.array_records.get(wire.ARRAYS, ArrayRecord())
    expected = site.expected(agreement, number)
    try:
        received = from_record(arrays, expected)
    except FedotpError as error:
        raise DisagreementError(f"the server sent an invalid prompt: {error}") from error
    record("order", **_facts(agreement, message), digest=digest_of(received))
    return agreement, number, _int(config, wire.ROUND), _int(config, wire.ACCEPTED), received


def _config(message: Message) -> ConfigRecord:
    records = message.content.config_records if message.has_content() else {}
    return records.get(wire.CONFIG, ConfigRecord())


def _int(config: ConfigRecord, key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 0:
        raise DisagreementError(f"the server's message contains no integer {key!r} of at least 0")
    return value


def site_of(context: Context) -> Site:
    """Make this process's site from Flower's node configuration, once.

    The keys are attributes of SiteSettings; in simulations Flower's `partition-id` is the part.
    """
    given = context.node_config
    part = int(given.get("part", given.get("partition-id", -1))) if "data" not in given else -1
    name = str(given.get("name", f"client-{part}"))
    state = Path(str(given.get("state") or cache_folder() / "sites" / name)).expanduser()
    own = {item.name for item in fields(SiteSettings)} & given.keys() - {"name", "state", "part"}
    options: dict[str, Any] = {key: type(getattr(SiteSettings, key))(given[key]) for key in own}
    return _site(SiteSettings(name, state, part=part, **options))


@lru_cache(maxsize=32)  # several only for the virtual sites of a simulation
def _site(settings: SiteSettings) -> Site:
    start_logging()
    return Site(settings, log_encoding(log))


def run_site(
    settings: SiteSettings,
    server: str,
    keys: SiteKeys | None,
    status: StatusAddress | None = None,
    *,
    policy: Path | None = None,
    policy_key: Path | None = None,
    log_format: str = "text",
) -> None:
    """Connect to the server at HOST:PORT and answer its requests until the process is stopped.

    The owner's `policy` is read after the start of the security log, which records an invalid one.
    """
    os.umask(0o077)  # new files are readable by their owner only
    quiet_flower(settings.state / "flower")
    stay_offline()
    start_logging(log_format)
    own = {**vars(settings), "state": str(settings.state)}
    own = {key: value for key, value in own.items() if value not in ("", -1)}

    def answer(message: Message, context: Context) -> Message:
        context.node_config = own  # the site's own settings replace those of the message
        with node.working():
            return app(message, context)

    node = SuperNode(server, keys, settings.state)
    expiry = None if keys is None else ExpiryWarnings(log, keys.certificates)
    executor = Executor(node.address, node.secret, answer)
    stopping = partial(log.info, "stopping after the request in progress; press Ctrl-C again to stop immediately")
    log_file, life = settings.state / "security.jsonl", recording_life("site", name=settings.name, server=server)
    shown = serve_status(status, Status("site", [server], node.seen, settings.name))
    with alone_in(settings.state), security_log(log_file), shown, life, listen(stopping) as stop:
        text = read_policy(policy, policy_key) if policy else ""
        own |= {"policy": text} if text else {}
        digest = hashlib.sha256(text.encode()).hexdigest() if text else None
        record("configuration", what="site", share=settings.share, policy=digest)
        node.start()
        try:
            while not stop.wanted:
                node.require_accepted()
                if expiry is not None:
                    expiry.check()
                executor.step()
        except KeyboardInterrupt:
            log.info("stopped; the server will repeat the request in progress")
            raise
        finally:
            node.stop()


def stay_offline() -> None:
    """Disable downloads at the server's request, also if the hub's library has already read the environment."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants.HF_HUB_OFFLINE = True


@contextmanager
def alone_in(state: Path) -> Iterator[None]:
    """Lock a site's folder, for its owner only: two processes must not write to it."""
    make_private(state)
    with held(state / "lock", f"{state} is in use by another `fedotp client`; stop it, or choose another --state"):
        yield
