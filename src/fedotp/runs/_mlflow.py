"""MLflow: the scalars, settings and files of a run, in the store `mlruns/` beside its directory."""

import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedotp.config import Config
from fedotp.runs._directory import RunDirectory
from fedotp.runs._tracker import Tracker, flat, identity, not_installed

_TAG = "fedotp.id"
_AT_A_TIME = 100  # parameters that MLflow takes at once


class MLflow(Tracker):
    """Logs to files beside the run, or, with MLFLOW_TRACKING_URI in the environment, to that place.

    Look at them with `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri runs/mlruns`.
    """

    def __init__(self, experiment: str = "fedotp") -> None:
        """Refuse where MLflow is not installed."""
        try:
            import mlflow
        except ImportError:
            raise not_installed("MLflow", "mlflow") from None
        self._mlflow: Any = mlflow
        self._experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", experiment)
        self._client: Any = None
        self._run = ""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Open the log; a run that goes on is found again by its tag."""
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            place = (path.absolute().parent / "mlruns").as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for a database otherwise
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
        parameters = [self._mlflow.entities.Param(key, str(value)) for key, value in flat(config).items()]
        for first in range(0, len(parameters), _AT_A_TIME):
            self._client.log_batch(self._run, params=parameters[first : first + _AT_A_TIME])

    def log(self, round_: int, scalars: Mapping[str, float]) -> None:
        """Log the scalars."""
        now = int(1000 * time.time())
        metric = self._mlflow.entities.Metric
        told = [
            metric(_allowed(name), float(value), now, round_)
            for name, value in scalars.items()
            if not math.isnan(float(value))
        ]
        self._client.log_batch(self._run, metrics=told)

    def on_end(self, path: Path) -> None:
        """Close the log; of a complete run, its configuration and its summary are kept with it."""
        complete = RunDirectory(path).is_complete
        for name in ("config.toml", "summary.json") if complete else ():
            self._client.log_artifact(self._run, str(path / name))
        self._client.set_terminated(self._run, "FINISHED" if complete else "KILLED")

    def on_failure(self, path: Path) -> None:
        """Close the log as one of a run that failed."""
        if self._run:
            self._client.set_terminated(self._run, "FAILED")


def _allowed(name: str) -> str:
    """A name that MLflow takes: others become underscores."""
    return re.sub(r"[^\w\-./ ]", "_", name)
