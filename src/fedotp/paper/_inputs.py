"""What the runs of an entry need and is not here: which files, from where, into which folder."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedotp.clip import CONFIGS, find_weights
from fedotp.config import Config
from fedotp.data import DATASETS, default_root, find_dataset


@dataclass(frozen=True)
class Missing:
    """Something that is not here.

    Attributes:
        what: what it is.
        files: where each file comes from, and the path at which it, or what is in it, belongs.
        command: the words behind `fedotp` that fetch it; none where only a person can.
        advice: what else there is to know.
    """

    what: str
    files: tuple[tuple[str, Path], ...]
    command: tuple[str, ...]
    advice: str


def missing_inputs(configs: Iterable[Config]) -> list[Missing]:
    """The weights and data that runs of `configs` would not find, each once."""
    needs = list(configs)
    backbones = dict.fromkeys(config.backbone.source for config in needs)
    sets = dict.fromkeys((config.data.source, config.data.root_folder) for config in needs)
    found = [*map(_weights, backbones), *(_data(name, root) for name, root in sets)]
    return [missing for missing in found if missing is not None]


def _weights(source: str) -> Missing | None:
    if source not in CONFIGS:
        if os.path.exists(source) or os.sep not in source:
            return None  # a file, or a name that `load` knows or refuses
        return Missing(f"the weights {source}", (), (), "no such file; give backbone.name another")
    weights = find_weights(source)
    if weights.path is not None:
        return None
    checksum = f"its SHA-256 is {weights.sha256}; " if weights.sha256 else ""
    return Missing(
        f"the weights of {source}",
        ((weights.url, weights.folder),),
        ("weights", "fetch", source),
        f"{checksum}or save the file anywhere and give --set backbone.name=FILE",
    )


def _data(name: str, root: Path | None) -> Missing | None:
    if name not in DATASETS or find_dataset(name, root) is not None:
        return None
    info, base = DATASETS[name], root or default_root()
    files = tuple((resource.url, base / resource.provides) for resource in info.resources)
    command = ("data", "download", name, *(() if root is None else ("--root", str(root)))) if files else ()
    advice = info.advice if files else f"{info.advice}; put it at {base / info.folder}"
    return Missing(f"the images of {info.title}", files, command, advice)
