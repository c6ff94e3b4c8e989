"""The Flower ClientApp of a site, and the process that runs it: registers, trains and evaluates on request."""

import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from huggingface_hub import constants
from numpy.typing import NDArray

from fedotp._files import cache_folder, held
from fedotp._system import listen
from fedotp._text import one_line
from fedotp.classifier import Classifier
from fedotp.errors import FedotpError
from fedotp.federation.testing import Evaluation, Predictions
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower._defaults import quiet_flower
from fedotp.flower._log import log_encoding, start_logging
from fedotp.flower._wire import from_record, to_record
from fedotp.flower.keys import SiteKeys
from fedotp.flower.link import Executor, SuperNode
from fedotp.flower.secure import SiteSession
from fedotp.flower.site._site import Site
from fedotp.flower.site._site_settings import SiteSettings
from fedotp.flower.site._state import make_private
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.site")

_FAILED = "it could not do what was asked; its own log says why"


app = ClientApp()


def _answer(message: Message, context: Context, work: Callable[[Site, ConfigRecord], RecordDict]) -> Message:
    """Do what is asked. A refusal is an answer, too; the server receives its reason if it concerns the federation."""
    try:
        content = work(site_of(context), _config(message))
    except FedotpError as error:
        log.error("refused: %s", one_line(error))
        why = one_line(error) if isinstance(error, DisagreementError) else _FAILED
        content = RecordDict({wire.CONFIG: ConfigRecord({wire.REFUSED: why})})
    return Message(content, reply_to=message)


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Say who this is; once the classes are known, prepare everything and say what there is to train on."""

    def work(site: Site, config: ConfigRecord) -> RecordDict:
        agreement = Agreement.of(config)
        site.sums.require(agreement)
        facts: dict[str, Any] = {wire.NAME: site.settings.name, wire.PART: site.settings.part}
        if agreement.classes:
            facts |= site.agree(agreement, _int(config, wire.NUMBER))
        else:
            facts[wire.CLASSES] = list(site.classes(agreement.config))
        return RecordDict({wire.CONFIG: ConfigRecord(facts)})

    return _answer(message, context, work)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a round and send the update: nothing private is in it."""

    def work(site: Site, config: ConfigRecord) -> RecordDict:
        order = _order(site, message)
        if order[0].secure is not None:
            return RecordDict({wire.ARRAYS: ArrayRecord({wire.MASKED: Array(_masked(site, message, order))})})
        done = site.train(*order)
        metrics = MetricRecord({wire.EXAMPLES: done.n_examples, wire.IMAGES: done.n_images})
        if site.settings.shares("loss") and done.n_examples and not math.isnan(done.loss):
            metrics[wire.LOSS] = done.loss
        if done.steps is not None:
            metrics[wire.STEPS] = done.steps
        return RecordDict({wire.ARRAYS: to_record(done.update), wire.METRICS: metrics})

    return _answer(message, context, work)


@app.query(wire.KEYS)
def secure_keys(message: Message, context: Context) -> Message:
    """Begin a secure sum: make keys for it."""

    def work(site: Site, config: ConfigRecord) -> RecordDict:
        agreement, number = Agreement.of(config), _int(config, wire.NUMBER)
        n_images = site.agree(agreement, number)[wire.TRAIN_IMAGES]
        keys = site.sums.keys(agreement, config, number, _int(config, wire.ACCEPTED), n_images)
        return RecordDict({wire.CONFIG: ConfigRecord({wire.KEYS: keys})})

    return _answer(message, context, work)


@app.query(wire.SHARES)
def secure_shares(message: Message, context: Context) -> Message:
    """Deal out shares of this site's secrets of the sum."""
    return _answer(message, context, lambda site, config: _said(site.sums.shares(Agreement.of(config), config)))


@app.query(wire.SURVIVORS)
def secure_survivors(message: Message, context: Context) -> Message:
    """Sign who is in the sum."""

    def work(site: Site, config: ConfigRecord) -> RecordDict:
        return _said({wire.SURVIVORS: site.sums.endorsed(Agreement.of(config), config)})

    return _answer(message, context, work)


@app.query(wire.SIGNATURES)
def secure_signatures(message: Message, context: Context) -> Message:
    """Reveal shares, once enough sites have signed who is in the sum."""
    return _answer(message, context, lambda site, config: _said(site.sums.revealed(Agreement.of(config), config)))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the site's own classifier on its own test images, and report what the site shares of it."""

    def work(site: Site, config: ConfigRecord) -> RecordDict:
        order = _order(site, message)
        privacy = order[0].config.privacy
        is_covered = privacy.private or not privacy.of_steps  # what predicts may have learned without noise
        silence = RecordDict({wire.METRICS: MetricRecord({wire.EXAMPLES: 0})})
        try:
            predictions, classifier = site.test(*order)
        except FedotpError as error:
            if is_covered:
                raise
            log.error("the site's test failed: %s", one_line(error))  # which the server must not see
            return silence
        _keep_classifier(site, classifier, order[0].run, last=bool(config.get(wire.LAST)))
        if not site.settings.shares("scores") or not is_covered:
            return silence
        content = RecordDict({wire.METRICS: _scores(predictions, len(order[0].classes))})
        if site.settings.shares("predictions"):
            columns = {name: getattr(predictions, name) for name in wire.COLUMNS}
            content[wire.PREDICTIONS] = ArrayRecord({name: Array(value) for name, value in columns.items()})
        return content

    return _answer(message, context, work)


def _said(facts: dict[str, Any]) -> RecordDict:
    return RecordDict({wire.CONFIG: ConfigRecord(facts)})


def _masked(site: Site, message: Message, order: tuple[Agreement, int, int, int, Parameters]) -> NDArray[np.uint64]:
    """Train, and mask all there is to say of it."""

    def work(session: SiteSession) -> NDArray[np.uint64]:
        done = site.train(*order)
        values = {name: value.detach().cpu().numpy() for name, value in done.update.items()}
        return session.encode(values, loss=done.loss if site.settings.shares("loss") else None, n_images=done.n_images)

    return site.sums.masked(_config(message), order, work)


def _keep_classifier(site: Site, classifier: Classifier, run: str, *, last: bool) -> None:
    """Write the site's classifier as it is now; if that fails, the evaluation is not lost with it."""
    try:
        folder = site.keep_classifier(classifier, run, last=last)
    except FedotpError as error:
        log.error("this site's classifier is not kept: %s", error)
        return
    if last:
        log.info("the run has ended; this site's classifier is %s", folder)


def _scores(predictions: Predictions, n_classes: int) -> MetricRecord:
    if not len(predictions.row):
        return MetricRecord({wire.EXAMPLES: 0})
    evaluation = Evaluation.of(predictions, n_classes, (None,) * (int(predictions.client.max()) + 1))
    values = {wire.of_metric(key): value for key, value in evaluation.of_client(0).items()}
    return MetricRecord({wire.EXAMPLES: int(evaluation.n[0]), **values})


def _order(site: Site, message: Message) -> tuple[Agreement, int, int, int, Parameters]:
    """What to do: agreement, the site's number, round, last accepted round, and what was received."""
    config = _config(message)
    agreement, number = Agreement.of(config), _int(config, wire.NUMBER)
    arrays = message.content.array_records.get(wire.ARRAYS, ArrayRecord())
    expected = site.expected(agreement, number)
    try:
        received = from_record(arrays, expected)
    except FedotpError as error:
        raise DisagreementError(f"the server's prompt does not fit here: {error}") from error
    return agreement, number, _int(config, wire.ROUND), _int(config, wire.ACCEPTED), received


def _config(message: Message) -> ConfigRecord:
    records = message.content.config_records if message.has_content() else {}
    return records.get(wire.CONFIG, ConfigRecord())


def _int(config: ConfigRecord, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int):
        raise DisagreementError(f"the server's message does not say {key!r}")
    return value


def site_of(context: Context) -> Site:
    """The site that this process is, from Flower's node configuration; loaded once.

    Keys: `name`, `data` or `part` (in simulations: Flower's `partition-id`), `state`, `share`, `backbone`, `device`,
    `keys`, `require_secure`, `secure_sites`, `require_privacy`, `privacy_unit`, `privacy_delta`, `least_noise`.
    """
    given = context.node_config
    part = int(given.get("part", given.get("partition-id", -1))) if "data" not in given else -1
    name = str(given.get("name", f"client-{part}"))
    state = Path(str(given.get("state") or cache_folder() / "sites" / name)).expanduser()
    options: dict[str, Any] = {
        key: str(given[key]) for key in ("data", "share", "backbone", "device", "keys", "privacy_unit") if key in given
    }
    options |= {key: float(given[key]) for key in ("require_privacy", "privacy_delta", "least_noise") if key in given}
    options |= {key: given[key] for key in ("require_secure", "secure_sites") if key in given}
    return _site(SiteSettings(name, state, part=part, **options))


@lru_cache(maxsize=32)  # one, but for the virtual sites of a simulation
def _site(settings: SiteSettings) -> Site:
    start_logging()
    return Site(settings, log_encoding(log))


__all__ = ["app", "site_of"]


def run_site(settings: SiteSettings, server: str, keys: SiteKeys | None) -> None:
    """Connect to the server at HOST:PORT and answer its requests until the process is stopped."""
    os.umask(0o077)  # only the owner can read what is written here
    quiet_flower(settings.state / "flower")
    stay_offline()
    start_logging()
    own = {item.name: _plain(getattr(settings, item.name)) for item in fields(settings)}
    own = {key: value for key, value in own.items() if value not in ("", -1)}

    def answer(message: Message, context: Context) -> Message:
        context.node_config = own  # the site's own settings replace those that came with the message
        with node.working():
            return app(message, context)

    node = SuperNode(server, keys, settings.state)
    executor = Executor(node.address, node.secret, answer)
    stopping = partial(log.info, "stopping when the message in progress is done; once more stops at once")
    with alone_in(settings.state), listen(stopping) as stop:
        node.start()
        try:
            while not stop.wanted:
                node.require_accepted()
                executor.step()
        except KeyboardInterrupt:
            log.info("stopped at once; the server asks for the message in progress again")
            raise
        finally:
            node.stop()


def stay_offline() -> None:
    """Download nothing because a server asks for it.

    The hub's library reads the environment once, and has done so already where the site's images come from the hub.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants.HF_HUB_OFFLINE = True


def _plain(value: Any) -> bool | float | int | str:
    return value if isinstance(value, int | float) else str(value)


@contextmanager
def alone_in(state: Path) -> Iterator[None]:
    """Hold a site's folder, for its owner only: two processes must not write to it."""
    make_private(state)
    with held(state / "lock", f"{state} is held by another `fedotp client`; stop it, or give another --state"):
        yield
