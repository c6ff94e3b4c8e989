"""What a GPU needs once in a process, fetched while images are being encoded.

Libraries load their kernels and Triton compiles its own when they are first used; with nothing else to do meanwhile,
that is a second of every run and several of the first one on a machine.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import torch

from fedotp.config import Config
from fedotp.federation import FederatedData, HeldFeatures, Images, Predictions, RoundSettings, Settings, Simulator
from fedotp.methods import Task

_IMAGES = 8
_MOST_CLIENTS = 16


@contextmanager
def warming_up(config: Config, task: Task, n_clients: int) -> Iterator[None]:
    """On a GPU, make a first round of the federation of `config` on made-up images, beside what the block does."""
    if task.device.type != "cuda":
        yield
        return
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_warm_up, config, task, min(n_clients, _MOST_CLIENTS))
        yield


def _warm_up(config: Config, task: Task, n_clients: int) -> None:
    with suppress(Exception), torch.cuda.device(task.device):  # what is wrong will be told when it matters
        first_round(config, task, n_clients)
        torch.cuda.synchronize()


def first_round(config: Config, task: Task, n_clients: int) -> Predictions:
    """A round of so many clients on a few random images, and what they predict then."""
    simulator = Simulator(config.method, task, _made_up(task, n_clients), _short(config))
    simulator.run_round()
    return simulator.predict()


def _short(config: Config) -> Settings:
    """One epoch, all clients, the optimizer and the precision of `config`."""
    rounds = RoundSettings(local_epochs=1, batch_size=config.federation.batch_size)
    return replace(config.settings, federation=rounds)


def _made_up(task: Task, n_clients: int) -> FederatedData:
    """A few random images that all clients have; they lie in main memory, so that no step of theirs is recorded."""
    shape = task.clip.config
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(1, _IMAGES, shape.n_patches, shape.embed_dim, generator=generator)
    labels = np.arange(_IMAGES) % len(task.classes)
    images = Images(HeldFeatures(tokens[:, :, 0].half(), tokens.half()), labels, (np.arange(_IMAGES),) * n_clients)
    names = tuple(f"client {i}" for i in range(n_clients))
    return FederatedData(names, (None,) * n_clients, train=images, test=images)
