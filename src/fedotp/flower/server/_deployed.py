"""The server of a real federation: the simulator's rounds, with sites that connect, disconnect and fail."""

import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Message

from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Ints, OnImages, Progress, RoundReport, Settings
from fedotp.federation.clients import KeptRows
from fedotp.federation.server import Server
from fedotp.federation.testing import Evaluation, Predictions, View
from fedotp.flower._events import record
from fedotp.flower._wire import SIGNATURE, digest_of, facts_of
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.records import Transcript
from fedotp.flower.server._registration import Member, Registration, UpdateRefusedError, is_refusal
from fedotp.flower.server._requests import Requests
from fedotp.flower.server._secure_rounds import SecureRounds
from fedotp.flower.server._updates import Intake, ReportedPrivacy, Update, reported_scores, shorten, stacked
from fedotp.methods import Parameters, Task
from fedotp.privacy import Mechanism, Releases
from fedotp.runs.directory import RunDirectory, metrics_line
from fedotp.runs.watch import Observer

log = logging.getLogger("fedotp.server")

_RELEASES = "state/releases.jsonl"  # log of the private averages that were published


class Deployed(Observer):
    """A federation of real sites (`fedotp.runs.one._loop.Federation`), which also observes its run."""

    def __init__(
        self,
        config: Config,
        task: Task,
        registration: Registration,
        directory: RunDirectory,
        identity: KeyIdentity,
        *,
        n_sites: int | None = None,
        n_averages: int = 0,
    ) -> None:
        """Make a federation of the sites in `registration`, which must be ready.

        `identity` checks sites' signatures; a resumed run began with `n_sites` sites and has computed `n_averages`.
        """
        settings = registration.settings
        self.config = config
        self.method = config.method
        self.registration = registration
        self.registry = registration.registry
        self.round = 0
        self.group_size = 1
        self.device = torch.device("cpu")
        self.n_sites = len(self.registry.members) if n_sites is None else n_sites
        self.kept = KeptRows({}, self.n_sites)  # empty: sites store their private parameters themselves
        self._task = task
        self._directory, self._identity = directory, identity
        self._transcript: Transcript
        self._statements: dict[int, dict[str, Any]] = {}  # of this round, by the sites' numbers
        self._released: Parameters = {}  # the private average of this round
        self._requests = Requests(config, task, registration, self.n_sites)
        privacy = self.settings.privacy
        self._intake = Intake(registration, alike=privacy.unit == "site")
        n_expected = len(self.registry.participants)  # fixed before the first update arrives
        self._privacy: Mechanism | ReportedPrivacy | None = None
        if privacy.unit == "site":
            self._privacy = Mechanism(privacy, n_expected, Releases(directory.path / _RELEASES, least=n_averages))
        elif privacy.of_steps:
            self._privacy = ReportedPrivacy(self.settings, registration)
        release = self._release if isinstance(self._privacy, Mechanism) else None
        self.server = Server(self.method, task, self.settings, self.n_sites, n_expected, release=release)
        self.server.params = {name: value.cpu() for name, value in self.server.params.items()}
        self._is_out_of_budget = False
        if settings.secure and (self.method.knows_clients(task) or not self.server.params):
            raise FedotpError(f"secure sums are incompatible with {self.method.title}: its server computes no average")
        self._sums: SecureRounds | None = None
        if settings.secure:
            self._sums = SecureRounds(
                self._requests, self._intake, registration, identity, self._state, sums=n_averages
            )

    # The interface to a run --------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self.config.settings.of(self.method)

    @property
    def learns(self) -> bool:
        return bool(self.server.params) or bool(self.method.private(self._task))

    @property
    def names(self) -> tuple[str, ...]:
        return self.registry.names

    @property
    def domains(self) -> tuple[str | None, ...]:
        """The domains that the sites report."""
        return tuple(member.domain for member in self.registry.members)

    @property
    def images_per_round(self) -> int:
        """Expected number of training images per round, over all local epochs."""
        rounds = self.settings.federation
        return int(rounds.participation * rounds.local_epochs * sum(m.train_images for m in self.registry.members))

    def see(self, *, everyone: bool, on_images: OnImages | None = None) -> list[View]:
        """Return no views: sites evaluate only on their own images."""
        return []

    def controls(self, clients: Ints) -> dict[str, Evaluation]:
        """Return no controls: sites report scores, not labels."""
        return {}

    def join_held_out(self, on_images: OnImages | None = None) -> None:
        """Do nothing: no site is held out, and sites that connect later join by themselves."""

    def save(self, path: Path, progress: Progress) -> None:
        """Write a checkpoint, the server's parameters and the progress of the run, after the names of new sites."""
        self._save_names()
        Checkpoint.write(path, self, progress)
        self._transcript.saved(self.round)

    def _save_names(self) -> None:
        """Save names and image counts of sites that joined later: metrics refer to sites by number."""
        manifest = self._directory.manifest
        new = self.registry.members[len(manifest["clients"]) :]
        images: dict[str, int] = manifest["deployment"]["train_images"]
        counts = {m.name: m.agreed for m in self.registry.members if m.agreed != images.get(m.name, 0)}
        if new or counts:
            manifest["clients"] += [member.name for member in new]
            manifest["domains"] += [member.domain for member in new]
            images.update(counts)
            manifest["data"]["train_images"] = sum(images.values())
            self._directory.save_manifest(manifest)

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Begin or continue the transcript of the run."""
        log.info("%s: %d of %d rounds done; writing to %s", config.method.title, round_, self._rounds, path)
        self._transcript = Transcript(path, self.registration.agreement, self._identity)
        options, n_members = self.registration.settings, len(self.registry.participants)
        limits = {"max_times": options.max_times, "max_images": options.max_images}
        self._transcript.start(round_, params=digest_of(self.server.params), members=n_members, **limits)

    def on_end(self, path: Path) -> None:
        """End the transcript of a complete or interrupted run."""
        self._transcript.saved(self.round, at_end=True)
        log.info("the run ended after round %d of %d; results are in %s", self.round, self._rounds, path)

    def on_interrupt(self) -> None:
        """Stop waiting for sites: the user has stopped the server."""
        self._requests.is_stopping = True
        log.info("stopping after this round; press Ctrl-C again to stop immediately")

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """Record the accuracy that the sites report."""
        values = zip(evaluation.clients, evaluation.accuracy.tolist(), strict=True)
        sites = {self.names[client]: accuracy for client, accuracy in values}
        log.info("after round %d: accuracy %.2f %% (sites: %d)", round_, 100 * evaluation.mean, len(sites))
        record("evaluation", run=self._run, round=round_, accuracy=evaluation.mean, sites=sites)

    def may_go_on(self) -> bool:
        """True if the privacy budget allows another round."""
        if self._privacy is None or not self._privacy.is_spent:
            return True
        self._is_out_of_budget = True
        spent = self._privacy.facts()
        log.warning(
            "privacy budget exhausted: epsilon %.3f of %g at delta %g; the run ends after round %d",
            *(spent["epsilon"], spent["max_epsilon"], spent["delta"], self.round),
        )
        return False

    def facts(self) -> dict[str, Any]:
        """Return the sites' weights in images, their faults, and the privacy spent."""
        members, most = self.registry.participants, self._intake.most_images()
        facts: dict[str, Any] = {
            "faults": {m.name: m.faults for m in members if m.faults},
            "refused": {m.name: m.refused for m in members if m.refused},
            "shortened": {m.name: m.shortened for m in members if m.shortened},
        }
        if self._sums is not None:
            facts["secure"] = self._sums.facts()
        if self._privacy is not None:
            ended = {"ended_the_run": True} if self._is_out_of_budget else {}
            facts["privacy"] = {**self._privacy.facts(), **ended}
        if isinstance(self._privacy, Mechanism):
            return facts  # all sites have the same weight
        return {
            **facts,
            "weights": {m.name: min(m.agreed, most) for m in members},
            "capped": {m.name: m.agreed for m in members if m.agreed > most},
        }

    @property
    def _run(self) -> str:
        return self.registration.agreement.run

    @property
    def _rounds(self) -> int:
        return self.settings.federation.rounds

    # Rounds ------------------------------------------------------------------------------------------------

    def run_round(self, on_images: OnImages | None = None) -> RoundReport:
        """Run one communication round with the connected sites."""
        if self._sums is not None:
            return self._secure_round(self._sums)
        start = time.perf_counter()
        answers: dict[int, Message] = {}
        while not answers:  # a round without an answer is repeated
            asked, present = self._requests.to_train(self.round)
            messages = self._requests.orders_to_train(present, self.round, self.server.params)
            answers = self._requests.exchange(messages)
            if not answers and self._requests.is_stopping:
                raise KeyboardInterrupt
            if not answers:
                log.warning("round %d: none of %d sites answered; retrying", self.round + 1, len(present))
        updates, faults = self._intake.updates(present, answers, self._untrained, self._state)
        for number, fault in faults.items():
            log.warning("round %d, site %s: %s", self.round + 1, self.names[number], fault)
        inputs = {f"{n}.{key}": value for n, update in updates.items() for key, value in update.prompts.items()}
        is_private, max_times = isinstance(self._privacy, Mechanism), self.registration.settings.max_times
        shortened = {} if is_private else shorten(updates, max_times)
        for number, how in shortened.items():
            log.warning("round %d, site %s: %s", self.round + 1, self.names[number], how)
            self.registry.members[number].shortened += 1
        accepted = self.server.accept(stacked(updates), self.round)
        if accepted.why_not and self.server.params:
            log.warning("round %d: no average: %s", self.round + 1, accepted.why_not)
        if is_private:
            inputs, self._released = {f"release.{key}": value for key, value in self._released.items()}, {}
        sent = [record for message in messages for record in message.content.array_records.values()]
        return self._finish(
            start,
            asked,
            present,
            faults,
            updates,
            inputs,
            n_images=sum(update.n_images for update in updates.values()),
            bytes_down=sum(array.numpy().nbytes for each in sent for array in each.values()),
            bytes_up=sum(value.nbytes for update in updates.values() for value in update.prompts.values()),
            shortened={self.names[number]: how for number, how in shortened.items()},
            averaged=accepted.chosen,
        )

    def _secure_round(self, sums: SecureRounds) -> RoundReport:
        """Run one round of which the server sees only the sum: of each update, it knows the weight."""
        start, least = time.perf_counter(), self.settings.federation.min_clients
        asked, present, opened = sums.run(self.round, self.server.params, self._untrained, least)
        average, inputs = opened.average, {}
        if average is None:
            n = len(opened.survivors)
            log.warning("round %d: no average: %d updates, fewer than %d", self.round + 1, n, least)
        else:
            values = {name: torch.from_numpy(value) for name, value in average.values.items()}
            inputs = {f"sum.{name}": value for name, value in values.items()}
            self.server.accept_average(values, values, average.weight)
        return self._finish(
            start,
            asked,
            present,
            opened.faults,
            {n: Update(n_examples=self._statements[n]["images"], steps=None) for n in opened.survivors},
            inputs,
            weight=0 if average is None else average.weight,
            n_images=0 if average is None else average.n_images,
            bytes_down=opened.bytes_down,
            bytes_up=opened.bytes_up,
            known_loss=float("nan") if average is None else average.loss,
        )

    def _finish(
        self,
        start: float,
        asked: Ints,
        present: Sequence[Member],
        faults: dict[int, str],
        updates: Mapping[int, Update],
        inputs: Parameters,
        *,
        weight: int = 0,
        **more: Any,
    ) -> RoundReport:
        """Count and record a round; `weight` is that of a secure sum."""
        members = self.registry.members
        for number in (int(n) for n in asked if members[n] not in present):
            faults[number] = "not connected"
            log.warning("round %d, site %s: not connected", self.round + 1, self.names[number])
        for number, fault in faults.items():
            members[number].fail(fault)
        self.round += 1
        for number, update in updates.items():
            members[number].accepted = self.round
            if isinstance(self._privacy, ReportedPrivacy):
                self._privacy.count(members[number], update.steps)
        answered = np.array(sorted(updates), np.int64)
        report = RoundReport(
            round=self.round,
            sampled=np.asarray(asked, np.int64),
            answered=answered,
            loss=np.array([updates[n].loss for n in answered]),
            examples=np.array([updates[n].n_examples for n in answered], np.int64),
            lr=self.settings.optimizer.rate_at(self.round - 1, self._rounds),
            seconds=time.perf_counter() - start,
            faults={self.names[number]: fault for number, fault in faults.items()},
            epsilon=None if self._privacy is None else self._privacy.epsilon,
            **more,
        )
        self._record(report)
        self._transcribe(report, inputs, {n: update.n_examples for n, update in updates.items()}, weight)
        return report

    def _record(self, report: RoundReport) -> None:
        """Log a round and record its events."""
        answered = f"{len(report.answered)} of {len(report.sampled)} sites answered"
        loss = "" if math.isnan(report.mean_loss) else f", loss {report.mean_loss:.4f}"
        log.info("round %d: %s%s%s, %.1f s", self.round, answered, loss, report.spent, report.seconds)
        which = {"run": self._run, "round": self.round}
        for name, fault in report.faults.items():
            if is_refusal(fault):
                record("update-refused", site=name, **which, reason=fault)
        digest, spent = digest_of(self.server.params), report.epsilon
        record(
            "round",
            **which,
            rounds=self._rounds,
            answered=[self.names[number] for number in report.answered],
            faults=report.faults,
            seconds=report.seconds,
            loss=report.mean_loss,
            digest=digest,
            epsilon=spent,
        )
        if spent is not None:
            privacy = self.settings.privacy
            record("privacy-spent", unit=privacy.unit, epsilon=spent, delta=privacy.delta)
        if isinstance(self._privacy, Mechanism):
            record("release", what="private average", **which, digest=digest)

    def _transcribe(self, report: RoundReport, inputs: Parameters, weights: Mapping[int, int], weight: int) -> None:
        """Append a round to the transcript; `weight` is that of a secure sum."""
        sites = {
            self.names[n]: {"number": n, **self._statements[n], "weight": weight_} for n, weight_ in weights.items()
        }
        facts = report.as_dict()
        self._transcript.round(
            self.round,
            inputs,
            sites=sites,
            weight=weight,
            agreed={member.name: member.agreed for member in self.registry.members if member.agreed},
            params=digest_of(self.server.params),
            metrics=hashlib.sha256(metrics_line({"kind": "round", **facts})).hexdigest(),
            **{key: facts[key] for key in ("faults", "shortened", "averaged", "epsilon") if key in facts},
        )
        self._statements = {}

    def _state(self, number: int, update: str, images: int, reply: Message) -> None:
        """Check the signed statement of a site about its update, and keep it for the transcript."""
        order, name = digest_of(self._requests.payloads.sent(number, self.server.params)), self.names[number]
        try:
            signature = facts_of(reply).get(SIGNATURE)
            self._statements[number] = self._transcript.check(name, self.round + 1, order, update, images, signature)
        except FedotpError as error:
            raise UpdateRefusedError(str(error)) from None

    def _release(self, *given: Any) -> Parameters:
        """Compute the private average, and keep it for the transcript."""
        assert isinstance(self._privacy, Mechanism)
        self._released = self._privacy.release(*given)
        return self._released

    def _untrained(self, number: int) -> Parameters:
        return self._requests.payloads.untrained(number, self.round, self.server.params)

    # Evaluation --------------------------------------------------------------------------------------------

    def evaluate(self, *, everyone: bool) -> tuple[Evaluation | None, Predictions | None]:
        """Collect the scores that the sites report; at the end, wait for sites that have just disconnected."""
        present = self._requests.to_test(self.round, everyone=everyone)
        messages = self._requests.orders_to_test(present, self.round, self.server.params, last=everyone)
        answers = self._requests.exchange(messages)
        for member in present:
            if member.node not in answers:
                log.warning("site %s: no evaluation within the timeout", member.name)
        replies = {self.registry.number(m): answers[m.node] for m in present if m.node in answers}
        return reported_scores(replies, self.registry.members, len(self._task.classes))
