"""The inputs of a run, from its configuration: data set, tokens, task, device, backbone."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from fedotp._values import show
from fedotp.clip import CLIP, ClassTable, load
from fedotp.config import Config, DataSettings
from fedotp.data import DATASETS, Dataset, OnProgress, load_dataset, windowed
from fedotp.data.store import EncodedDataset, encode
from fedotp.errors import FedotpError, SettingError
from fedotp.federation import draws
from fedotp.methods import Task


def load_data(data: DataSettings) -> Dataset:
    """Load the data set of a configuration."""
    dataset = load_dataset(data.source, root=data.root_folder, groups=data.groups, test_split=data.test_split)
    return windowed(dataset, data.site_windows) if data.windows else dataset


def encode_for(config: Config, dataset: Dataset, clip: CLIP, on_progress: OnProgress | None) -> EncodedDataset:
    """Encode `dataset` with the settings of `config`, or read its stored tokens."""
    return encode(
        dataset,
        clip,
        crops=config.data.crops,
        seed=0,  # the same for all runs, so that they share the tokens of these crops
        root=config.data.store_folder,
        storage=config.data.storage,
        precision=None if config.data.precision == "float32" else getattr(torch, config.data.precision),
        normalisation=config.authors.normalisation,
        window=config.data.window,
        skip_broken=config.data.skip_broken,
        on_progress=on_progress,
    )


def make_task(config: Config, clip: CLIP, classes: Sequence[str], template: str) -> Task:
    """Make the task of classifying `classes`, in the precision of `config`, with shuffled names if it requires that."""
    if config.authors.shuffled_names:
        chance = draws(config.seed, "names").random(len(classes))
        classes = [classes[number] for number in np.argsort(chance, kind="stable")]
    task = Task(clip, tuple(classes), config.prompt, template, config.seed, config.authors)
    return task.in_precision(config.compute.precision)


def template_of(config: Config, dataset: str, clip: CLIP) -> str:
    """Return the caption of zero-shot CLIP: the configuration's, else the data set's, else CLIP's default.

    A backbone without a text tower supports only one caption.
    """
    if isinstance(table := clip.config.text, ClassTable):
        if config.data.template not in ("", table.template):
            right = f"{show(table.template)}, the caption of this backbone's class features: it has no text tower"
            raise SettingError("data.template", show(config.data.template), right)
        return table.template
    info = DATASETS.get(dataset)
    return config.data.template or (info.template if info else Task.template)


def find_device(name: str) -> torch.device:
    """Return the device `name`; "auto" is a GPU if available."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise FedotpError(f"compute.device = {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def load_backbone(source: str, device: str | torch.device) -> CLIP:
    """Load a backbone by name or path on a device; runs in one process share it."""
    return _load_once(source, find_device(str(device)))


@lru_cache(maxsize=1)
def _load_once(source: str, device: torch.device) -> CLIP:
    return load(source, device=device)
