"""Experiment trackers: TensorBoard, Weights & Biases and MLflow."""

import hashlib
import importlib
import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp._values import alternatives, require
from fedotp.config import Config, flatten
from fedotp.errors import FedotpError
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation, View
from fedotp.runs.directory import RunDirectory
from fedotp.runs.watch._observer import Observer

_MODES = ("offline", "online", "disabled")  # of W&B
_TAG = "fedotp.id"  # of a run in MLflow
_AT_A_TIME = 100  # MLflow's limit of parameters in a call


class Tracker(Observer):
    """Observer that passes all numbers of rounds and evaluations to `log`, which a subclass implements."""

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Log these numbers of a round."""
        raise NotImplementedError

    def on_round(self, report: RoundReport) -> None:
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
        domains = {f"domain/{name}": mean for name, (mean, _, _) in evaluation.domain_accuracy.items()}
        self.log(round_, {f"test/{name}": value for name, value in evaluation.totals().items()} | domains)

    def on_view(self, round_: int, view: View) -> None:
        self.log(round_, {f"view/{view.view} by {view.model} model": view.evaluation.mean})


def _imported(module: str, title: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FedotpError(f"{title} is not installed; install it with: pip install 'fedotp[{extra}]'") from None


def identity(path: Path) -> str:
    """Return the identity of a run, also when resumed elsewhere: the digest of its manifest."""
    return hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()[:16]


class TensorBoard(Tracker):
    """Tracker for TensorBoard; view with `tensorboard --logdir runs`."""

    def __init__(self) -> None:
        self._make_writer = _imported("torch.utils.tensorboard", "TensorBoard", "tensorboard").SummaryWriter
        self._writer: Any = None

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; hide entries after the last checkpoint of an interrupted run."""
        self._writer = self._make_writer(str(path / "tensorboard"), purge_step=round_ + 1 if round_ else None)

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, round_)
        self._writer.flush()

    def on_end(self, path: Path) -> None:
        if self._writer is not None:
            self._writer.close()

    on_failure = on_end


class WandB(Tracker):
    """Tracker for W&B: offline, for `wandb sync`, or online with WANDB_MODE=online in the environment."""

    def __init__(self, project: str = "fedotp") -> None:
        self._wandb = _imported("wandb", "W&B", "wandb")
        self._project = os.environ.get("WANDB_PROJECT", project)
        self._mode = os.environ.get("WANDB_MODE") or "offline"
        require(self._mode in _MODES, "WANDB_MODE", self._mode, alternatives(_MODES))
        self._run: Any = None

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; a resumed run keeps its name."""
        self._run = self._wandb.init(
            project=self._project,
            name=path.name,
            id=identity(path),
            resume="allow",
            reinit="finish_previous",
            dir=path,
            config=flatten(config),
            mode=self._mode,
            settings=self._wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Log the scalars with the round, so that a resumed run can log a round again."""
        known = {name: value for name, value in scalars.items() if not math.isnan(value)}
        self._run.log({"round": round_, **known})

    def on_end(self, path: Path) -> None:
        """Close the log, with the final results if the run is complete."""
        run = RunDirectory(path)
        if run.is_complete:
            self._run.summary.update({f"final/{key}": value for key, value in run.summary["final"].items()})
        self._run.finish(exit_code=0 if run.is_complete else 1)

    def on_failure(self, path: Path) -> None:
        if self._run is not None:
            self._run.finish(exit_code=1)


class MLflow(Tracker):
    """Tracker for MLflow: in mlruns beside the run, or at MLFLOW_TRACKING_URI.

    View with `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri runs/mlruns`.
    """

    def __init__(self, experiment: str = "fedotp") -> None:
        self._mlflow = _imported("mlflow", "MLflow", "mlflow")
        self._experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", experiment)
        self._client: Any = None
        self._run = ""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; a resumed run is found by its tag."""
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            place = (path.absolute().parent / "mlruns").as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions require a database by default
        self._client = self._mlflow.MlflowClient(tracking_uri=place)
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        own = identity(path)
        begun = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{own}'", max_results=1)
        if begun:
            self._run = begun[0].info.run_id
            self._client.set_terminated(self._run, "RUNNING")
            return
        self._run = self._client.create_run(experiment, run_name=path.name, tags={_TAG: own}).info.run_id
        parameters = [self._mlflow.entities.Param(key, str(value)) for key, value in flatten(config).items()]
        for first in range(0, len(parameters), _AT_A_TIME):
            self._client.log_batch(self._run, params=parameters[first : first + _AT_A_TIME])

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metric = self._mlflow.entities.Metric
        known = [
            metric(re.sub(r"[^\w\-./ ]", "_", name), float(value), now, round_)  # other characters are not allowed
            for name, value in scalars.items()
            if not math.isnan(float(value))
        ]
        self._client.log_batch(self._run, metrics=known)

    def on_end(self, path: Path) -> None:
        """Close the log, with the configuration and the summary of a complete run."""
        complete = RunDirectory(path).is_complete
        for name in ("config.toml", "summary.json") if complete else ():
            self._client.log_artifact(self._run, str(path / name))
        self._client.set_terminated(self._run, "FINISHED" if complete else "KILLED")

    def on_failure(self, path: Path) -> None:
        if self._run:
            self._client.set_terminated(self._run, "FAILED")
