"""Tiny runs to look into: coloured squares on disk, a random tower in a file."""

from pathlib import Path
from typing import Any

from coloured_squares import draw_squares
from fedotp.clip import CLIP, TINY, save
from fedotp.config import Config
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30)}


def make_inputs(folder: Path, n: int = 14) -> Path:
    """A backbone and 2 classes of n images."""
    save(CLIP.random(TINY), folder / "tiny.safetensors")
    draw_squares(folder / "data", COLOURS, n)
    return folder


def make_run(inputs: Path, out: Path, n_clients: int = 2, seed: int = 0, **method: Any) -> RunDirectory:
    """Two rounds of `method`, FedOTP at mass 0.5 if not given."""
    tables: dict[str, Any] = {
        "seed": seed,
        "data": {"dataset": str(inputs / "data"), "store": str(inputs / "store")},
        "backbone": {"name": str(inputs / "tiny.safetensors")},
        "partition": {"scheme": "iid", "n_clients": n_clients},
        "prompt": {"n_ctx": 2},
        "method": method or {"name": "fedotp", "mass": 0.5},
        "federation": {"rounds": 2, "local_epochs": 1},
        "compute": {"device": "cpu"},
    }
    return run(Config.from_dict(tables), out)
