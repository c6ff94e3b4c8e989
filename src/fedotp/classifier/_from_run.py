"""The classifiers of a run's clients, from its directory and the backbone; some methods and priors need its data."""

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError

from fedotp._files import read_file, read_json
from fedotp.classifier._calibrate import calibrated_by, line_of, once
from fedotp.classifier._classifier import Classifier, Origin
from fedotp.classifier._prediction import Floats
from fedotp.classifier._prior import ClassPrior, unknown_frequencies
from fedotp.clip import ImageFeatures
from fedotp.config import located
from fedotp.errors import FedotpError
from fedotp.federation import Ints, Simulator
from fedotp.federation.testing import Predictor
from fedotp.limits import Score
from fedotp.methods import Memory, Parameters
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Prepared, StoredParameters, load_backbone, load_data, make_task, restore

TEST = "test"  # in place of a folder
_BATCH = 64  # images read at a time
_MOST_BYTES = 4 << 30  # size limit of a client's tensors
_MOST_RESULT_BYTES = 16 << 20  # size limit of a result of `fedotp join`

log = logging.getLogger("fedotp.classifier")


class RunClassifiers:
    """The classifiers of all clients of one run, including those that joined later."""

    def __init__(
        self,
        run: str | Path,
        *,
        backbone: str | Path | None = None,
        device: str = "auto",
        prior: float | None = None,
        frequencies: Mapping[str, float] | None = None,
    ) -> None:
        """Load the backbone (or another file of the same weights) and read the run's prompts.

        The class prior is that of the run's evaluation, unless the strength `prior` or `frequencies` are given.
        """
        self.run = RunDirectory.open(run)
        self._strength, self._frequencies = prior, frequencies
        if self.run.config.data.labels == "shuffled":
            raise FedotpError(f"{run} was trained on shuffled labels: it is a control, its classifiers are unusable")
        if wrong := self.run.config.authors.wrong_data:
            raise FedotpError(
                f"{run} has authors.{wrong[0]} = true: it is for comparison with the authors' code, its classifiers "
                "are unusable"
            )
        self._stored = StoredParameters.of(self.run)
        config, manifest = self.run.config, self.run.manifest
        source = config.backbone.source if backbone is None else os.path.expanduser(backbone)
        self._changes = [f"compute.device={device}", f"backbone.name={source}"]
        self._tower = load_backbone(str(source), device)
        self.run.require_same("backbone", str(source), self._tower.digest)
        self._task = make_task(config, self._tower, manifest["data"]["classes"], manifest["template"])
        self._trained: list[str] = manifest["clients"]
        new = config.federation.held_out(self._trained, manifest["domains"], config.seed)
        self._held_out = frozenset(new.tolist())

    @property
    def names(self) -> tuple[str, ...]:
        """All clients: those of the run, then those of `fedotp join`."""
        joined = sorted(path.parent.name for path in self.run.path.glob("joined/*/private.safetensors"))
        there = [name for name in self._trained if name not in self.run.config.federation.without]
        return (*there, *(name for name in joined if name not in self._trained))

    def classifier(self, client: str) -> Classifier:
        """Make the classifier of `client`, one of the `names`."""
        number = self._trained.index(client) if client in self._trained else None
        params, memory = self._joined(client) if number is None else self._own(number)
        site = client if number is None else self.run.manifest["domains"][number]
        config = self.run.config
        digest = hashlib.sha256(config.to_toml().encode()).hexdigest()
        made = Classifier(
            Predictor.of(config.method, self._task, params, memory=memory),
            self._tower,
            Origin(client, digest, self.run.manifest["fedotp"], config.backbone.name),
            storage=config.data.storage,
            precision=config.compute.precision,
            image_precision=config.data.precision,
            window=config.data.window_of(site),
        )
        return self._with_prior(made, number)

    def calibrated(self, client: str, by: str | Path, score: Score) -> Classifier:
        """Make the classifier of `client`, calibrated with a folder of images or its own test images (`TEST`)."""
        if by != TEST:
            return calibrated_by(self.classifier(client), by, score=score, trained=self._contents_trained)
        if client not in self._trained:
            raise FedotpError(f"{client} joined later, so its test images are unknown: calibrate it with a folder")
        try:
            prepared, simulator = self._restored
        except FedotpError as error:
            raise FedotpError(f"cannot calibrate with the test images of {client}: {error}") from error
        test, task = simulator.data.test, self._task
        rows = test.clients[self._trained.index(client)]  # (n,)
        if not len(rows):
            raise FedotpError(f"{client} has no test images for calibration; give a folder of its images")
        kept, left_out = once([prepared.encoded.test.contents[row] for row in rows], self._contents_trained)
        if left_out:
            log.warning("%s", line_of(len(kept), left_out))
        rows = rows[kept]
        parts = (rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH))
        images = (test.read(part[None], 0, task.device, task.dtype)[0] for part in parts)
        features = (ImageFeatures(image.pooled[0], image.tokens[0]) for image in images)
        return self.classifier(client)._calibrated(
            features, [task.classes[label] for label in test.labels[rows]], score
        )

    @property
    def _contents_trained(self) -> frozenset[bytes]:
        """Digests of the training images of all clients; none if the data are not available."""
        try:
            return frozenset(self._restored[0].encoded.train.contents)
        except FedotpError:
            return frozenset()

    def _own(self, number: int) -> tuple[Parameters, Memory | None]:
        """Return parameters (1, ...) and memory of a client of the run."""
        method, alone = self.run.config.method, np.array([number])
        if self.run.is_deployed and (method.private(self._task) or method.uses_memory or method.finetune_epochs != 0):
            raise FedotpError(
                f"{self.run.path} is a run of real sites: the private parameters of {self._trained[number]} are stored "
                "only at that site; use the bundle in the folder classifier of its --state"
            )
        if method.finetune_epochs != 0:
            ((_, params),) = self._federation.deployed(alone, new=number in self._held_out)
            return params, None
        private = self._stored.kept_by(method, self._task, number)
        known = None if number in self._held_out else number  # to the server
        params = self._stored.deployed(method, self._task, private, known)
        if not method.uses_memory:
            return params, None
        return params, self._federation.data.memory(alone, self._task.device, self._task.dtype)

    def _joined(self, client: str) -> tuple[Parameters, Memory | None]:
        """Return parameters (1, ...) of a client of `fedotp join`."""
        method, folder = self.run.config.method, self.run.path / "joined" / client
        if method.uses_memory or method.finetune_epochs != 0:
            raise FedotpError(
                f"{method.title} needs the images of {client}, which the run does not contain; use a client of the run"
            )
        path = folder / "private.safetensors"
        initial = method.private(self._task)
        try:
            private = safetensors.torch.load(read_file(path, _MOST_BYTES))
        except SafetensorError as error:
            raise FedotpError(f"cannot read {path}: {error}") from error
        shapes = {name: tuple(value.shape) for name, value in private.items()}
        expected = {name: tuple(value.shape) for name, value in initial.items()}
        if shapes != expected:
            raise FedotpError(f"{path}: expected tensors {expected}, got {shapes}; join the client again")
        return self._stored.deployed(method, self._task, private, None), None

    # Class frequencies -------------------------------------------------------------------------------------

    def _with_prior(self, made: Classifier, number: int | None) -> Classifier:
        """Add a client's class prior; `number` is None for one of `fedotp join`."""
        evaluation, strength = self.run.config.evaluation, self._strength
        if number is None:
            known = self._joined_prior(made.client)
            strength = known.strength if strength is None else strength
        else:
            known = ClassPrior(0.0, evaluation.smoothing, partial(self._counted, made.client, number))
            strength = evaluation.strength if strength is None else strength
        made = replace(made, prior=replace(known, strength=0.0))  # counts images only when needed
        return made.with_prior(strength or self._strength, self._frequencies)

    def _counted(self, client: str, number: int) -> Floats:
        """Return the class counts (K,) of a client's training images."""
        try:
            if self.run.is_deployed:
                raise FedotpError("they are stored only at that site, in the folder classifier of its --state")
            return self._class_counts[number].astype(np.float64)
        except FedotpError as error:
            raise FedotpError(
                f"the class prior needs the class frequencies of {client}: {error}; give --frequencies "
                "(frequencies=...) or --prior 0 (prior=0)"
            ) from error

    @cached_property
    def _class_counts(self) -> Ints:
        """Class counts of all clients (C, K), from the labels alone if all images are used."""
        data = self.run.config.data
        if data.skip_broken:
            return self.run.partition.counts(self._restored[0].dataset)
        dataset = load_data(data)
        dataset = dataset.base_and_novel()[0] if data.classes == "base" else dataset
        self.run.require_same("data", dataset.name, dataset.digest)
        return self.run.partition.counts(dataset)

    def _joined_prior(self, client: str) -> ClassPrior:
        """Read the class prior of a client of `fedotp join` from its result."""
        path = self.run.path / "joined" / client / "result.json"
        found = read_json(path, _MOST_RESULT_BYTES)
        prior = found.get("prior") if isinstance(found, dict) else None
        if not isinstance(prior, dict):
            return unknown_frequencies(f"{client} joined without its class frequencies: join it again")
        with located(str(path)):
            return ClassPrior.from_dict(prior, len(self._task.classes))

    @cached_property
    def _restored(self) -> tuple[Prepared, Simulator]:
        """The restored federation with its images."""
        return restore(self.run.path, self._changes)

    @property
    def _federation(self) -> Simulator:
        """The restored federation, for methods that need images for predictions."""
        title = self.run.config.method.title
        try:
            return self._restored[1]
        except FedotpError as error:
            raise FedotpError(f"{title} needs the client's own images for predictions: {error}") from error
