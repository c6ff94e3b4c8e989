"""Classifiers of a run's clients, from its directory and the backbone; data only where the method needs them."""

import difflib
import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError

from fedotp._files import read_regular
from fedotp.classifier._classifier import Classifier, Origin
from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError, listed
from fedotp.federation import Ints, Simulator
from fedotp.methods import Memory, Parameters
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import (
    Prepared,
    StoredParameters,
    load_backbone,
    make_task,
    restore,
)

_BATCH = 64  # images read at a time
_MOST_BYTES = 4 << 30  # of a client's tensors


class RunClassifiers:
    """The classifiers of all clients of one run, those that joined it later included."""

    def __init__(self, run: str | Path, *, backbone: str | Path | None = None, device: str = "auto") -> None:
        """Load the backbone (another file of the same weights, if given) and read the run's prompts."""
        self.run = RunDirectory.open(run)
        if self.run.config.data.labels == "shuffled":
            raise FedotpError(
                f"{run} was trained on shuffled labels: it is a control, and its classifiers are of no use"
            )
        if wrong := self.run.config.authors.wrong_data:
            raise FedotpError(
                f"{run} has authors.{wrong[0]} = true: it is for comparison with the authors' code, and its "
                "classifiers are of no use"
            )
        self._stored: StoredParameters = StoredParameters.of(self.run)
        config, manifest = self.run.config, self.run.manifest
        source = config.backbone.source if backbone is None else os.path.expanduser(backbone)
        found = device
        self._changes = [f"compute.device={found}", f"backbone.name={source}"]
        self._tower = load_backbone(str(source), found)
        self.run.require_same("backbone", str(source), self._tower.digest)
        self._task = make_task(config, self._tower, manifest["data"]["classes"], manifest["template"])
        self._trained: list[str] = manifest["clients"]
        new = config.federation.held_out(self._trained, manifest["domains"], config.seed)
        self._held_out = frozenset(new.tolist())

    @property
    def names(self) -> tuple[str, ...]:
        """All clients: those that have a part in the run, then those of `fedotp join`."""
        joined = sorted(path.parent.name for path in self.run.path.glob("joined/*/private.safetensors"))
        there = [name for name in self._trained if name not in self.run.config.federation.without]
        return (*there, *(name for name in joined if name not in self._trained))

    def classifier(self, client: str | None = None) -> Classifier:
        """The classifier of `client`, which may be left out where there is one only."""
        client = choose(client, self.names, str(self.run.path))
        number = self._trained.index(client) if client in self._trained else None
        params, memory = self._joined(client) if number is None else self._own(number)
        site = client if number is None else self.run.manifest["domains"][number]
        config = self.run.config
        digest = hashlib.sha256(config.to_toml().encode()).hexdigest()
        return Classifier.of(
            config.method,
            self._task,
            params,
            Origin(client, digest, self.run.manifest["fedotp"], config.backbone.name),
            tower=self._tower,
            storage=config.data.storage,
            precision=config.compute.precision,
            image_precision=config.data.precision,
            window=config.data.window_of(site),
            memory=memory,
        )

    def test_rows(self, client: str) -> tuple[Ints, list[bytes]]:
        """Which test images (n,) are the client's own, and the digest of each one's content."""
        if client not in self._trained:
            raise FedotpError(f"{client} joined the run later, which does not know its images: calibrate by a folder")
        try:
            prepared, simulator = self._restored
        except FedotpError as error:
            raise FedotpError(f"cannot calibrate by the test images of {client}: {error}") from error
        rows = simulator.data.test.clients[self._trained.index(client)]
        return rows, [prepared.encoded.test.contents[row] for row in rows]

    @property
    def trained(self) -> frozenset[bytes]:
        """The digests of the images that some client has trained on; none where the data are not here."""
        try:
            return frozenset(self._restored[0].encoded.train.contents)
        except FedotpError:
            return frozenset()

    def test_images(self, rows: Ints) -> tuple[Iterator[ImageFeatures], list[str]]:
        """The test images at `rows` (n,), a batch at a time, and the names of their classes."""
        test, task = self._restored[1].data.test, self._task
        parts = (rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH))
        images = (test.read(part[None], 0, task.device, task.dtype)[0] for part in parts)
        names = [task.classes[label] for label in test.labels[rows]]
        return (ImageFeatures(image.pooled[0], image.tokens[0]) for image in images), names

    def _own(self, number: int) -> tuple[Parameters, Memory | None]:
        """Parameters (1, ...) and memory of a client of the run."""
        method, alone = self.run.config.method, np.array([number])
        if self.run.is_deployed and (method.private(self._task) or method.uses_memory or method.finetune_epochs != 0):
            raise FedotpError(
                f"{self.run.path} is the server's: what {self._trained[number]} keeps of {method.title} "
                "is at that site alone, as a bundle: the folder classifier in its --state"
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
        """Parameters (1, ...) of a client of `fedotp join`."""
        method, folder = self.run.config.method, self.run.path / "joined" / client
        if method.uses_memory or method.finetune_epochs != 0:
            raise FedotpError(
                f"{method.title} needs the images of {client} itself, and the run does not know where they are; "
                "only clients of the run can be used"
            )
        path = folder / "private.safetensors"
        initial = method.private(self._task)
        try:
            private = safetensors.torch.load(read_regular(path, _MOST_BYTES))
        except (OSError, SafetensorError) as error:
            raise FedotpError(f"cannot read {path}: {error}") from error
        shapes = {name: tuple(value.shape) for name, value in private.items()}
        expected = {name: tuple(value.shape) for name, value in initial.items()}
        if shapes != expected:
            raise FedotpError(f"{path} holds {shapes}, but the run's clients keep {expected}; join the client again")
        return self._stored.deployed(method, self._task, private, None), None

    @cached_property
    def _restored(self) -> tuple[Prepared, Simulator]:
        """The whole federation, with its images."""
        return restore(self.run.path, self._changes)

    @property
    def _federation(self) -> Simulator:
        """The same, for methods that predict with the help of the images."""
        title = self.run.config.method.title
        try:
            return self._restored[1]
        except FedotpError as error:
            raise FedotpError(f"{title} predicts with the help of the client's own images: {error}") from error


def choose(client: str | None, names: Sequence[str], where: str) -> str:
    """The client called `client`; refuse what is not there with what is."""
    if client is None and len(names) == 1:
        return names[0]
    if client is not None and client in names:
        return client
    what = "say which client" if client is None else f"{where} has no client {client!r}"
    near = difflib.get_close_matches(client or "", names, n=3)
    if near:
        raise FedotpError(f"{what}; did you mean {' or '.join(near)}?")
    raise FedotpError(f"{what}; its clients are {listed(names, 8)}")
