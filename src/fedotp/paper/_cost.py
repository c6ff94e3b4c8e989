"""What an entry takes: time on a GPU and room on a disk, estimated before anything is run.

The rates are those recorded on one H200 in float32 (`bench/results`, `bench/NOTES.md`): images encoded from JPEG files,
and a round of FedOTP with 37 classes, whose time grows with the number of classes. Methods with one prompt take less.
"""

import math
from dataclasses import dataclass

from fedotp.clip import CONFIGS
from fedotp.config import Config
from fedotp.data import DATASETS
from fedotp.paper._entry import Entry
from fedotp.paper._queue import config_of, trials_of

_IMAGES_PER_SECOND = 655.0  # encoded
_SECONDS_PER_STEP = 0.20 / (95 * 37)  # for each step of a client and each class
_SECONDS_PER_TEST = 0.019 / (3669 * 37)  # for each test image and each class
_SECONDS_PER_RUN = 2.0  # to begin and to write it
_BYTES_PER_VALUE = 2
_BYTES_PER_RUN = 5 << 20


@dataclass(frozen=True)
class Cost:
    """So many runs, minutes of a GPU, and bytes of tokens and runs."""

    runs: int
    minutes: float
    n_bytes: int


def estimate(entry: Entry, n_repetitions: int) -> Cost:
    """What an entry takes with so many splits x seeds, from nothing; whatever another entry has made is saved."""
    encoded: dict[tuple[str, str], int] = {}
    for config in map(config_of, entry.parts):
        key = config.data.dataset, config.backbone.name
        encoded[key] = max(encoded.get(key, 0), _n_images(config) * bool(entry.methods))
    trials = trials_of(entry, [0])
    each = [_seconds(trial.config) for trial in trials]
    n_runs = n_repetitions * len(trials)
    seconds = sum(encoded.values()) / _IMAGES_PER_SECOND + n_repetitions * sum(each)
    tokens = sum(n * _bytes_per_image(backbone) for (_, backbone), n in encoded.items())
    return Cost(n_runs, seconds / 60, tokens + n_runs * _BYTES_PER_RUN)


def _n_train(config: Config) -> int:
    info, shots = DATASETS[config.data.dataset], config.partition.shots
    return info.n_train if shots is None else min(info.n_train, shots * info.n_classes)


def _n_images(config: Config) -> int:
    return _n_train(config) * max(1, config.data.views) + DATASETS[config.data.dataset].n_test


def _bytes_per_image(backbone: str) -> int:
    shape = CONFIGS[backbone]
    return (shape.n_patches + 1) * shape.embed_dim * _BYTES_PER_VALUE


def _seconds(config: Config) -> float:
    """Of one run, without encoding."""
    info, rounds = DATASETS[config.data.dataset], config.federation
    n_clients = config.partition.n_clients or 10
    steps = math.ceil(_n_train(config) / n_clients / rounds.batch_size) * rounds.local_epochs
    taking_part = math.ceil(n_clients * rounds.participation)
    trained = rounds.rounds * taking_part * steps * info.n_classes * _SECONDS_PER_STEP if config.method.learns else 0
    evaluations = 1 + rounds.rounds // config.evaluation.every if config.method.learns else 1
    return trained + evaluations * info.n_test * info.n_classes * _SECONDS_PER_TEST + _SECONDS_PER_RUN
