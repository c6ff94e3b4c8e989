"""From a configuration to a federation ready to run: backbone, data, tokens, partition."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce

import numpy as np
import torch

from fedotp._system import free_gpu_bytes
from fedotp.clip import CLIP, load
from fedotp.config import Config, DataSettings
from fedotp.data import DATASETS, Dataset, OnProgress, Split, load_dataset, windowed
from fedotp.data.partition import Partition, make_partition, other_images
from fedotp.data.store import EncodedDataset, EncodedSplit, encode
from fedotp.errors import FedotpError
from fedotp.federation import (
    AttackSettings,
    Backdoor,
    Features,
    FederatedData,
    HeldFeatures,
    Ints,
    Novel,
    draws,
)
from fedotp.methods import Task
from fedotp.runs.directory import RunDirectory, reading
from fedotp.runs.one._backdoor import make_backdoor
from fedotp.runs.one._warm import WarmUp
from fedotp.runs.watch import Observer

_RESIDENT = 0.25  # features are kept on a GPU if they fit into this share of its free memory
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything a federation needs, in memory.

    `dataset` is what `partition` divides, broken images left out; `encoded` are those of its images that a client has;
    `novel` are test images of the other classes, if only base classes are divided and the view "novel" is evaluated;
    `backdoor` is what attackers train on, if these are other images or labels than they have.
    """

    config: Config
    task: Task
    data: FederatedData
    dataset: Dataset
    encoded: EncodedDataset
    partition: Partition
    novel: Novel | None = None
    backdoor: Backdoor | None = None


def prepare(
    config: Config,
    observer: Observer | None = None,
    like: RunDirectory | None = None,
    partition: Partition | None = None,
) -> Prepared:
    """Load backbone and data, divide them, encode what is not encoded yet.

    `like` is the run that is to go on or to be looked at: the division is its own, and another backbone or other data
    than it began with are refused. `partition` is the division of a new run, where it is made already.
    """
    preparation = Preparation(config, observer)
    run = preparation.divide(config, like, partition)
    return preparation.finish(run, preparation.encode([run]))


@dataclass(frozen=True, eq=False)
class Divided:
    """A run whose clients are known; `like` as for `prepare`."""

    config: Config
    task: Task
    partition: Partition
    like: RunDirectory | None

    @property
    def absent(self) -> Ints:
        """The clients of the partition that have no part in the run."""
        return self.config.federation.absent([client.name for client in self.partition.clients])

    @property
    def used(self) -> Ints:
        """The training images that some client has, in ascending order: few shots need few tokens."""
        return np.unique(np.concatenate([client.train for client in self.partition.clients]))


@dataclass(frozen=True, eq=False)
class Encoded:
    """The test images and the training images `used` of one or several runs; features may be on the GPU already.

    `backdoors` are those made of them so far.
    """

    used: Ints
    images: EncodedDataset
    train: Features
    test: Features
    backdoors: dict[AttackSettings, Backdoor] = field(default_factory=dict)


class Preparation:
    """Prepares runs on the same data (`config.data`) with the same backbone; what they have in common is made once."""

    def __init__(self, config: Config, observer: Observer | None = None) -> None:
        """`config` is that of any of them."""
        self._config = config
        self._observer = observer or Observer()
        self._device = find_device(config.compute.device)
        self._warm_up = WarmUp(self._device)
        self._all = load_data(config.data)
        if len(self._all.classes) < 2:
            raise FedotpError(
                f"{config.data.source}: all images are of one class, {self._all.classes[0]!r}, and there is nothing to "
                "tell apart; a folder per class is needed (`fedotp data info` shows what was found)"
            )
        self._clip = load_backbone(config.backbone.source, self._device)

    @cached_property
    def _sound(self) -> Dataset:
        """The images that can be decoded, if broken ones are to be left out: known only when all were decoded."""
        return self._encode(self._all).dataset if self._config.data.skip_broken else self._all

    @cached_property
    def _dataset(self) -> Dataset:
        """What is divided among clients: all classes, or the base ones."""
        return self._sound.base_and_novel()[0] if self._config.data.classes == "base" else self._sound

    @cached_property
    def _novel(self) -> Novel:
        """The test images of the novel classes."""
        _, novel = self._sound.base_and_novel()
        firsts = np.unique(novel.train.labels, return_index=True)[1]  # a data set has training images of every class
        config = replace(self._config, data=replace(self._config.data, crops=0))
        few = replace(novel, train=novel.train.select(firsts))
        test = encode_for(config, few, self._clip, self._observer.on_encoding).test
        held = _resident([test], self._device)
        return Novel(novel.classes, held[0] if held else test, novel.test.labels, novel.digest)

    def divide(self, config: Config, like: RunDirectory | None = None, partition: Partition | None = None) -> Divided:
        """Say who has which images in the run of `config`; `like` and `partition` as for `prepare`."""
        if like is not None:
            require_same(like, "backbone", config.backbone.name, self._clip.digest)
            require_same(like, "data", self._dataset.name, self._dataset.digest)
        if partition is None:
            partition = self._partition(config) if like is None else like.partition
        partition.require(self._dataset)
        several = len(self._dataset.domains) > 1
        domains = [client.domain if several else None for client in partition.clients]
        config.federation.held_out([client.name for client in partition.clients], domains, config.seed)  # or refused
        template = template_of(config, self._dataset.name)
        return Divided(config, make_task(config, self._clip, self._dataset.classes, template), partition, like)

    def _partition(self, config: Config) -> Partition:
        return make_partition(self._dataset, config.partition, authors=config.authors.partition)

    def encode(self, runs: Sequence[Divided]) -> Encoded:
        """Encode what is not encoded yet of the images that the clients of any of `runs` have."""
        used = reduce(np.union1d, [run.used for run in runs])
        with self._warm_up.beside(runs[0].config, runs[0].task, len(runs[0].partition.clients)):
            images = self._encode(replace(self._dataset, train=self._dataset.train.select(used)))
            train, test = self._features(images)
        return Encoded(used, images, train, test)

    def finish(self, run: Divided, encoded: Encoded) -> Prepared:
        """Everything that `run` needs; runs with the same `encoded` images share their features."""
        images = encoded.images.select_train(np.searchsorted(encoded.used, run.used))
        if run.like is not None:
            require_same(run.like, "data", self._dataset.name, images.content, key="content")
        clients = [
            replace(client, train=np.searchsorted(encoded.used, client.train)) for client in run.partition.clients
        ]
        data = FederatedData.of(encoded.images, clients)
        data = replace(
            data,
            train=replace(data.train, features=encoded.train),
            test=replace(data.test, features=encoded.test),
        ).without(run.absent)
        if run.config.data.labels == "shuffled":
            data = data.with_shuffled_labels(run.config.seed)
        elif run.config.authors.mispaired_labels:
            data, images = _mispaired(data, encoded, images, run)
        novel = self._novel if "novel" in run.config.evaluation.views else None
        if novel is not None and run.like is not None and "novel" in run.like.manifest:
            require_same(run.like, "novel", self._dataset.name, novel.digest)
        backdoor = self._backdoor(run.config.attack, encoded)
        return Prepared(run.config, run.task, data, self._dataset, images, run.partition, novel, backdoor)

    def _backdoor(self, attack: AttackSettings, encoded: Encoded) -> Backdoor | None:
        """What attackers train on; runs that differ only in who and how many they are share it."""
        if not attack.is_on_data:
            return None
        key = AttackSettings(attack.name, target=attack.target, source=attack.source, patch=attack.patch)
        if key not in encoded.backdoors:
            dataset, window = encoded.images.dataset, self._config.data.window
            encoded.backdoors[key] = make_backdoor(
                key, dataset, encoded.train, encoded.test, window, lambda other: self._features(self._encode(other))
            )
        return encoded.backdoors[key]

    def _features(self, images: EncodedDataset) -> tuple[Features, Features]:
        """Those of the training and test images, on the GPU where they fit."""
        held = _resident([images.train, images.test], self._device)
        return (held[0], held[1]) if held else (images.train, images.test)

    def _encode(self, dataset: Dataset) -> EncodedDataset:
        return encode_for(self._config, dataset, self._clip, self._observer.on_encoding)


def _mispaired(
    data: FederatedData, encoded: Encoded, images: EncodedDataset, run: Divided
) -> tuple[FederatedData, EncodedDataset]:
    """The same labels beside other images of the run, and test images as they are seen."""
    dataset, seed = encoded.images.dataset, run.config.partition.seed
    among = np.searchsorted(encoded.used, run.used)
    train = other_images(dataset.train.domains, data.train.clients, seed=seed, among=among)
    test = other_images(dataset.test.domains, data.test.clients, seed=seed)
    data = replace(
        data,
        train=replace(data.train, features=_at(data.train.features, train)),
        test=replace(data.test, features=_at(data.test.features, test)),
    )
    shown = images.dataset.test
    shown = Split(shown.source, shown.rows[test], shown.labels, shown.domains[test])
    return data, replace(images, dataset=replace(images.dataset, test=shown))


def _at(features: Features, rows: Ints) -> Features:
    """The features of the images at `rows`, in that order."""
    if isinstance(features, EncodedSplit):
        return replace(features, records=features.records[:, rows])
    assert isinstance(features, HeldFeatures)
    at = torch.from_numpy(rows).to(features.pooled.device)
    return HeldFeatures(features.pooled[:, at], features.tokens[:, at])


def load_data(data: DataSettings) -> Dataset:
    """The data set that a configuration names."""
    dataset = load_dataset(data.source, root=data.root_folder, groups=data.groups, test_split=data.test_split)
    return windowed(dataset, data.site_windows) if data.windows else dataset


def require_same(run: RunDirectory, what: str, name: str, digest: str, key: str = "digest") -> None:
    """Refuse to go on with another backbone or other data than a run began with."""
    with reading(run):
        recorded = run.manifest[what]
        if recorded[key] != digest:
            raise FedotpError(
                f"{run.path}: the run began with {what} {recorded['name']} {recorded[key][:12]}, "
                f"but now it is {name} {digest[:12]}; give the one it began with"
            )


def encode_for(config: Config, dataset: Dataset, clip: CLIP, on_progress: OnProgress | None) -> EncodedDataset:
    """The tokens of `dataset`, made or read back as `config` says."""
    return encode(
        dataset,
        clip,
        crops=config.data.crops,
        seed=0,  # whatever the run's seed is, so that all runs share the tokens of these crops
        root=config.data.store_folder,
        storage=config.data.storage,
        precision=None if config.data.precision == "float32" else getattr(torch, config.data.precision),
        normalisation=config.authors.normalisation,
        window=config.data.window,
        skip_broken=config.data.skip_broken,
        on_progress=on_progress,
    )


def make_task(config: Config, clip: CLIP, classes: Sequence[str], template: str) -> Task:
    """The task of telling `classes` apart, in the precision that `config` asks for, or under each other's names."""
    if config.authors.shuffled_names:
        chance = draws(config.seed, "names").random(len(classes))
        classes = [classes[number] for number in np.argsort(chance, kind="stable")]
    task = Task(clip, tuple(classes), config.prompt, template, config.seed, config.authors)
    return task.in_precision(config.compute.precision)


def template_of(config: Config, dataset: str) -> str:
    """The caption of zero-shot CLIP: the configuration's, else the data set's, else CLIP's most usual one."""
    info = DATASETS.get(dataset)
    return config.data.template or (info.template if info else Task.template)


def find_device(name: str) -> torch.device:
    """The device called `name`; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise FedotpError(f"compute.device = {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


@lru_cache(maxsize=1)
def load_backbone(source: str, device: torch.device) -> CLIP:
    """The backbone called, or stored at, `source`; many runs in one process share it."""
    return load(source, device=device)


def _resident(splits: Sequence[EncodedSplit], device: torch.device) -> list[HeldFeatures] | None:
    """The same features on the GPU, where they fit."""
    if device.type != "cuda":
        return None
    free = free_gpu_bytes(device)
    held = []
    for split in splits:
        one = split.read(np.zeros(1, np.int64), dtype=torch.float16)
        n_bytes = 2 * (one.pooled.numel() + one.tokens.numel()) * split.n_crops * len(split)
        if n_bytes > _RESIDENT * free:
            return None
        held.append(_hold(split, len(split), device))
    return held


def _hold(features: Features, n: int, device: torch.device) -> HeldFeatures:
    crops = []
    for crop in range(features.n_crops):
        parts = [
            features.read(np.arange(start, min(start + _CHUNK, n)), crop, device=device, dtype=torch.float16)
            for start in range(0, n, _CHUNK)
        ]
        crops.append([torch.cat([getattr(part, field) for part in parts]) for field in ("pooled", "tokens")])
    pooled, tokens = zip(*crops, strict=True)
    return HeldFeatures(torch.stack(pooled), torch.stack(tokens))
