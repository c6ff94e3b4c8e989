"""A site: one client of a real federation, with its images, its frozen backbone and its private prompt."""

import hashlib
import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

import fedotp
from fedotp._files import write_atomically
from fedotp.classifier import Classifier, ClassPrior, Origin, backbone_name
from fedotp.config import Config
from fedotp.data import Dataset, OnProgress
from fedotp.errors import FedotpError, listed
from fedotp.federation import FederatedData, Ints, Settings
from fedotp.federation.clients import Clients, LocalResult
from fedotp.federation.testing import Predictions, Predictor
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower._events import record
from fedotp.flower.keys import KeyIdentity, SiteKeys, key_facts
from fedotp.flower.records import SiteTranscript
from fedotp.flower.site._limits import require_bounded, require_memory, require_room
from fedotp.flower.site._secure import SecureSums
from fedotp.flower.site._site_settings import SiteSettings
from fedotp.flower.site._state import Ledger, PrivateFile, make_private
from fedotp.methods import Method, Parameters, Task
from fedotp.privacy import Entropy
from fedotp.runs.one import load_backbone, make_task

log = logging.getLogger("fedotp.site")

_MOST_SITES = 100_000
_ONLY: Ints = np.zeros(1, np.int64)  # the row of the only client


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a round at a site: its update (no client axis), number of images and mean objective.

    With privacy of images, `steps` is the total number of noisy steps; the objective is then nan and `n_images` the
    expected number, because neither is noised.
    """

    update: Parameters
    n_examples: int
    loss: float
    n_images: int
    steps: int | None = None


class Site:
    """Answers the server's requests. The backbone and the encoded images stay in memory between messages."""

    def __init__(self, settings: SiteSettings, on_encoding: OnProgress | None = None) -> None:
        """Make a site; images and backbone are loaded on the first request."""
        self.settings = settings
        self._on_encoding = on_encoding
        self._work: tuple[str, int, _Work] | None = None
        self.transcript = SiteTranscript(settings.state / "transcripts", settings.name, lambda: self._identity)
        self.sums = SecureSums(settings.name, lambda: self._identity, settings.limits)

    def permit(self, agreement: Agreement, round_: int = 0, n_images: int = 1) -> None:
        """Raise DisagreementError for an order beyond the owner's policy, at a site with `n_images` or more."""
        limits = self.settings.limits
        require = partial(limits.require, agreement, authority=self._authority, round_=round_, n_images=n_images)
        require()
        if limits.hours is not None:  # a refused order begins no run
            began = self.settings.state / agreement.run / "began"
            if not began.exists():
                make_private(began.parent)
                write_atomically(began, "")
            require(hours=(time.time() - began.stat().st_mtime) / 3600)

    @cached_property
    def _identity(self) -> KeyIdentity:
        """The site's key and the public keys of the others, read on first use."""
        held = SiteKeys.read(Path(self.settings.keys)) if self.settings.keys else None
        return KeyIdentity(None, None) if held is None else KeyIdentity(held.key, held.peers)

    @cached_property
    def _authority(self) -> str:
        """The fingerprint of the federation's authority; "" without keys."""
        facts = key_facts(Path(self.settings.keys)) if self.settings.keys else []
        return next((digest for what, digest, _ in facts if what == "authority"), "")

    def classes(self, config: Config) -> tuple[str, ...]:
        """Return the site's class names, in order."""
        return self.settings.source.dataset(self.settings.local(config)).classes

    def agree(self, agreement: Agreement, number: int) -> dict[str, Any]:
        """Prepare to work as client `number`, and return the facts for the server."""
        work = self._prepared(agreement, number)
        data = work.clients.data
        if not work.ledger.steps:
            work.ledger.require_room(self.settings.name)
        return {
            wire.DOMAIN: data.domains[0] or "",
            wire.TRAIN_IMAGES: int(data.train.sizes(_ONLY)[0]),
            wire.TEST_IMAGES: int(data.test.sizes(_ONLY)[0]),
            **({wire.STEPS: work.ledger.steps} if agreement.config.privacy.of_steps else {}),
        }

    def train(self, agreement: Agreement, number: int, round_: int, accepted: int, received: Parameters) -> Trained:
        """Train in round `round_` (counted from 1) from the received parameters (no client axis).

        `accepted` is the last round whose update the server has accepted, 0 for none; the site starts from its private
        prompt after that round.
        """
        work = self._prepared(agreement, number)
        work.recall(accepted)
        clients = work.clients
        clients.round = round_ - 1
        clients.received = received
        n_examples = int(clients.data.train.sizes(_ONLY)[0])
        if not n_examples:
            return Trained({}, 0, float("nan"), 0)
        work.ledger.require_room(self.settings.name)
        ((_, result),) = clients.train(clients.round_work(_ONLY))
        work.ledger.add(round_)  # first, because scores can depend on the saved prompt
        work.keep(round_, result, accepted)
        update = {name: value[0] for name, value in clients.upload(_ONLY, result).items()}
        if not clients.settings.privacy.of_steps:
            return Trained(update, n_examples, float(result.loss[0]), result.n_images)
        log.info(
            "round %d: privacy spent by this site: epsilon %.3g in this run, %.3g in all runs",
            *(round_, work.ledger.epsilon(), work.ledger.total()),
        )
        privacy, spent = clients.settings.privacy, {"epsilon": work.ledger.epsilon(), "total": work.ledger.total()}
        record("privacy-spent", run=agreement.run, unit=privacy.unit, delta=privacy.delta, **spent)
        expected = n_examples * clients.settings.federation.local_epochs
        return Trained(update, n_examples, float("nan"), expected, work.ledger.steps)

    def test(
        self, agreement: Agreement, number: int, round_: int, accepted: int, received: Parameters
    ) -> tuple[Predictions, Classifier]:
        """Predict the site's test images after round `round_`; return predictions and classifier."""
        work = self._prepared(agreement, number)
        work.recall(accepted)
        clients = work.clients
        clients.round = round_
        clients.received = received
        ((_, params),) = clients.deployed(_ONLY)
        return clients.predict_with(_ONLY, params), self._classifier(agreement, clients, params)

    def _classifier(self, agreement: Agreement, clients: "_OneClient", params: Parameters) -> Classifier:
        config = self.settings.local(agreement.config)
        digest = hashlib.sha256(agreement.config.to_toml().encode()).hexdigest()
        uses_memory = clients.method.uses_memory
        memory = clients.data.memory(_ONLY, clients.task.device, clients.task.dtype) if uses_memory else None
        return Classifier(
            Predictor.of(clients.method, clients.task, params, memory=memory),
            load_backbone(config.backbone.source, clients.device),
            Origin(self.settings.name, digest, fedotp.__version__, config.backbone.name),
            storage=config.data.storage,
            precision=config.compute.precision,
            image_precision=config.data.precision,
            window=config.data.window,
            prior=ClassPrior.from_dict(clients.tester.class_prior(0), len(clients.task.classes)),
        )

    def keep_classifier(self, classifier: Classifier, run: str, *, last: bool) -> None:
        """Save the classifier of a run as a bundle; after the run's end, also replace that of the last run.

        Errors are logged, so that the evaluation is not lost.
        """
        folders = [self.settings.state / run / "classifier", *([self.settings.state / "classifier"] if last else [])]
        try:
            make_private(folders[0].parent)
            for folder in folders:
                classifier.save(folder, force=True, with_memory=classifier.predictor.memory is not None)
                record("release", what="classifier", path=str(folder), run=run)
        except FedotpError as error:
            log.error("cannot save this site's classifier: %s", error)
            return
        if last:
            log.info("the run has ended; saved this site's classifier to %s", folders[-1])

    def expected(self, agreement: Agreement, number: int) -> Parameters:
        """Return parameters with the names, shapes and types of those in the server's messages."""
        return self._prepared(agreement, number).clients.example

    def _prepared(self, agreement: Agreement, number: int) -> "_Work":
        """Return the prepared client for this agreement, made on first use."""
        if self._work is None or self._work[:2] != (agreement.digest, number):
            self._work = None  # free the memory of the previous agreement first
            self._work = agreement.digest, number, self._prepare(agreement, number)
        return self._work[2]

    def _prepare(self, agreement: Agreement, number: int) -> "_Work":
        settings = self.settings
        if not 0 <= number < _MOST_SITES:
            raise DisagreementError(f"the site's number must be from 0 to {_MOST_SITES - 1}, got {number}")
        require_bounded(agreement.config, settings.name)
        config = settings.local(agreement.config)
        clip = load_backbone(config.backbone.source, config.compute.device)
        if clip.digest != agreement.backbone:
            raise DisagreementError(
                f"site {settings.name} has backbone {backbone_name(config.backbone.name)} {clip.digest[:12]}, expected "
                f"{agreement.config.backbone.name} {agreement.backbone[:12]}; install the same file"
            )
        dataset = settings.source.dataset(config)
        self._check_classes(agreement, dataset)
        task = make_task(config, clip, agreement.classes, agreement.template)
        n_train, n_test = len(dataset.train), len(dataset.test)
        require_memory(task, config, max(n_train, n_test), settings.name)
        require_room(config, clip, n_train, n_test, settings.name)
        data = settings.source.images(config, agreement.classes, clip, self._on_encoding)
        clients = _OneClient(config.method, task, replace(data, numbers=(number,)), config.settings)
        n_images = int(clients.data.train.sizes(_ONLY)[0])
        self.permit(agreement, n_images=n_images)
        private = PrivateFile(settings.state / agreement.run / "private.safetensors", config.privacy)
        ledger = Ledger(settings.state / "releases.jsonl", agreement.run, clients.settings, n_images, settings.limits)
        log.info("site %s ready: %s, %d training images", settings.name, config.method.title, n_images)
        if agreement.secure is None:
            log.info("the server sees this site's update of the shared prompt in every round")
        else:
            share = 100 * agreement.secure.share
            log.info(
                "the server sees only sums of updates, which more than %.0f %% of a round's sites must open", share
            )
        if config.privacy.of_steps:
            log.info(
                "privacy of each training %s: epsilon %.3g at delta %g spent in this run, %.3g in all runs, %.3g after "
                "%d more rounds",
                *(config.privacy.unit, ledger.epsilon(), config.privacy.delta, ledger.total()),
                *(ledger.total(config.federation.rounds), config.federation.rounds),
            )
        return _Work(clients, private, ledger)

    def _check_classes(self, agreement: Agreement, dataset: Dataset) -> None:
        """Raise DisagreementError if the site has a class that is not among the federation's."""
        known = set(agreement.classes)
        if (unknown := next((name for name in dataset.classes if name not in known), None)) is not None:
            raise DisagreementError(
                f"site {self.settings.name} has the class {unknown!r}, which is not in the federation; "
                f"the federation's classes are {listed(agreement.classes)}"
            )


class _OneClient(Clients):
    """A site's only client; `received` is set before each request."""

    def __init__(self, method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
        sent = method.send(method.shared(task, 1), None, 1)  # of the same shape for any number of sites
        self.example = {name: value[0] for name, value in sent.items()}
        self.received = self.example
        super().__init__(method, task, data, settings)
        if settings.privacy.of_steps:
            self.trainer.entropy = Entropy()  # because the server knows the seed

    def _received(self, clients: Ints, *, new: bool = False) -> Parameters:
        return {name: value[None].to(self.device) for name, value in self.received.items()}


@dataclass(frozen=True, eq=False)
class _Work:
    """A site's client, its file of private parameters, and its privacy ledger."""

    clients: _OneClient
    private: PrivateFile
    ledger: Ledger

    def recall(self, accepted: int) -> None:
        """Restore the private parameters after round `accepted`."""
        kept = self.clients.kept
        kept.slot[_ONLY] = -1  # the initial parameters
        if not accepted or not kept.layout:
            return
        params = self.private.after(accepted)
        if params is None:
            last = self.private.rounds[-1:]
            log.warning(
                "%s does not contain the private prompt after round %d; continuing from %s",
                *(self.private.path, accepted, f"round {last[0]}" if last else "the initial prompt"),
            )
            params = self.private.after(last[0]) if last else None
        if params is not None:
            shapes = {name: f"{value.dtype} {tuple(value.shape)}" for name, value in params.items()}
            if shapes != kept.layout:
                raise FedotpError(
                    f"{self.private.path}: expected {kept.layout}, got {shapes}; restore it from a backup, or remove it"
                )
            kept.write(_ONLY, {name: value[None] for name, value in params.items()})

    def keep(self, round_: int, result: LocalResult, accepted: int) -> None:
        """Save the private parameters after a round that started from those after round `accepted`."""
        self.clients.keep(_ONLY, result)
        rows = self.clients.kept.read(_ONLY, self.clients.device)
        if rows:
            self.private.keep(round_, {name: value[0] for name, value in rows.items()}, accepted)
