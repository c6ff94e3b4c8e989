"""TensorBoard: the scalars of a run, in `tensorboard/` in its directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp.config import Config
from fedotp.runs._tracker import Tracker, not_installed


class TensorBoard(Tracker):
    """Writes a scalar for every number of rounds and evaluations; look at them with `tensorboard --logdir runs`."""

    def __init__(self) -> None:
        """Refuse where TensorBoard is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise not_installed("TensorBoard", "tensorboard") from None
        self._make_writer = SummaryWriter
        self._writer: Any = None

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; what an interrupted run wrote after its last checkpoint is hidden."""
        self._writer = self._make_writer(str(path / "tensorboard"), purge_step=round_ + 1 if round_ else None)

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, round_)
        self._writer.flush()

    def on_end(self, path: Path) -> None:
        """Close the log."""
        self._writer.close()

    def on_failure(self, path: Path) -> None:
        """Close the log."""
        if self._writer is not None:
            self._writer.close()
