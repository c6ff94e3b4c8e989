"""From a configuration to a federation ready to run: backbone, data, tokens, partition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from fedotp.clip import CLIP, load
from fedotp.config import Config
from fedotp.data import (
    DATASETS,
    Client,
    Dataset,
    EncodedDataset,
    OnProgress,
    Partition,
    encode,
    load_dataset,
    make_partition,
)
from fedotp.errors import FedotpError
from fedotp.federation import Features, FederatedData, HeldFeatures
from fedotp.methods import Task
from fedotp.runs._directory import RunDirectory, reading
from fedotp.runs._observer import Observer

_RESIDENT = 0.25  # features are kept on a GPU if they fit into this share of its free memory
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything a federation needs, in memory.

    `dataset` is what `partition` divides, broken images left out; `encoded` are those of its images that a client has.
    """

    config: Config
    task: Task
    data: FederatedData
    dataset: Dataset
    encoded: EncodedDataset
    partition: Partition


def prepare(config: Config, observer: Observer | None = None, like: RunDirectory | None = None) -> Prepared:
    """Load backbone and data, divide them, encode what is not encoded yet.

    `like` is the run that is to go on or to be looked at: the division is its own, and another backbone or other data
    than it began with are refused.
    """
    observer = observer or Observer()
    device = find_device(config.compute.device)
    dataset = load_dataset(config.data.source, root=config.data.root_folder)
    clip = load_backbone(config.backbone.source, device)
    if like is not None:
        require_same(like, "backbone", config.backbone.name, clip.digest)
    if config.data.skip_broken:  # which images are broken is known only when all were decoded
        dataset = encode_for(config, dataset, clip, observer.on_encoding).dataset
    if like is not None:
        require_same(like, "data", dataset.name, dataset.digest)
    partition = make_partition(dataset, config.partition) if like is None else like.partition
    partition.require(dataset)
    used, clients = _used(dataset, partition)
    encoded = encode_for(config, used, clip, observer.on_encoding)
    if like is not None:
        require_same(like, "data", dataset.name, encoded.content, key="content")
    data = FederatedData.of(encoded, clients)
    if device.type == "cuda":
        data = _resident(data, device)
    task = make_task(config, clip, dataset.classes, template_of(config, dataset.name))
    return Prepared(config, task, data, dataset, encoded, partition)


def require_same(run: RunDirectory, what: str, name: str, digest: str, key: str = "digest") -> None:
    """Refuse to go on with another backbone or other data than a run began with."""
    with reading(run):
        recorded = run.manifest[what]
        if recorded[key] != digest:
            raise FedotpError(
                f"{run.path}: the run began with {what} {recorded['name']} {recorded[key][:12]}, "
                f"but now it is {name} {digest[:12]}; give the one it began with"
            )


def _used(dataset: Dataset, partition: Partition) -> tuple[Dataset, list[Client]]:
    """The training images that some client has, and the clients' rows among them: few shots need few tokens."""
    rows = np.unique(np.concatenate([client.train for client in partition.clients]))
    clients = [replace(client, train=np.searchsorted(rows, client.train)) for client in partition.clients]
    return replace(dataset, train=dataset.train.select(rows)), clients


def encode_for(config: Config, dataset: Dataset, clip: CLIP, on_progress: OnProgress | None) -> EncodedDataset:
    """The tokens of `dataset`, made or read back as `config` says."""
    return encode(
        dataset,
        clip,
        views=config.data.views,
        seed=0,  # whatever the run's seed is, so that all runs share the tokens of these crops
        root=config.data.store_folder,
        storage=config.data.storage,
        skip_broken=config.data.skip_broken,
        on_progress=on_progress,
    )


def make_task(config: Config, clip: CLIP, classes: Sequence[str], template: str) -> Task:
    """The task of telling `classes` apart, in the precision that `config` asks for."""
    task = Task(clip, tuple(classes), config.prompt, template, config.seed)
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


def _resident(data: FederatedData, device: torch.device) -> FederatedData:
    """The same data with features on the GPU, where they fit."""
    free = torch.cuda.mem_get_info(device)[0]
    splits = {}
    for name in ("train", "test"):
        images = getattr(data, name)
        one = images.features.read(np.zeros(1, np.int64), dtype=torch.float16)
        n_bytes = 2 * (one.pooled.numel() + one.tokens.numel()) * images.features.n_views * len(images.labels)
        if n_bytes > _RESIDENT * free:
            return data
        splits[name] = replace(images, features=_hold(images.features, len(images.labels), device))
    return replace(data, train=splits["train"], test=splits["test"])


def _hold(features: Features, n: int, device: torch.device) -> HeldFeatures:
    views = []
    for view in range(features.n_views):
        parts = [
            features.read(np.arange(start, min(start + _CHUNK, n)), view, device=device, dtype=torch.float16)
            for start in range(0, n, _CHUNK)
        ]
        views.append([torch.cat([getattr(part, field) for part in parts]) for field in ("pooled", "tokens")])
    pooled, tokens = zip(*views, strict=True)
    return HeldFeatures(torch.stack(pooled), torch.stack(tokens))
