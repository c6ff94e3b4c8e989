"""Weights & Biases: the scalars of a run, in `wandb/` in its directory, and nowhere else unless that is asked for."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp._ranges import alternatives, require
from fedotp.config import Config
from fedotp.runs._directory import RunDirectory
from fedotp.runs._tracker import Tracker, flat, identity, not_installed

_MODES = ("offline", "online", "disabled")


class WandB(Tracker):
    """Logs offline, for `wandb sync` to send; with WANDB_MODE=online in the environment, to the server at once."""

    def __init__(self, project: str = "fedotp") -> None:
        """Refuse where W&B is not installed."""
        try:
            import wandb
        except ImportError:
            raise not_installed("W&B", "wandb") from None
        self._wandb: Any = wandb
        self._project = os.environ.get("WANDB_PROJECT", project)
        self._mode = os.environ.get("WANDB_MODE") or "offline"
        require(self._mode in _MODES, "WANDB_MODE", self._mode, alternatives(_MODES))
        self._run: Any = None

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; a run that goes on has the name that it had."""
        self._run = self._wandb.init(
            project=self._project,
            name=path.name,
            id=identity(path),
            resume="allow",
            reinit="finish_previous",
            dir=path,
            config=flat(config),
            mode=self._mode,
            settings=self._wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Log the scalars; the round is among them, so that a run that goes on may tell a round again."""
        told = {name: value for name, value in scalars.items() if not math.isnan(value)}
        self._run.log({"round": round_, **told})

    def on_end(self, path: Path) -> None:
        """Close the log, with the final numbers where the run is complete."""
        run = RunDirectory(path)
        if run.is_complete:
            self._run.summary.update({f"final/{key}": value for key, value in run.summary["final"].items()})
        self._run.finish(exit_code=0 if run.is_complete else 1)

    def on_failure(self, path: Path) -> None:
        """Close the log as one of a run that failed."""
        if self._run is not None:
            self._run.finish(exit_code=1)
