"""What a GPU needs once in a process, fetched while data and weights are read and images are being encoded.

Libraries load their kernels and Triton compiles its own when they are first used; with nothing else to do meanwhile,
that is a second of every run and several of the first one on a machine.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from fedotp.config import Config
from fedotp.federation import FederatedData, HeldFeatures, Images, RoundSettings, Settings, Simulator
from fedotp.federation.testing import Predictions
from fedotp.methods import Task
from fedotp.ot import score
from fedotp.privacy import PrivacySettings

_IMAGES = 8
_MOST_CLIENTS = 16


class WarmUp:
    """What the GPU `device` needs, fetched by a thread; on a CPU nothing is done."""

    def __init__(self, device: torch.device) -> None:
        """Matrix products and Triton start at once: no weights are needed for that."""
        self._device = device
        self._thread = ThreadPoolExecutor(1) if device.type == "cuda" else None
        if self._thread is not None:
            self._thread.submit(self._quietly, self._load_libraries)

    @contextmanager
    def beside(self, config: Config, task: Task, n_clients: int) -> Iterator[None]:
        """Make a first round of the federation of `config` on made-up images, beside what the block does.

        The block ends when that is done.
        """
        first = partial(first_round, config, task, min(n_clients, _MOST_CLIENTS))
        work = None if self._thread is None else self._thread.submit(self._quietly, first)
        yield
        if work is not None:
            work.result()

    def _quietly(self, work: Callable[[], object]) -> None:
        with suppress(Exception), torch.cuda.device(self._device):  # an error will show when it matters
            work()
            torch.cuda.synchronize()

    def _load_libraries(self) -> None:
        score(torch.zeros(1, 64, 2, device=self._device), fused=True)
        some = torch.zeros(64, 64, dtype=torch.bfloat16, device=self._device)
        some @ some


def first_round(config: Config, task: Task, n_clients: int) -> Predictions:
    """A round of so many clients on a few random images, and what they predict then."""
    simulator = Simulator(config.method, task, _made_up(task, n_clients), _short(config))
    simulator.run_round()
    return simulator.predict()


def _short(config: Config) -> Settings:
    """One epoch, all clients, the optimizer and the precision of `config`; made-up images need no privacy.

    Private steps choose kernels for the whole process, and images are encoded beside this.
    """
    rounds = RoundSettings(local_epochs=1, batch_size=config.federation.batch_size)
    return replace(config.settings, federation=rounds, privacy=PrivacySettings())


def _made_up(task: Task, n_clients: int) -> FederatedData:
    """A few random images that all clients have; they lie in main memory, so that no step of theirs is recorded."""
    shape = task.clip.config
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(1, _IMAGES, shape.n_patches, shape.embed_dim, generator=generator)
    labels = np.arange(_IMAGES) % len(task.classes)
    images = Images(HeldFeatures(tokens[:, :, 0].half(), tokens.half()), labels, (np.arange(_IMAGES),) * n_clients)
    names = tuple(f"client {i}" for i in range(n_clients))
    return FederatedData(names, (None,) * n_clients, train=images, test=images)
