"""Sources of a site's images."""

import logging
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedotp.clip import CLIP
from fedotp.config import Config
from fedotp.data import Dataset, OnProgress, clipped_note, load_dataset
from fedotp.data.partition import Client
from fedotp.federation import FederatedData
from fedotp.flower._agreement import DisagreementError
from fedotp.runs.one import Prepared, class_numbers, encode_for, prepare

log = logging.getLogger("fedotp.site")


@dataclass(frozen=True)
class OwnImages:
    """The site's own data set: a folder of images, or another data set that `fedotp.data.load_dataset` supports."""

    data: str
    name: str

    def dataset(self, config: Config) -> Dataset:
        """Return the data set."""
        return load_dataset(self.data, test_split=config.data.test_split)

    def images(
        self, config: Config, classes: tuple[str, ...], clip: CLIP, on_progress: OnProgress | None
    ) -> FederatedData:
        """Encode all images of the data set, which may lack images of some classes."""
        dataset = self.dataset(config)
        number = class_numbers(classes, dataset, "the federation")
        encoded = encode_for(config, dataset, clip, on_progress)
        if note := clipped_note(dataset, config.data.window):
            log.warning("site %s: %s", self.name, note)
        client = Client(self.name, None, np.arange(len(encoded.train)), np.arange(len(encoded.test)))
        images = FederatedData.of(encoded, [client])
        return replace(
            images,
            train=replace(images.train, labels=number[images.train.labels]),
            test=replace(images.test, labels=number[images.test.labels]),
        )


@dataclass(frozen=True)
class Part:
    """One client's part of the configuration's data set, for simulations and trials."""

    part: int

    def dataset(self, config: Config) -> Dataset:
        """Return the whole data set."""
        return _prepared(config).dataset

    def images(
        self, config: Config, classes: tuple[str, ...], clip: CLIP, on_progress: OnProgress | None
    ) -> FederatedData:
        """Encode the images of the client."""
        prepared = _prepared(config)
        if classes != prepared.dataset.classes:
            raise DisagreementError(f"the federation's classes differ from those of {prepared.dataset.name}")
        data = prepared.data
        if not 0 <= self.part < len(data):
            raise DisagreementError(f"part must be from 0 to {len(data) - 1}, got {self.part}")
        return FederatedData(
            names=(data.names[self.part],),
            domains=(data.domains[self.part],),
            train=replace(data.train, clients=(data.train.clients[self.part],)),
            test=replace(data.test, clients=(data.test.clients[self.part],)),
            n_skipped=data.n_skipped,
        )


@lru_cache(maxsize=1)
def _prepared(config: Config) -> Prepared:
    return prepare(config)
