"""Small runs of every kind, each made once."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedotp.data import load_dataset
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run
from runs.toy_run import make_config, make_inputs

KINDS: dict[str, dict[str, Any]] = {
    "fedotp": {},
    "fedotp, classical": {"method": {"rule": "classical"}},
    "fedotp, average": {"method": {"rule": "average"}},
    "fedotp, per class": {"prompt": {"per_class": True}},
    "fedotp, int8 and float64": {"data": {"storage": "int8"}, "compute": {"precision": "float64"}},
    "fedotp, normalised as cifar": {"authors": {"normalisation": "cifar10"}},
    "coop, optimizer kept": {"method": {"name": "coop"}, "optimizer": {"reset": False}},
    "zeroshot": {"method": {"name": "zeroshot"}},
    "promptfl": {"method": {"name": "promptfl"}},
    "promptfl-ft": {"method": {"name": "promptfl-ft"}},
    "promptfl-fedper": {"method": {"name": "promptfl-fedper"}},
    "pfedprompt": {"method": {"name": "pfedprompt"}},
    "promptfolio": {"method": {"name": "promptfolio"}},
    "fedpgp": {"method": {"name": "fedpgp"}},
    "pfedmoap": {"method": {"name": "pfedmoap"}},
    "fedtpg": {"method": {"name": "fedtpg"}},
    "fedotp, prior": {"evaluation": {"prior": 1.0}},
}


class Made:
    """Runs by their kind."""

    def __init__(self, folder: Path) -> None:
        self.inputs = make_inputs(folder)
        self._runs: dict[str, RunDirectory] = {}

    def run(self, kind: str) -> RunDirectory:
        if kind not in self._runs:
            config = make_config(self.inputs, **KINDS[kind])
            self._runs[kind] = run(config, self.inputs / "runs" / kind)
        return self._runs[kind]

    def test_images(self, rows: np.ndarray) -> list[Image.Image]:
        test = load_dataset(str(self.inputs / "data")).test
        return [test.image(int(row)) for row in rows]

    @property
    def backbone(self) -> Path:
        return self.inputs / "tiny.safetensors"
