"""What trackers of experiments are told of a run: scalars by name, round by round."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import Evaluation, RoundReport, View
from fedotp.runs._observer import Observer


class Tracker(Observer):
    """Gives every number of rounds and evaluations to `log`; a subclass says where that is."""

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Keep these numbers of a round."""
        raise NotImplementedError

    def on_round(self, report: RoundReport) -> None:
        """Training."""
        self.log(
            report.round,
            {
                "train/loss": report.mean_loss,
                "train/lr": report.lr,
                "train/images_per_second": report.n_images / max(report.seconds, 1e-9),
                "communication/bytes_up": report.bytes_up,
                "communication/bytes_down": report.bytes_down,
                **({} if report.epsilon is None else {"privacy/epsilon": report.epsilon}),
            },
        )

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Test."""
        domains = {f"domain/{name}": mean for name, (mean, _, _) in evaluation.domain_accuracy.items()}
        self.log(round_, {f"test/{name}": value for name, value in evaluation.totals().items()} | domains)

    def on_view(self, round_: int, view: View) -> None:
        """Test in another view."""
        self.log(round_, {f"view/{view.view} by {view.model} model": view.evaluation.mean})


def not_installed(what: str, extra: str) -> FedotpError:
    """The refusal where a tracker's package is not there."""
    return FedotpError(f"{what} is not installed; install it with: pip install 'fedotp[{extra}]'")


def identity(path: Path) -> str:
    """What a run is known by wherever it goes on: of its manifest, which says when and from what it was begun."""
    return hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()[:16]


def flat(config: Config) -> dict[str, Any]:
    """The configuration, a key such as `method.mass` for every value."""
    return {
        f"{name}.{key}" if isinstance(part, dict) else name: value
        for name, part in config.to_dict().items()
        for key, value in (part.items() if isinstance(part, dict) else [("", part)])
    }
