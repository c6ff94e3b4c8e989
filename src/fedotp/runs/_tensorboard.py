"""TensorBoard: the scalars of a run, in `tensorboard/` in its directory."""

from pathlib import Path
from typing import Any

from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import Evaluation, RoundReport, View
from fedotp.runs._observer import Observer


class TensorBoard(Observer):
    """Writes a scalar for every number of rounds and evaluations; look at them with `tensorboard --logdir runs`."""

    def __init__(self) -> None:
        """Refuse where TensorBoard is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise FedotpError(
                "TensorBoard is not installed; install it with: pip install 'fedotp[tensorboard]'"
            ) from None
        self._make_writer = SummaryWriter
        self._writer: Any = None

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; what an interrupted run wrote after its last checkpoint is hidden."""
        self._writer = self._make_writer(str(path / "tensorboard"), purge_step=round_ + 1 if round_ else None)

    def on_round(self, report: RoundReport) -> None:
        """Training."""
        self._add(
            report.round,
            {
                "train/loss": report.mean_loss,
                "train/lr": report.lr,
                "train/images_per_second": report.n_images / max(report.seconds, 1e-9),
                "communication/bytes_up": report.bytes_up,
                "communication/bytes_down": report.bytes_down,
            },
        )

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Test."""
        self._add(round_, {f"test/{name}": value for name, value in evaluation.totals().items()})
        self._add(round_, {f"domain/{name}": mean for name, (mean, _, _) in evaluation.domain_accuracy.items()})
        self._writer.flush()

    def on_view(self, round_: int, view: View) -> None:
        """Test in another view."""
        self._add(round_, {f"view/{view.view} by {view.model} model": view.evaluation.mean})

    def on_end(self, path: Path) -> None:
        """Close the log."""
        self._writer.close()

    def _add(self, round_: int, scalars: dict[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, round_)
