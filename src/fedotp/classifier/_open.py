"""From a path to classifiers, calibrated where that is asked for: a run has many, a bundle one.

A run's classifiers need its directory and the backbone; its data only where the method needs them.
"""

import difflib
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError

from fedotp._files import parse_json, read_regular
from fedotp._text import counted
from fedotp.classifier._bundle import FACTS, Bundle
from fedotp.classifier._classifier import Classifier, Origin
from fedotp.classifier._prediction import Floats
from fedotp.classifier._prior import ClassPrior, unknown_frequencies
from fedotp.clip import ImageFeatures
from fedotp.config import located
from fedotp.data import load_dataset
from fedotp.data.store import content_of
from fedotp.errors import FedotpError, listed
from fedotp.federation import Ints, Simulator
from fedotp.federation.testing import Predictor
from fedotp.limits import SCORE, Score
from fedotp.methods import Memory, Parameters
from fedotp.runs.directory import RunDirectory, find_runs
from fedotp.runs.one import Prepared, StoredParameters, class_numbers, load_backbone, load_data, make_task, restore

TEST = "test"  # in place of a folder
_BATCH = 64  # images read at a time
_MOST_BYTES = 4 << 30  # of a client's tensors
_MOST_RESULT_BYTES = 16 << 20  # of what was written when it joined

log = logging.getLogger("fedotp.classifier")


class RunClassifiers:
    """The classifiers of all clients of one run, those that joined it later included."""

    def __init__(
        self,
        run: str | Path,
        *,
        backbone: str | Path | None = None,
        device: str = "auto",
        prior: float | None = None,
        frequencies: Mapping[str, float] | None = None,
    ) -> None:
        """Load the backbone (another file of the same weights, if given) and read the run's prompts.

        Classifiers have the class prior of the run's evaluation, but for a strength `prior` and `frequencies` given.
        """
        self.run = RunDirectory.open(run)
        self._strength, self._frequencies = prior, frequencies
        if self.run.config.data.labels == "shuffled":
            raise FedotpError(
                f"{run} was trained on shuffled labels: it is a control, and its classifiers are of no use"
            )
        if wrong := self.run.config.authors.wrong_data:
            raise FedotpError(
                f"{run} has authors.{wrong[0]} = true: it is for comparison with the authors' code, and its "
                "classifiers are of no use"
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
        """The classifier of `client`, one of the `names`."""
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
        """The classifier of `client`, calibrated by a folder of images, or by its own test images (`TEST`)."""
        if by != TEST:
            return calibrated_by(self.classifier(client), by, score=score, trained=self._contents_trained)
        if client not in self._trained:
            raise FedotpError(f"{client} joined the run later, which does not know its images: calibrate by a folder")
        try:
            prepared, simulator = self._restored
        except FedotpError as error:
            raise FedotpError(f"cannot calibrate by the test images of {client}: {error}") from error
        test, task = simulator.data.test, self._task
        rows = test.clients[self._trained.index(client)]  # (n,)
        if not len(rows):
            raise FedotpError(f"{client} has no test images to calibrate by; give a folder of its images")
        kept, left_out = _once([prepared.encoded.test.contents[row] for row in rows], self._contents_trained)
        if left_out:
            log.warning("%s", _line(len(kept), left_out))
        rows = rows[kept]
        parts = (rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH))
        images = (test.read(part[None], 0, task.device, task.dtype)[0] for part in parts)
        features = (ImageFeatures(image.pooled[0], image.tokens[0]) for image in images)
        return self.classifier(client)._calibrated(
            features, [task.classes[label] for label in test.labels[rows]], score
        )

    @property
    def _contents_trained(self) -> frozenset[bytes]:
        """The digests of the images that some client has trained on; none where the data are not here."""
        try:
            return frozenset(self._restored[0].encoded.train.contents)
        except FedotpError:
            return frozenset()

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

    # Class frequencies -------------------------------------------------------------------------------------

    def _with_prior(self, made: Classifier, number: int | None) -> Classifier:
        """The classifier of a client with its class prior; `number` is None for one of `fedotp join`."""
        evaluation, strength = self.run.config.evaluation, self._strength
        if number is None:
            known = self._joined_prior(made.client)
            strength = known.strength if strength is None else strength
        else:
            known = ClassPrior(0.0, evaluation.smoothing, partial(self._counted, made.client, number))
            if strength is None and not isinstance(evaluation.prior, str):
                strength = evaluation.prior
            elif strength is None:
                with self._for_frequencies_of(made.client):
                    strength = self._restored[1].tester.class_prior(number, made.params)["strength"]
        made = replace(made, prior=replace(known, strength=0.0))  # nothing is counted before it is needed
        return made.with_prior(strength or self._strength, self._frequencies)

    def _counted(self, client: str, number: int) -> Floats:
        """The class counts (K,) of a client's training images."""
        with self._for_frequencies_of(client):
            return self._class_counts[number].astype(np.float64)

    @cached_property
    def _class_counts(self) -> Ints:
        """Those of all clients (C, K), from the labels alone where all images are used."""
        data = self.run.config.data
        if data.skip_broken:
            return self.run.partition.counts(self._restored[0].dataset)
        dataset = load_data(data)
        dataset = dataset.base_and_novel()[0] if data.classes == "base" else dataset
        self.run.require_same("data", dataset.name, dataset.digest)
        return self.run.partition.counts(dataset)

    @contextmanager
    def _for_frequencies_of(self, client: str) -> Iterator[None]:
        """What is not there is said to be needed for the class frequencies."""
        try:
            if self.run.is_deployed:
                raise FedotpError("they are at that site alone, in the folder classifier in its --state")
            yield
        except FedotpError as error:
            raise FedotpError(
                f"the class prior needs the class frequencies of {client}: {error}; without them give --prior 0 "
                "(prior=0) or --frequencies (frequencies=...)"
            ) from error

    def _joined_prior(self, client: str) -> ClassPrior:
        """That of a client of `fedotp join`, as it was evaluated when it joined."""
        path = self.run.path / "joined" / client / "result.json"
        with located(str(path)):
            try:
                found = parse_json(read_regular(path, _MOST_RESULT_BYTES).decode("utf-8"))
            except (OSError, ValueError) as error:
                raise FedotpError(f"cannot be read: {error}") from error
            prior = found.get("prior") if isinstance(found, dict) else None
            if not isinstance(prior, dict):
                return unknown_frequencies(f"{client} joined without its class frequencies: join it again")
            return ClassPrior.from_dict(prior, len(self._task.classes))

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


def _choose(client: str | None, names: Sequence[str], where: str) -> str:
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


# From a path, and calibrated ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Classifiers:
    """The classifiers to be found at `path`, by client; each is made when it is first asked for."""

    path: Path
    names: tuple[str, ...]
    make: Callable[[str], Classifier]
    _made: dict[str, Classifier] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Classifiers in {self.path}: {listed(self.names)}>"

    def __getitem__(self, client: str | None) -> Classifier:
        """The classifier of `client`; None will do where there is one only."""
        name = _choose(client, self.names, str(self.path))
        if name not in self._made:
            self._made[name] = self.make(name)
        return self._made[name]


def open_classifiers(
    path: str | Path,
    *,
    backbone: str | Path | None = None,
    device: str = "auto",
    calibrate: str | Path | None = None,
    score: Score = SCORE,
    prior: float | None = None,
    frequencies: Mapping[str, float] | None = None,
) -> Classifiers:
    """The classifiers of a run or of a bundle, as the folder is one or the other; arguments as of `load`."""
    folder = Path(path).expanduser()
    folder = folder.parent if folder.name == FACTS else folder
    if (folder / FACTS).is_file():
        bundle = Bundle(folder).classifier(backbone=backbone, device=device).with_prior(prior, frequencies)
        if calibrate == TEST:
            raise FedotpError(f"{path} is a bundle and knows no test images; calibrate it by a folder of images")
        if calibrate is not None:
            bundle = calibrated_by(bundle, calibrate, score=score)
        return Classifiers(folder, (bundle.client,), lambda _: bundle)
    if not (folder / "config.toml").is_file():
        within = [str(run.path) for run in find_runs(folder)[:4]] if folder.is_dir() else []
        hint = f"runs in it are {', '.join(within)}" if within else "`fedotp run` makes runs, `fedotp export` bundles"
        raise FedotpError(f"{path} is neither a run nor a bundle: it has no config.toml and no {FACTS}; {hint}")
    run = RunClassifiers(folder, backbone=backbone, device=device, prior=prior, frequencies=frequencies)
    if calibrate is None:
        return Classifiers(folder, run.names, run.classifier)
    return Classifiers(folder, run.names, lambda name: run.calibrated(name, calibrate, score))


def load(
    path: str | Path,
    client: str | None = None,
    *,
    backbone: str | Path | None = None,
    device: str = "auto",
    calibrate: str | Path | None = None,
    score: Score = SCORE,
    prior: float | None = None,
    frequencies: Mapping[str, float] | None = None,
) -> Classifier:
    """The classifier of `client` from a run, or the one in a bundle.

    Args:
        path: directory of a run, or a bundle that `fedotp export` made.
        client: may be left out where there is one only.
        backbone: a file of the backbone's weights, where those named in the run are not here.
        device: "auto" for a GPU where there is one, or for example "cpu".
        calibrate: a folder of the client's own images, of which the test images are taken, or "test" for its test
            images in the run; with them there are prediction sets and p-values (docs/limits.md).
        score: what the sets are made by.
        prior, frequencies: another class prior than that of the run's evaluation, as for `Classifier.with_prior`.

    Examples:
        >>> import fedotp                                                  # doctest: +SKIP
        >>> fedotp.load("client-3").predict("cat.jpg").top(3)              # doctest: +SKIP
    """
    return open_classifiers(
        path,
        backbone=backbone,
        device=device,
        calibrate=calibrate,
        score=score,
        prior=prior,
        frequencies=frequencies,
    )[client]


def calibrated_by(
    classifier: Classifier,
    data: str | Path,
    *,
    score: Score = SCORE,
    site: str | None = None,
    every: bool = False,
    trained: AbstractSet[bytes] = frozenset(),
    on_left_out: Callable[[str], object] = log.warning,
) -> Classifier:
    """The classifier, calibrated by a folder of labelled images (or any data set) that it did not train on.

    Args:
        data: as for `fedotp.data.load_dataset`. Only its test images are taken, also of a split that fedotp draws: the
            classifier may have trained on the others.
        site: take the images of this site (or domain) only.
        every: take training images, too: the classifier has trained on none of them.
        trained: digests of images that are left out, see `fedotp.data.store.content_of`.
        on_left_out: called with a line that says how many images were left out. Images of equal content count once.
    """
    dataset = load_dataset(data)
    number = class_numbers(classifier.classes, dataset, classifier.client)
    train, test = dataset.train, dataset.test
    if not every:
        trained = {*trained, *(content_of(train, i) for i in range(len(train)))}
    if site is not None:
        here = dataset.site_number(site)
        train, test = (split.select(split.domains == here) for split in (train, test))
    found = [(split, i) for split in ([train, test] if every else [test]) for i in range(len(split))]
    kept, left_out = _once([content_of(split, i) for split, i in found], trained)
    if not every:
        left_out.insert(0, f"{counted(len(train), 'training image')} (`fedotp calibrate --all` takes them)")
    if len(kept) < 2:
        raise FedotpError(f"{dataset.name}: at least 2 images are needed; {_line(len(kept), left_out)}")
    if left_out:
        on_left_out(_line(len(kept), left_out))
    images, labels = [], []
    for split, i in (found[place] for place in kept):
        images.append(classifier.transform.crop(split.image(i)))  # small, so that many fit into memory
        labels.append(classifier.classes[number[split.labels[i]]])
    return classifier.calibrated(images, labels, score=score)


def _once(contents: Sequence[bytes], trained: AbstractSet[bytes]) -> tuple[list[int], list[str]]:
    """The places of images to calibrate by, each content once and none of those trained on; what is left out."""
    first: dict[bytes, int] = {}
    for i, content in enumerate(contents):
        first.setdefault(content, i)
    kept = [i for content, i in first.items() if content not in trained]
    copies = (len(contents) - len(first), "copy of another", "copies of others")
    also = (len(first) - len(kept), "image that is a training image, too", "images that are training images, too")
    return kept, [counted(*each) for each in (copies, also) if each[0]]


def _line(n: int, left_out: Sequence[str]) -> str:
    return f"{counted(n, 'image')} to calibrate by; left out: {', '.join(left_out)}"
