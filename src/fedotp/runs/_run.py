"""Run a federation from its configuration to its summary, and go on where it was stopped."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import (
    Evaluation,
    KeptRows,
    Predictions,
    Progress,
    RoundReport,
    Simulator,
    evaluate_predictions,
    load_checkpoint,
    save_checkpoint,
)
from fedotp.runs._directory import RunDirectory, free_name
from fedotp.runs._interrupt import listen
from fedotp.runs._manifest import make_manifest
from fedotp.runs._observer import Observer
from fedotp.runs._prepare import Prepared, prepare


def run(config: Config, out: str | Path | None = None, *, observer: Observer | None = None) -> RunDirectory:
    """Run the federation that `config` describes, in the new directory `out` (below `runs/` if not given).

    Returns the directory; `is_complete` tells whether the run has ended or was interrupted.

    Example:
        >>> import fedotp                                                            # doctest: +SKIP
        >>> done = fedotp.run(fedotp.load_config("demo").override(["seed=1"]))       # doctest: +SKIP
        >>> done.summary["final"]["accuracy"]                                        # doctest: +SKIP
    """
    observer = observer or Observer()
    directory = RunDirectory(out or free_name(config, Path("runs")))
    directory.require_new()
    prepared = prepare(config, observer)
    simulator = make_simulator(prepared, directory)  # refuses what cannot work before anything is written
    directory.create(config, make_manifest(prepared), prepared.partition)
    with directory.locked():
        _Loop(prepared, directory, simulator, Progress(group_size=simulator.group_size), observer).go()
    return directory


def resume(path: str | Path, *, observer: Observer | None = None) -> RunDirectory:
    """Go on with the run in `path`; one that is complete is left as it is.

    The result is, bit for bit, that of a run never interrupted.
    """
    observer = observer or Observer()
    directory = RunDirectory.open(path)
    with directory.locked():
        if directory.is_complete:
            return directory
        prepared = prepare(directory.config, observer, directory)
        simulator = make_simulator(prepared, directory)
        progress = Progress(group_size=simulator.group_size)
        if directory.checkpoint.is_file():
            progress = load_checkpoint(directory.checkpoint, simulator)
        directory.cut_metrics(progress.metrics_bytes)
        _Loop(prepared, directory, simulator, progress, observer).go()
    return directory


def make_simulator(prepared: Prepared, directory: RunDirectory) -> Simulator:
    """The federation of a run, its clients' own parameters in the run's directory."""
    config = prepared.config
    return Simulator(
        config.method,
        prepared.task,
        prepared.data,
        config.settings,
        make_kept=partial(_kept_in, directory),
    )


def _kept_in(directory: RunDirectory, initial: Any, n_clients: int) -> KeptRows:
    return KeptRows(initial, n_clients, directory.kept)


class _Loop:
    """The rounds of one run."""

    def __init__(
        self,
        prepared: Prepared,
        directory: RunDirectory,
        simulator: Simulator,
        progress: Progress,
        observer: Observer,
    ) -> None:
        self.prepared = prepared
        self.directory = directory
        self.simulator = simulator
        self.progress = progress
        self.observer = observer
        self.settings = simulator.settings
        self.n_classes = len(prepared.task.classes)

    def go(self) -> None:
        """Run all rounds that are left, unless interrupted, and write the summary."""
        rounds = self.settings.federation.rounds if self.simulator.learns else 0
        per_round = self.settings.federation.participation * self.settings.federation.local_epochs
        n_images = int(per_round * self.simulator.data.train.sizes(self.simulator.members).sum()) if rounds else 0
        self.observer.on_start(
            self.directory.path, self.prepared.config, round_=self.simulator.round, images_per_round=n_images
        )
        with listen(self.observer.on_interrupt) as interrupt:
            if rounds and self.settings.evaluation.every and self.progress.metrics_bytes == 0:
                self._evaluate()
                self._commit()
            while self.simulator.round < rounds and not self.progress.stopped:
                if interrupt.wanted:
                    self.observer.on_end(self.directory.path)
                    return
                self._round(rounds)
                self._commit()
            self._finish()
        self.observer.on_end(self.directory.path)

    def _round(self, rounds: int) -> None:
        report = self.simulator.run_round(self.observer.on_images)
        progress = self.progress
        progress.bytes_up += report.bytes_up
        progress.bytes_down += report.bytes_down
        progress.train_seconds += report.seconds
        self._append(round_record(report))
        self.observer.on_round(report)
        every = self.settings.evaluation.every
        if every and report.round % every == 0 and report.round < rounds:
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate after a round that is not the last, and count towards early stopping."""
        evaluation, _ = self._evaluation(self.simulator.drawn_for_evaluation())
        progress, settings = self.progress, self.settings.evaluation
        if evaluation.mean > progress.best_accuracy + settings.min_delta or progress.best_accuracy < 0:
            progress.best_accuracy, progress.best_round, progress.since_best = evaluation.mean, self.simulator.round, 0
        else:
            progress.since_best += 1
        progress.stopped = bool(settings.patience) and progress.since_best >= settings.patience

    def _evaluation(self, clients: np.ndarray | None) -> tuple[Evaluation, Predictions]:
        start = time.perf_counter()
        predictions = self.simulator.predict(clients)
        if not len(predictions.row):
            raise FedotpError(
                "no client that trains has a test image: nothing can be evaluated; divide the data otherwise"
            )
        evaluation = evaluate_predictions(predictions, self.n_classes, self.simulator.data.domains)
        seconds = time.perf_counter() - start
        self.progress.evaluate_seconds += seconds
        record = {"kind": "evaluation", "round": self.simulator.round, "seconds": round(seconds, 3)}
        self._append({**record, **evaluation.as_dict()})
        self.observer.on_evaluation(self.simulator.round, evaluation)
        return evaluation, predictions

    def _append(self, record: dict[str, Any]) -> None:
        self.progress.metrics_bytes = self.directory.append_metrics(record)

    def _commit(self) -> None:
        self.progress.round = self.simulator.round
        self.progress.group_size = self.simulator.group_size
        save_checkpoint(self.directory.checkpoint, self.simulator, self.progress)

    def _finish(self) -> None:
        """Evaluate everyone, let the held-out clients join, and write the summary."""
        before = self.progress.metrics_bytes
        evaluation, predictions = self._evaluation(None)
        progress = self.progress
        if evaluation.mean > progress.best_accuracy:
            progress.best_accuracy, progress.best_round = evaluation.mean, self.simulator.round
        summary: dict[str, Any] = {
            "method": self.simulator.method.title,
            "rounds": self.simulator.round,
            "stopped_early": progress.stopped,
            "final": evaluation.totals(),
            "best": {"accuracy": progress.best_accuracy, "round": progress.best_round},
            "clients": _by_client(evaluation, self.simulator.data.names, self.simulator.data.domains),
            "domains": evaluation.domains(),
            "communication": {"bytes_up": progress.bytes_up, "bytes_down": progress.bytes_down},
            "skipped_images": len(self.prepared.dataset.skipped),
        }
        if len(self.simulator.held_out):
            joined = self.simulator.join(self.simulator.held_out, self.observer.on_images)
            outcome = evaluate_predictions(joined, self.n_classes, self.simulator.data.domains)
            summary["joined"] = {
                **(outcome.totals() if len(outcome.n) else {}),  # they may have no test images
                "clients": _by_client(outcome, self.simulator.data.names, self.simulator.data.domains),
            }
            predictions = Predictions.join([predictions, joined])
        summary["seconds"] = {"train": progress.train_seconds, "evaluate": progress.evaluate_seconds}
        self.directory.save_predictions(predictions)
        progress.metrics_bytes = before  # a kill before the summary is there has the last evaluation made again
        self._commit()
        self.directory.save_summary(summary)


def round_record(report: RoundReport) -> dict[str, Any]:
    """A round's line in metrics.jsonl."""
    return {
        "kind": "round",
        "round": report.round,
        "sampled": report.sampled.tolist(),
        "answered": report.answered.tolist(),
        "loss": None if np.isnan(report.mean_loss) else report.mean_loss,
        "client_loss": report.loss.tolist(),
        "lr": report.lr,
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "images": report.n_images,
        "seconds": round(report.seconds, 3),
    }


def _by_client(evaluation: Evaluation, names: tuple[str, ...], domains: tuple[str | None, ...]) -> list[dict[str, Any]]:
    columns = zip(
        evaluation.clients, evaluation.n, evaluation.accuracy, evaluation.macro_f1, evaluation.loss, strict=True
    )
    return [
        {
            "name": names[client],
            "domain": domains[client],
            "test_images": int(n),
            "accuracy": float(accuracy),
            "macro_f1": float(f1),
            "loss": float(loss),
        }
        for client, n, accuracy, f1, loss in columns
    ]


def restore(
    path: str | Path, changes: Sequence[str] = (), *, observer: Observer | None = None
) -> tuple[Prepared, Simulator]:
    """The federation of the run in `path` as it stands; `changes` such as "method.mass=0.5" apply.

    Nothing is written. Only what does not change the shape of the prompts can be changed.
    """
    directory = RunDirectory.open(path)
    config = directory.config.override(list(changes))
    if config.partition != directory.config.partition:
        raise FedotpError(f"{path}: a run is evaluated on its own partition; leave partition.* out of --set")
    prepared = prepare(config, observer, directory)
    if not directory.checkpoint.is_file():
        raise FedotpError(f"{path} has no checkpoint yet; go on with `fedotp run --resume {path}`")
    simulator = make_simulator(prepared, directory)
    load_checkpoint(directory.checkpoint, simulator)
    return prepared, simulator


def evaluate_run(path: str | Path, changes: Sequence[str] = (), *, observer: Observer | None = None) -> Evaluation:
    """Evaluate the clients of the run in `path` again, as it stands, with `changes` as for `restore`."""
    prepared, simulator = restore(path, changes, observer=observer)
    return evaluate_predictions(simulator.predict(), len(prepared.task.classes), prepared.data.domains)
