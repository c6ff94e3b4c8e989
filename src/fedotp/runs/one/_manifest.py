"""The manifest of a run: versions, digests and settings that explain differences between runs."""

import platform
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedotp
from fedotp.clip import CLIP, EvalTransform, TrainTransform
from fedotp.config import Config
from fedotp.data import clipped_note, origin_of_dataset
from fedotp.data.partition import origin_of_scheme
from fedotp.methods import origin_of
from fedotp.runs.one._prepare import Prepared


def make_manifest(prepared: Prepared) -> dict[str, Any]:
    """Return versions, digests, transforms and the device of a run."""
    clip, dataset = prepared.task.clip, prepared.dataset
    size = clip.config.image_size
    shown = prepared.config.data
    novel: dict[str, Any] = {}
    if (found := prepared.novel) is not None:
        facts = {"digest": found.digest, "classes": list(found.classes), "test_images": len(found.labels)}
        novel = {"novel": {"name": dataset.name, **facts}}
    train, test = prepared.encoded.train, prepared.encoded.test
    in_both = None  # unknown because of random crops
    if train.n_crops == 1 and train.store.folder == test.store.folder:
        in_both = int(np.isin(test.records[0], train.records[0]).sum())
    crops, central = shown.crops, EvalTransform(size, prepared.config.authors.normalisation, shown.window)
    return {
        **made_with(prepared.config, clip),
        "data": {
            "name": dataset.name,
            "digest": dataset.digest,
            "content": prepared.encoded.content,
            "split": dataset.split_note,
            "classes": list(dataset.classes),
            "train_images": len(dataset.train),
            "test_images": len(dataset.test),
            "test_images_also_in_train": in_both,
            "skipped": list(dataset.skipped),
            "notes": [*dataset.notes, *filter(None, [clipped_note(dataset, shown.window)])],
        },
        **novel,
        "partition": prepared.partition.digest,
        "clients": list(prepared.data.names),
        "domains": list(prepared.data.domains),
        "template": prepared.task.template,
        "transforms": {
            "train": TrainTransform(size, greys=shown.window).spec if crops else central.spec,
            "crops": crops,
            "test": central.spec,
        },
    }


def made_with(config: Config, clip: CLIP) -> dict[str, Any]:
    """Return versions, machine, command, method and backbone."""
    device = clip.device
    found = origin_of(type(config.method))  # empty for built-in methods
    origin = {"origin": found} if found else {}
    others = {"partition": origin_of_scheme(config.partition.scheme), "dataset": origin_of_dataset(config.data.dataset)}
    others = {what: origin for what, origin in others.items() if origin}
    return {
        "fedotp": fedotp.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu, {torch.get_num_threads()} threads",
        "threads": torch.get_num_threads(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": config.seed,
        "method": {"title": config.title, "reference": config.method.reference, **origin},
        **({"origins": others} if others else {}),
        "backbone": {"name": config.backbone.name, "digest": clip.digest},
    }


def _commit() -> str | None:
    """Return the commit of a source checkout, marked if modified; None for an installed package."""
    git = partial(
        subprocess.run, cwd=Path(fedotp.__file__).parent, capture_output=True, text=True, timeout=10, check=True
    )
    try:
        git(["git", "ls-files", "--error-unmatch", "__init__.py"])
        return str(git(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).stdout.strip())
    except (OSError, subprocess.SubprocessError):
        return None
