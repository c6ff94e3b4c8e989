"""A tiny random CLIP, a folder of coloured images, and the command line in this process."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coloured_squares import draw_day_and_night
from fedotp.cli import main
from fedotp.clip import CLIP, TINY, save

COLOURS = {"red": (200, 30, 30), "[bold]green": (30, 200, 30), "blue": (30, 30, 200)}
CONFIG = """
[data]
dataset = "{folder}/images"
store = "{folder}/store"
[backbone]
name = "{folder}/tiny.safetensors"
[partition]
scheme = "domain-dirichlet"
n_clients = 4
alpha = 0.5
[prompt]
n_ctx = 2
[federation]
rounds = 2
local_epochs = 1
[optimizer]
lr = 0.05
[compute]
device = "cpu"
"""


@dataclass(frozen=True)
class Done:
    """What a command left: its exit status and what it printed."""

    status: int
    out: str
    err: str


Fedotp = Callable[..., Done]


def make(folder: Path) -> None:
    """Write backbones, images in two domains and tiny.toml; the first run fills the token store."""
    for seed, name in enumerate(("tiny", "other")):
        save(CLIP.random(TINY, seed=seed), folder / f"{name}.safetensors")
    draw_day_and_night(folder / "images", COLOURS, 8)
    (folder / "tiny.toml").write_text(CONFIG.format(folder=folder))


def started(*words: object, **options: Any) -> "subprocess.Popen[str]":
    """`fedotp` with these words in a process of its own, which has one thread."""
    call = [sys.executable, "-c", "from fedotp.cli import main; main()", *map(str, words)]
    return subprocess.Popen(call, env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True, **options)


def command(*words: object) -> Done:
    """Run `fedotp` with these words, errors and exit statuses included."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["fedotp", *map(str, words)]
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            sys.argv = before
    return Done(status, out.getvalue(), err.getvalue())
