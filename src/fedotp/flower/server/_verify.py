"""Verification of a run of real sites against its transcript, and against the transcripts of its sites.

First the chain and the digests of all files are checked, then the sites' signatures; then every aggregation is repeated
from its recorded inputs, bit for bit, with the code that the server runs (`_repeat.py`); last, the sites' transcripts
are compared.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import safetensors
import torch

from fedotp._files import read_file, read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError, listed
from fedotp.federation import Checkpoint, Progress, using_threads
from fedotp.flower._wire import digest_of
from fedotp.flower.keys import KeyIdentity, certified_keys, key_fingerprint
from fedotp.flower.records import Line, Statement, Transcript, read_chain
from fedotp.flower.server._repeat import MALFORMED, MOST_BYTES, Recorded, Repeated, read_inputs, repeat
from fedotp.runs.directory import RunDirectory

_GROWING = ".jsonl"  # ending of files that are appended to


@dataclass
class Verified:
    """The result of a verification: what was checked, what is wrong, and other findings."""

    run: str = ""
    rounds: int = 0
    repeated: int = 0
    statements: int = 0
    files: int = 0
    sites: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify_run(path: Path, site_logs: Sequence[Path] = (), keys: Path | None = None) -> Verified:
    """Verify the run in `path`, and the transcripts of its sites in `site_logs`.

    With a folder of `keys`, the authority must have certified the sites' keys; otherwise they are those that the server
    has recorded.
    """
    directory = RunDirectory.open(path)
    if not (path / Transcript.NAME).is_file():
        raise FedotpError(f"{path} has no {Transcript.NAME}; runs of `fedotp server` have one")
    verification = _Verification(directory, keys)
    steps = (verification.read, verification.check_files, verification.check_statements, verification.repeat)
    with directory.reading():
        for step in steps:
            if not verification.found.wrong:  # each relies on those before
                verification.make(step, f"{Transcript.NAME} is not a server's transcript")
        for log in site_logs:
            verification.make(partial(verification.compare, log), f"{log} is not a site's transcript")
    return verification.found


class _Verification:
    def __init__(self, directory: RunDirectory, certified: Path | None) -> None:
        self.directory, self.path, self.certified = directory, directory.path, certified
        self.found = Verified()
        self.lines: list[Line] = []
        self.every: list[Recorded] = []  # the lines of all rounds, repeated ones included
        self.rounds: dict[int, Recorded] = {}  # those that count
        self.restarts: set[int] = set()  # rounds after which the server was restarted
        self.lost: set[int] = set()  # rounds that were repeated after a restart
        self.after: dict[int, str] = {}  # digests of the parameters after rounds
        self.keys: set[tuple[str, str]] = set()  # names and public keys of the sites that signed
        self.repeated: Repeated | None = None

    def wrong(self, text: str) -> None:
        self.found.wrong.append(text)

    def note(self, text: str) -> None:
        self.found.notes.append(text)

    def make(self, check: Callable[[], None], otherwise: str) -> None:
        """Make a check; lines with valid hashes can still lack fields."""
        try:
            check()
        except MALFORMED as error:
            self.wrong(f"{otherwise}: {type(error).__name__} {one_line(error)}")

    # The chain ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Check the chain, and find the rounds that count: of a repeated round, the last."""
        self.lines = self._chain(self.path / Transcript.NAME, Transcript.NAME)
        start = self.lines[0].content if self.lines else {}
        for line in self.lines:
            where, content = f"{Transcript.NAME}, line {line.place}", line.content
            kind, n, last = content["kind"], content["round"], len(self.rounds)
            if kind == "start":
                self.restarts |= {n} if self.after else set()
                for lost in range(n + 1, last + 1):
                    del self.rounds[lost], self.after[lost]
                    self.lost.add(lost)
                    self.note(f"round {lost} was repeated after a restart of the server; the later one counts")
                start, before = content, self.after.setdefault(n, content["params"])
                if start["run"] != self.directory.manifest["deployment"]["run"]:
                    self.wrong(f"{where}: it belongs to run {start['run']}")
                if n > last or before != content["params"]:
                    self.wrong(f"{where}: the server started after round {n} with unrecorded parameters")
            elif n != last + (kind == "round"):
                self.wrong(f"{where}: {kind} of round {n} after round {last}")
            elif kind == "round":
                self.rounds[n] = Recorded(where, start, content)
                self.every.append(self.rounds[n])
                self.after[n] = content["params"]
        self.found.run, self.found.rounds = str(start.get("run", "")), len(self.rounds)

    def _chain(self, path: Path, name: str) -> list[Line]:
        """Read a chain, which messages call `name`; return no lines if one is invalid."""
        lines = read_chain(path)
        if lines and lines[-1].wrong and not lines[-1].hash:
            self.note(f"{name}, line {lines[-1].place}: {lines.pop().wrong}: the process was killed")
        wrong = [f"{name}, line {line.place}: {line.wrong}" for line in lines if line.wrong]
        self.found.wrong += wrong if lines else [f"{name}: it is empty"]
        return [] if wrong else lines

    # Files ----------------------------------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Compare the files of the run with the digests in the transcript."""
        records: dict[str, list[tuple[int, str]]] = {}
        for line in self.lines:
            for name, (n_bytes, digest) in line.content.get("files", {}).items():
                kept = [each for each in records.get(name, []) if name.endswith(_GROWING) and each[0] <= n_bytes]
                records[name] = [*kept, (n_bytes, digest)]
        for name in Transcript.FILES:
            if name in records or (self.path / name).exists():
                self._check_file(name, records.get(name, []))
        self._check_inputs()
        self._check_metrics()
        known = {*Transcript.FILES, Transcript.NAME, "state/lock", *(str(file) for file in self._inputs)}
        for file in sorted(self.path.rglob("*")):
            name = file.relative_to(self.path).as_posix()
            if file.is_file() and name not in known and file not in self._inputs and file.suffix != ".tmp":
                self.note(f"{name}: it is not in the transcript, and was not checked")
        if not self._is_ended:
            self.note(f"{Transcript.NAME} has no end: the server is running, or was killed")

    def _check_metrics(self) -> None:
        """Check that the metrics of an ended run have the recorded lines of all rounds."""
        if self._is_ended and self.rounds and not self.found.wrong:
            there = read_file(self.path / "metrics.jsonl", MOST_BYTES).splitlines(keepends=True)
            digests = {hashlib.sha256(line).hexdigest() for line in there}
            for n, each in self.rounds.items():
                if each.content["metrics"] not in digests:
                    self.wrong(f"metrics.jsonl: the line of round {n} was changed or removed")

    @property
    def _is_ended(self) -> bool:
        return self.lines[-1].content["kind"] == "end"

    def _check_file(self, name: str, records: list[tuple[int, str]]) -> None:
        """Check a file against its recorded lengths and digests: all if it is appended to, else the last."""
        try:
            content = read_regular(self.path / name, MOST_BYTES)
        except OSError as error:
            self.wrong(f"{name}: {error.strerror or error}")
            return
        self.found.files += 1
        valid = 0
        for n_bytes, digest in records:
            part = content[:n_bytes] if name.endswith(_GROWING) else content
            if (len(part), hashlib.sha256(part).hexdigest()) == (n_bytes, digest):
                valid = n_bytes
            elif name.endswith(_GROWING):
                kept = Progress.load(self.directory.checkpoint).metrics_bytes if name == "metrics.jsonl" else None
                if valid == len(content) == kept and not self._is_ended:
                    self.note(f"{name}: a resumed server has removed its last lines")
                    return
                first, last = content[:valid].count(b"\n") + 1, part.count(b"\n")
                self.wrong(f"{name}, line {first}{f' to {last}' if last > first else ''}: it was changed")
                return
        if valid < len(content):
            self._check_unrecorded(name, content[valid:])

    def _check_unrecorded(self, name: str, content: bytes) -> None:
        """Accept what a killed server wrote after the last line of its transcript, if it is intact by itself."""
        try:
            if self._is_ended or name == "config.toml":
                raise FedotpError(f"{name}: it was changed")
            if name in ("manifest.json", "summary.json"):
                self.directory.require_as_written(name)
            elif name == "predictions.npz":
                self.directory.predictions()
            elif name.endswith(".safetensors"):
                Checkpoint.read(self.path / name)
            else:
                known = {each.content["metrics"] for each in self.every} | self._releases
                for line in content.split(b"\n")[:-1]:
                    if b'{"kind":"evaluation"' not in line and hashlib.sha256(line + b"\n").hexdigest() not in known:
                        raise FedotpError(f"{name}: a line of a round was changed")
            self.note(f"{name}: it was written after the last line of the transcript")
        except FedotpError as error:
            self.wrong(one_line(error))

    @property
    def _releases(self) -> set[str]:
        """The digests of the possible lines of the private average of the round in progress."""
        privacy, last = self.directory.config.privacy, self.lines[-1].content
        same = {"round": last["round"] + (last["kind"] != "round"), "noise": privacy.noise, "clip": privacy.clip}
        records = [{**same, "sites": n} for n in {line.content.get("members") for line in self.lines}]
        return {hashlib.sha256(f"{json.dumps(each)}\n".encode()).hexdigest() for each in records}

    @property
    def _inputs(self) -> dict[Path, set[str]]:
        """The digests of the files of inputs; of a round that counts, only its own."""
        found: dict[Path, set[str]] = {}
        for each in self.every:
            if each.content["inputs"]:
                file = Transcript.inputs_file(self.path, each.number)
                found.setdefault(file, set()).add(each.content["inputs"])
        own = {Transcript.inputs_file(self.path, n): {each.content["inputs"]} for n, each in self.rounds.items()}
        return {file: own.get(file, {""}) - {""} or digests for file, digests in found.items()}

    def _check_inputs(self) -> None:
        """Check the inputs of the aggregations."""
        if self._inputs and not (self.path / Transcript.UPDATES).is_dir():
            self.note(f"{Transcript.UPDATES} was deleted: aggregations cannot be repeated")
            return
        for file, digests in self._inputs.items():
            where = f"round {int(file.stem)}, {Transcript.UPDATES}/{file.name}"
            if not file.is_file():
                self.wrong(f"{where}: it is missing")
            elif hashlib.sha256(read_file(file, MOST_BYTES)).hexdigest() not in digests:
                is_new = int(file.stem) == len(self.rounds) + 1 and not self._is_ended
                note = self.note if is_new else self.wrong  # a server was killed when it repeated this round
                note(f"{where}: it was changed{self._changed_sites(file)}")
            self.found.files += 1

    def _changed_sites(self, file: Path) -> str:
        """Name the sites whose updates in a changed file differ from their statements."""
        try:
            inputs, sites = read_inputs(file), self.rounds[int(file.stem)].content["sites"].items()
            names = [name for name, each in sites if digest_of(inputs[str(each["number"])]) != each["update"]]
        except (safetensors.SafetensorError, LookupError, ValueError):
            names = []
        return f" (site {', '.join(names)})" if names else ""

    # Statements and aggregations ------------------------------------------------------------------------------------

    def check_statements(self) -> None:
        """Check the sites' signatures, and that the authority has certified their keys."""
        has_keys = self.directory.manifest["deployment"]["keys"] or self.certified is not None
        fewer: dict[str, list[str]] = {}
        for recorded in self.every:
            for site, each in recorded.content["sites"].items():
                identity = KeyIdentity(None, {site: each["key"]} if has_keys else None)
                try:
                    identity.check(site, recorded.statement(site).content, bytes.fromhex(each["signature"]))
                except FedotpError as error:
                    self.wrong(f"{recorded.where}, round {recorded.number}, site {site}: {error}")
                self.keys.add((site, each["key"]))
                if each["images"] > min(recorded.content["agreed"].get(site, 0), each["weight"]):
                    fewer.setdefault(site, []).append(str(recorded.number))
                self.found.sites.add(site)
                self.found.statements += 1
        for site, rounds in fewer.items():
            self.note(f"site {site} counts with fewer images than it signed in rounds {listed(rounds)}")
        clients = self.directory.manifest["clients"]
        for n, recorded in self.rounds.items():
            numbers = [each["number"] for each in recorded.content["sites"].values()]
            for site, number in zip(recorded.content["sites"], numbers, strict=True):
                is_known = type(number) is int and number >= 0 and clients[number : number + 1] in ([site], [])
                if not is_known or numbers.count(number) > 1:
                    self.wrong(f"{recorded.where}, round {n}, site {site}: its number is {number!r}")
        if not has_keys:
            self.note("the sites have no keys: their statements are unsigned")
        if self.certified is not None and not self.found.wrong:
            for site, key in sorted(self.keys - certified_keys(self.certified)):
                self.wrong(f"site {site}: its key {key_fingerprint(key)} is not certified in {self.certified}")

    def repeat(self) -> None:
        """Repeat all aggregations, and compare the checkpoint."""
        with_inputs = (self.path / Transcript.UPDATES).is_dir() or not self._inputs
        manifest, rounds = self.directory.manifest, list(self.rounds.values())
        with using_threads(manifest["threads"]):  # others can change the last bits
            self.repeated = repeat(self.directory, rounds, self.after[0], with_inputs=with_inputs)
        self.found.wrong += self.repeated.wrong
        self.found.notes += self.repeated.notes
        self.found.repeated = self.repeated.n
        before, now = manifest["torch"], torch.__version__
        if self.repeated.wrong and before != now:
            self.note(f"the server ran torch {before}, this is torch {now}: aggregations may differ in the last bits")
        name = "state/checkpoint.safetensors"
        if not self.directory.checkpoint.is_file() and self.rounds and self._is_ended:
            self.wrong(f"{name}: it is missing")
        if self.found.wrong or not self.directory.checkpoint.is_file():
            return
        checkpoint = Checkpoint.read(self.directory.checkpoint)
        n = checkpoint.progress.round
        if digest_of(checkpoint.server) != self.after.get(n) or n < len(self.rounds) - (not self._is_ended):
            self.wrong(f"{name}: its parameters are not those after round {len(self.rounds)}")
        elif n in self.repeated.steps and digest_of(checkpoint.step) != self.repeated.steps[n]:
            self.wrong(f"{name}: the state of the server's optimizer is not that after round {n}")

    # Sites ----------------------------------------------------------------------------------------------------------

    def compare(self, path: Path) -> None:
        """Compare the transcript of a site."""
        lines = self._chain(path, str(path))
        if not lines or not self.lines:
            return
        first = lines[0].content
        site, run = first["site"], first["run"]
        if run != self.found.run:
            self.wrong(f"{path}: it belongs to run {run}, expected {self.found.run}")
            return
        recorded_keys = {key for name, key in self.keys if name == site}
        if recorded_keys and first["key"] not in recorded_keys:
            self.wrong(f"{path}: site {site} has another key than in {Transcript.NAME}")
        stated = {each.statement(site): each.where for each in self.every if site in each.content["sites"]}
        unused: list[str] = []
        for line in lines[1:]:
            content, n = line.content, line.content["round"]
            where, recorded = f"{path}, line {line.place}, round {n}, site {site}", self.rounds.get(n)
            if content["kind"] == "update":
                statement = Statement(**{key: content[key] for key in Statement.__dataclass_fields__})
                if stated.pop(statement, None) is not None:
                    continue
                faults = recorded.content.get("faults", {}) if recorded else {}
                other = "lost or repeated" if n <= len(self.rounds) else "not complete"
                unused.append(f"round {n} ({faults.get(site, other)})")
                known = {*recorded.content["sites"], *faults} if recorded else set()
                if n == len(self.rounds) + 1 and not self._is_ended:
                    known.add(site)
                n -= 1  # it began with the parameters after the round before
                if site not in known and n not in self.restarts | self.lost:
                    self.wrong(f"{where}: the server's transcript does not mention this update")
            if not 0 <= n <= len(self.rounds) and n not in self.lost:
                self.wrong(f"{where}: the server's transcript has no round {n}")
            elif self.repeated and not self.repeated.was_sent(site, n, content["order"]):
                tell = self.note if n in self.lost else self.wrong
                tell(f"{where}: the site received other parameters than those after round {n}")
        for statement, where in stated.items():
            self.wrong(f"{where}, round {statement.round}, site {site}: {path} does not contain this update")
        if unused:
            self.note(f"{path}: updates in no average, with the server's reason: {listed(unused)}")
