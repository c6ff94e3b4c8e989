"""Limits of a site on the memory, disk space and time that a server may request."""

import os
import shutil
from dataclasses import replace

import torch

from fedotp._system import memory_limit
from fedotp.clip import CLIP
from fedotp.config import Config
from fedotp.federation import client_bytes, prompt_lengths
from fedotp.flower._agreement import DisagreementError
from fedotp.methods import Task

_MOST = 1000  # crops of an image, epochs
_NEEDED = 0.5  # share of the estimate of `client_bytes`, which is too high
_COPIES = 6  # of the prompts: received, private, trained, gradient, momentum, saved
_GIB = 1 << 30


def require_bounded(config: Config, name: str) -> None:
    """Raise DisagreementError for excessive numbers, which a configuration itself may contain."""
    ints = {key: value for key, value in vars(config.method).items() if isinstance(value, int)}
    asked = {
        "data.crops": config.data.crops,
        "federation.local_epochs": config.federation.local_epochs,
        "federation.join_epochs": config.federation.join_epochs,
        **{f"method.{key}": value for key, value in ints.items()},
    }
    for key, value in asked.items():
        if value > _MOST:
            raise DisagreementError(f"{key} = {value}: must be at most {_MOST} for site {name}")


def require_memory(task: Task, config: Config, n_images: int, name: str) -> None:
    """Raise DisagreementError if training with `n_images` images does not fit in memory."""
    rounds, tests = config.federation, config.evaluation
    settings = replace(
        config.settings,
        federation=replace(rounds, batch_size=min(rounds.batch_size, max(n_images, 1))),
        evaluation=replace(tests, batch_size=min(tests.batch_size, max(n_images, 1))),
    )
    lengths = prompt_lengths(config.method, task)
    n_contexts = len(task.classes) if task.bound_to_classes else 1
    prompts = sum(lengths) * n_contexts * task.encoder.width * task.clip.dtype.itemsize
    needed = _NEEDED * client_bytes(config.method, task, settings) + _COPIES * prompts
    memory = _memory(task.device)
    if needed > memory:
        raise DisagreementError(
            f"{len(task.classes)} classes and {len(lengths)} prompts require about {needed / _GIB:.0f} GiB of memory, "
            f"but site {name} has {memory / _GIB:.0f} GiB; use fewer classes or prompts"
        )


def require_room(config: Config, clip: CLIP, n_train: int, n_test: int, name: str) -> None:
    """Raise DisagreementError if the crops of the site's images do not fit on its disk."""
    folder = config.data.store_folder
    if folder is None:
        return
    vectors = (n_train * max(config.data.crops, 1) + n_test) * (clip.config.n_patches + 1)
    needed = vectors * clip.config.embed_dim * (1 if config.data.storage == "int8" else 2)
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    room = shutil.disk_usage(nearest).free + sum(path.stat().st_size for path in folder.rglob("*.*"))
    if needed > room:
        raise DisagreementError(
            f"data.crops = {config.data.crops} requires about {needed / _GIB:.0f} GiB on the disk of site {name}, "
            f"which has {room / _GIB:.0f} GiB free; use fewer crops"
        )


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit()
    return whole if limit is None else min(whole, limit)
