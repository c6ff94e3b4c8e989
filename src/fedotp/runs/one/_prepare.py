"""Preparation of a federation from its configuration: backbone, data, tokens, partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import TypeVar

import numpy as np
import torch

from fedotp._system import free_gpu_bytes
from fedotp.config import Config
from fedotp.data import Dataset, OnProgress, Split, painted
from fedotp.data.partition import Partition, make_partition, other_images
from fedotp.data.store import EncodedDataset, EncodedSplit
from fedotp.errors import FedotpError
from fedotp.federation import AttackSettings, Backdoor, Features, FederatedData, HeldFeatures, Ints, Novel
from fedotp.methods import Task
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one._inputs import encode_for, find_device, load_backbone, load_data, make_task, template_of
from fedotp.runs.watch import Observer

_RESIDENT = 0.25  # features stay on a GPU if they fit into this share of its free memory
_CHUNK = 256

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Prepared:
    """All inputs of a federation, in memory.

    `dataset` is divided by `partition`, without broken images; `encoded` are its images that belong to clients; `novel`
    are test images of novel classes, if the view "novel" is evaluated; `backdoor` are the training data of attackers,
    if these differ from their own.
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
    """Load backbone and data, partition the data, and encode missing tokens.

    `like` is the run to resume or evaluate: its partition is used, and its backbone and data must be unchanged.
    `partition` is an existing one for a new run.
    """
    return Preparation(config, None if observer is None else observer.on_encoding).prepare(config, like, partition)


@dataclass(frozen=True, eq=False)
class _Divided:
    """A run with its partition; `like` as for `prepare`."""

    config: Config
    task: Task
    partition: Partition
    like: RunDirectory | None

    @property
    def used(self) -> Ints:
        """Training images of any client, in ascending order; other images need no tokens."""
        return np.unique(np.concatenate([client.train for client in self.partition.clients]))


@dataclass(frozen=True, eq=False)
class _Encoded:
    """The test images and the training images `used` of one or several runs, and the `backdoors` made of them."""

    used: Ints
    images: EncodedDataset
    train: Features
    test: Features
    backdoors: dict[AttackSettings, Backdoor] = field(default_factory=dict)


class Preparation:
    """Preparation of runs with the same data (`config.data`) and backbone, which share common inputs."""

    def __init__(self, config: Config, on_encoding: OnProgress | None = None) -> None:
        """Load data and backbone; `config` is that of any of the runs."""
        self.on_encoding = on_encoding
        self._config = config
        self._device = find_device(config.compute.device)
        self._all = load_data(config.data)
        if len(self._all.classes) < 2:
            raise FedotpError(
                f"{config.data.source}: must have at least two classes, all images are of class "
                f"{self._all.classes[0]!r}; make a folder per class (see `fedotp data info`)"
            )
        self._clip = load_backbone(config.backbone.source, config.compute.device)
        self._encoded: _Encoded | None = None

    def prepare(self, config: Config, like: RunDirectory | None = None, partition: Partition | None = None) -> Prepared:
        """Prepare one run; `like` and `partition` as for the function `prepare`."""
        run = self._divide(config, like, partition)
        return self._finish(run, self._encode_all([run]))

    def prepare_each(self, runs: Sequence[tuple[Config, RunDirectory | None]]) -> list[Prepared | Exception]:
        """Prepare runs that share images, each with its `like`; return an exception if one cannot be prepared."""
        divided = [_or_error(partial(self._divide, config, like)) for config, like in runs]
        encoded = _or_error(partial(self._encode_all, [run for run in divided if isinstance(run, _Divided)]))
        if isinstance(encoded, Exception):
            return [run if isinstance(run, Exception) else encoded for run in divided]
        return [
            run if isinstance(run, Exception) else _or_error(partial(self._finish, run, encoded)) for run in divided
        ]

    @cached_property
    def _sound(self) -> Dataset:
        """The data set, without broken images if they are skipped, for which all must be decoded."""
        return self._encode(self._all).dataset if self._config.data.skip_broken else self._all

    @cached_property
    def _dataset(self) -> Dataset:
        """The data set to divide among clients: all classes, or the base classes."""
        return self._sound.base_and_novel()[0] if self._config.data.classes == "base" else self._sound

    @cached_property
    def _novel(self) -> Novel:
        _, novel = self._sound.base_and_novel()
        firsts = np.unique(novel.train.labels, return_index=True)[1]  # a data set has training images of every class
        config = replace(self._config, data=replace(self._config.data, crops=0))
        few = replace(novel, train=novel.train.select(firsts))
        test = encode_for(config, few, self._clip, self.on_encoding).test
        return Novel(novel.classes, _resident(test, self._device), novel.test.labels, novel.digest)

    def _divide(self, config: Config, like: RunDirectory | None = None, partition: Partition | None = None) -> _Divided:
        """Partition the images for the run of `config`; `like` and `partition` as for `prepare`."""
        if like is not None:
            like.require_same("backbone", config.backbone.name, self._clip.digest)
            like.require_same("data", self._dataset.name, self._dataset.digest)
        if partition is None and like is not None:
            partition = like.partition
        if partition is None:
            partition = make_partition(self._dataset, config.partition, authors=config.authors.partition)
        partition.require(self._dataset)
        several = len(self._dataset.domains) > 1
        domains = [client.domain if several else None for client in partition.clients]
        config.federation.held_out(
            [client.name for client in partition.clients], domains, config.seed
        )  # validates them
        template = template_of(config, self._dataset.name, self._clip)
        task = make_task(config, self._clip, self._dataset.classes, template)
        config.method.untrained(task)  # raises errors of task and method before images are encoded
        return _Divided(config, task, partition, like)

    def _encode_all(self, runs: Sequence[_Divided]) -> _Encoded:
        """Encode missing images of all clients of `runs`; cache the result."""
        used = reduce(np.union1d, [run.used for run in runs])
        if self._encoded is not None and np.isin(used, self._encoded.used).all():
            return self._encoded
        self._encoded = None  # free memory first
        images = self._encode(replace(self._dataset, train=self._dataset.train.select(used)))
        train, test = (_resident(split, self._device) for split in (images.train, images.test))
        self._encoded = _Encoded(used, images, train, test)
        return self._encoded

    def _finish(self, run: _Divided, encoded: _Encoded) -> Prepared:
        """Return all inputs of `run`; runs with the same `encoded` images share their features."""
        images = encoded.images.select_train(np.searchsorted(encoded.used, run.used))
        if run.like is not None:
            run.like.require_same("data", self._dataset.name, images.content, key="content")
        clients = [
            replace(client, train=np.searchsorted(encoded.used, client.train)) for client in run.partition.clients
        ]
        data = FederatedData.of(encoded.images, clients)
        data = replace(
            data, train=replace(data.train, features=encoded.train), test=replace(data.test, features=encoded.test)
        ).without(run.config.federation.absent([client.name for client in run.partition.clients]))
        if run.config.data.labels == "shuffled":
            data = data.with_shuffled_labels(run.config.seed)
        elif run.config.authors.mispaired_labels:
            data, images = _mispaired(data, encoded, images, run)
        novel = self._novel if "novel" in run.config.evaluation.views else None
        if novel is not None and run.like is not None and "novel" in run.like.manifest:
            run.like.require_same("novel", self._dataset.name, novel.digest)
        backdoor = self._backdoor(run.config.attack, encoded)
        return Prepared(run.config, run.task, data, self._dataset, images, run.partition, novel, backdoor)

    def _backdoor(self, attack: AttackSettings, encoded: _Encoded) -> Backdoor | None:
        """Return the training data of attackers, shared by runs that differ only in who attacks."""
        if not attack.is_on_data:
            return None
        key = AttackSettings(attack.name, target=attack.target, source=attack.source, patch=attack.patch)
        if key in encoded.backdoors:
            return encoded.backdoors[key]
        changed = images = encoded.images
        test = encoded.test
        if attack.name == "backdoor":
            changed = self._encode(painted(images.dataset, attack.patch, self._config.data.window))
            test = _resident(changed.test, self._device)
        original = changed.train.store.find(images.train.store.keys(images.train.records))
        both = replace(changed.train, records=np.concatenate([original, changed.train.records], axis=1))
        classes, labels = images.dataset.classes, images.dataset.train.labels
        shown, _ = attack.labels(classes, labels)
        target, rows = attack.labels(classes, images.dataset.test.labels)
        made = Backdoor(_resident(both, self._device), np.concatenate([labels, shown]), test, target, rows)
        return encoded.backdoors.setdefault(key, made)

    def _encode(self, dataset: Dataset) -> EncodedDataset:
        return encode_for(self._config, dataset, self._clip, self.on_encoding)


def _or_error(work: Callable[[], _T]) -> _T | Exception:
    try:
        return work()
    except Exception as error:
        return error


def _mispaired(
    data: FederatedData, encoded: _Encoded, images: EncodedDataset, run: _Divided
) -> tuple[FederatedData, EncodedDataset]:
    """Pair the labels with other images of the run, also in the test set."""
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
    """Return the features of the images at `rows`, in that order."""
    if isinstance(features, EncodedSplit):
        return replace(features, records=features.records[:, rows])
    at = torch.from_numpy(rows).to(features.pooled.device)
    return HeldFeatures(features.pooled[:, at], features.tokens[:, at])


def _resident(split: EncodedSplit, device: torch.device) -> Features:
    """Return the features of a split, on the GPU if they fit."""
    if device.type != "cuda":
        return split
    one = split.read(np.zeros(1, np.int64), dtype=torch.float16)
    n_bytes = 2 * (one.pooled.numel() + one.tokens.numel()) * split.n_crops * len(split)
    if n_bytes > _RESIDENT * free_gpu_bytes(device):
        return split
    crops = []
    for crop in range(split.n_crops):
        parts = [
            split.read(np.arange(start, min(start + _CHUNK, len(split))), crop, device=device, dtype=torch.float16)
            for start in range(0, len(split), _CHUNK)
        ]
        crops.append([torch.cat([getattr(part, field) for part in parts]) for field in ("pooled", "tokens")])
    pooled, tokens = zip(*crops, strict=True)
    return HeldFeatures(torch.stack(pooled), torch.stack(tokens))
