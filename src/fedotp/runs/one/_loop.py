"""The rounds of a run, simulated or at real sites: training, evaluation, records, and the summary."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedotp._system import Interrupt, listen, own_seconds
from fedotp.config import Config
from fedotp.federation import Ints, OnImages, Progress, RoundReport, Settings
from fedotp.federation.testing import WITH_PRIOR, Evaluation, Predictions, View
from fedotp.runs.directory import RunDirectory, summary_of_views
from fedotp.runs.watch import Observer


class Federation(Protocol):
    """Interface between a run and a federation, simulated or of real sites."""

    @property
    def settings(self) -> Settings:
        """Settings of the federation."""

    @property
    def round(self) -> int:
        """Number of completed rounds."""

    @property
    def learns(self) -> bool:
        """True if the method trains parameters."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients; their numbers are the indices."""

    @property
    def domains(self) -> tuple[str | None, ...]:
        """Domains of the clients; None if mixed."""

    @property
    def images_per_round(self) -> int:
        """Expected number of training images in a round."""

    def may_go_on(self) -> bool:
        """Return False if the run must end, for example for its privacy budget."""

    def run_round(self, on_images: OnImages | None = None) -> RoundReport:
        """Run one communication round."""

    def evaluate(self, *, everyone: bool) -> tuple[Evaluation | None, Predictions | None]:
        """Evaluate all or the drawn clients; predictions, or both, are None if clients do not report them."""

    def see(self, *, everyone: bool) -> list[View]:
        """Evaluate the other requested views of all or the drawn clients."""

    def controls(self, clients: Ints) -> dict[str, Evaluation]:
        """Evaluate controls, and the method with the class prior, on the test images of `clients` (C,), by name."""

    def join_held_out(self, on_images: OnImages | None = None) -> tuple[Evaluation, Predictions] | None:
        """Let the held-out clients join; None if there are none."""

    def save(self, path: Path, progress: Progress) -> None:
        """Write a checkpoint, atomically."""

    def facts(self) -> dict[str, Any]:
        """Return further entries of the summary."""


class Loop:
    """The rounds of one run."""

    def __init__(
        self, config: Config, directory: RunDirectory, federation: Federation, progress: Progress, observer: Observer
    ) -> None:
        self.config = config
        self.directory = directory
        self.federation = federation
        self.progress = progress
        self.observer = observer
        self.settings = federation.settings

    def go(self, interrupt: Interrupt | None = None) -> None:
        """Run all remaining rounds, unless interrupted, and write the summary; handle Ctrl-C if `interrupt` is None."""
        rounds = self.settings.federation.rounds if self.federation.learns else 0
        n_images = self.federation.images_per_round if rounds else 0
        try:
            self.observer.on_start(
                self.directory.path, self.config, round_=self.federation.round, images_per_round=n_images
            )
            with nullcontext(interrupt) if interrupt else listen(self.observer.on_interrupt) as heard:
                if rounds and self.settings.evaluation.every and self.progress.metrics_bytes == 0:
                    self._evaluation(everyone=False)
                    self._commit()
                while self.federation.round < rounds and self.federation.may_go_on():
                    if heard.wanted:
                        break
                    self._record_round(self.federation.run_round(self.observer.on_images), rounds)
                    self._commit()
                else:
                    self._finish()
        except BaseException:
            with suppress(Exception):  # errors of the observer
                self.observer.on_failure(self.directory.path)
            raise
        self.observer.on_end(self.directory.path)

    def _record_round(self, report: RoundReport, rounds: int) -> None:
        """Record a round, and evaluate if due."""
        progress = self.progress
        progress.bytes_up += report.bytes_up
        progress.bytes_down += report.bytes_down
        progress.train_seconds += report.seconds
        self._append({"kind": "round", **report.as_dict()})
        self.observer.on_round(report)
        every = self.settings.evaluation.every
        if every and report.round % every == 0 and report.round < rounds:
            self._evaluation(everyone=False)

    def _evaluation(self, *, everyone: bool) -> tuple[Evaluation | None, Predictions | None]:
        """Evaluate and record all or the drawn clients, and the views that are due."""
        start = own_seconds()
        evaluation, predictions = self.federation.evaluate(everyone=everyone)
        seconds = own_seconds() - start
        self.progress.evaluate_seconds += seconds
        if evaluation is None:
            return None, None
        record = {"kind": "evaluation", "round": self.federation.round, "seconds": round(seconds, 3)}
        self._append({**record, **evaluation.as_dict()})
        self.observer.on_evaluation(self.federation.round, evaluation)
        if evaluation.mean > self.progress.best_accuracy:
            self.progress.best_accuracy, self.progress.best_round = evaluation.mean, self.federation.round
        settings = self.settings.evaluation
        if everyone or (settings.views_every and self.federation.round // settings.every % settings.views_every == 0):
            start = own_seconds()
            views = self.federation.see(everyone=everyone)
            self.progress.evaluate_seconds += own_seconds() - start
            for view in views:
                self._record(view)
        return evaluation, predictions

    def _record(self, view: View) -> None:
        self._append({"kind": "view", "round": self.federation.round, **view.as_dict()})
        self.observer.on_view(self.federation.round, view)

    def _append(self, record: dict[str, Any]) -> None:
        self.progress.metrics_bytes, self.progress.metrics_digest = self.directory.append_metrics(record)

    def _commit(self) -> None:
        self.progress.round = self.federation.round
        self.federation.save(self.directory.checkpoint, self.progress)

    def _finish(self) -> None:
        """Evaluate all clients, let the held-out clients join, and write the summary."""
        before = self.progress.metrics_bytes, self.progress.metrics_digest
        evaluation, predictions = self._evaluation(everyone=True)
        progress = self.progress
        best = progress.best_accuracy  # negative if there was no evaluation
        summary: dict[str, Any] = {
            "method": self.config.title,
            "rounds": self.federation.round,
            "final": evaluation.totals() if evaluation else {},
            "best": {"accuracy": progress.best_accuracy, "round": progress.best_round} if best >= 0 else {},
            "clients": self._by_client(evaluation) if evaluation else [],
            "domains": evaluation.domains() if evaluation else {},
            "communication": {"bytes_up": progress.bytes_up, "bytes_down": progress.bytes_down},
            **self.federation.facts(),
        }
        if self.config.method.learns and not self.config.method.in_closed_form:
            optimizer = self.settings.optimizer
            summary["optimizer"] = {"name": optimizer.name, "lr": optimizer.rate}
        if evaluation is not None:
            controls = self._controls(evaluation.clients)
            has_prior = {**evaluation.totals(), "clients": evaluation.accuracy.tolist()}
            summary["with_prior"] = controls.pop(WITH_PRIOR, has_prior if self.settings.evaluation.prior else None)
            summary["controls"] = controls
        if (joined := self.federation.join_held_out(self.observer.on_images)) is not None:
            outcome, lines = joined
            summary["joined"] = {
                **(outcome.totals() if len(outcome.n) else {}),  # they might have no test images
                "clients": self._by_client(outcome),
            }
            predictions = lines if predictions is None else Predictions.join([predictions, lines])
            if "holdout" in self.settings.evaluation.views and len(outcome.n):
                n_images = len(np.unique(lines.row))
                self._record(View("after joining", "personal", len(outcome.class_accuracy), n_images, outcome))
        metrics = self.directory.metrics
        summary |= summary_of_views(metrics("evaluation"), metrics("view"), self.federation.names)
        summary["seconds"] = {"train": progress.train_seconds, "evaluate": progress.evaluate_seconds}
        if predictions is not None:
            self.directory.save_predictions(predictions)
        # if killed before the summary is written, the last evaluation is repeated
        progress.metrics_bytes, progress.metrics_digest = before
        self._commit()
        self.directory.save_summary(summary)

    def _controls(self, clients: Ints) -> dict[str, Any]:
        """Return the results of the controls and of the method with the prior, with clients as in the summary."""
        start = own_seconds()
        found = self.federation.controls(clients)
        self.progress.evaluate_seconds += own_seconds() - start
        return {name: {**each.totals(), "clients": each.accuracy.tolist()} for name, each in found.items()}

    def _by_client(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        return [
            {
                "name": self.federation.names[client],
                "domain": self.federation.domains[client],
                "test_images": int(evaluation.n[place]),
                **evaluation.of_client(place),
            }
            for place, client in enumerate(evaluation.clients)
        ]
