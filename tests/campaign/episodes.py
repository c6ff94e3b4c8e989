"""One run each, disturbed: what it must end with, and what is wrong if it does not."""

import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from near_sites import make_deployable
from real_processes import processes
from stalling_proxy import stalling_proxy

from campaign.disturb import Disturbance, Federation, clocked
from fedotp.federation import Checkpoint
from fedotp.flower.keys import make_keys
from fedotp.flower.link._superlink import free_port
from fedotp.flower.site._state import PrivateFile
from fedotp.runs.directory import RunDirectory

SITES = ("north", "east", "west")
ROUNDS, SECURE_ROUNDS = 10, 4  # a secure round takes five exchanges
_LONGEST_RUN = 2400.0  # seconds after which a run counts as hanging
_PATIENCE = ["--patience", 900, "--round-timeout", 1800]
_CALM = (0.0, 1.0, 5.0, 15.0)  # seconds between two disturbances
_RAW = re.compile(r"Traceback|ApiError|\b\d{16,}\b")  # what no log may have: the last are numbers of Flower's nodes
KINDS = ("secure federation", "federation", "federation with a liar")

# A fourth site that is registered and answers with anything but what it should.
LIAR = """
import math, torch
from fedotp.flower.site._site import Site
train = Site.train
def poison(done, round_):
    for name, value in list(done.update.items()):
        lie = (round_ - 1) % 8  # the same in a repeated round
        if lie == 0: value.fill_(math.nan)
        elif lie == 1: value.fill_(math.inf)
        elif lie == 2: value.add_(1e6)
        elif lie == 3: done.update[name] = value[..., :1].clone()
        elif lie == 4: done.update[name] = value.double()
        elif lie == 5: done.update["\\x1b[2J" + name] = done.update.pop(name)
        elif lie == 6: done.update["more"] = torch.zeros(500_000)
        elif lie == 7: object.__setattr__(done, "n_examples", 10**9)
    return done
Site.train = lambda self, *order: poison(train(self, *order), order[2])
from fedotp.cli import main
main()
"""


@dataclass
class Lane:
    """Runs one after the other: `kinds` of federations in turn, and the `deck` of what is done to them."""

    rng: random.Random
    longest: float
    kinds: Iterator[str]
    deck: Iterator[Disturbance]


@dataclass
class Episode:
    """One run: what was done to it, and what was found."""

    kind: str
    name: str
    seconds: float = 0.0
    disturbances: list[tuple[str, float]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """All of it in one line."""
        done = ", ".join(name if not length else f"{name} {length:.0f} s" for name, length in self.disturbances)
        found = "bit-equal" if not self.findings else "FOUND " + "; ".join(self.findings)
        return f"{self.kind}, {self.seconds:.0f} s: {found} after {done or 'nothing'}"


def reference(inputs: Path, folder: Path) -> dict[str, Any]:
    """How undisturbed federations of three sites end, of every kind."""
    folder.mkdir()
    expected: dict[str, Any] = {}
    for kind in KINDS:
        with _started(inputs, folder / kind, random.Random(0), 0.0, kind) as these:
            assert these.processes.wait("server", 1200) == 0, these.processes.all_logs()
        expected[kind] = _ending(folder / kind)
    return expected


def federation(inputs: Path, folder: Path, expected: dict[str, Any], lane: Lane) -> Episode:
    """A federation of real processes, disturbed until its run is over."""
    episode = Episode(next(lane.kinds), folder.name)
    start = time.monotonic()
    with _started(inputs, folder, lane.rng, lane.longest, episode.kind) as these:
        _disturb(these, lane.deck)
        left = max(60.0, _LONGEST_RUN - (time.monotonic() - start))
        try:
            status = these.processes.wait("server", left)
        except AssertionError:
            status = None
        these.pause(0)
        episode.findings += _judge(these, status, expected[episode.kind])
    episode.disturbances, episode.seconds = these.done, time.monotonic() - start
    return episode


def _disturb(these: Federation, deck: Iterator[Disturbance]) -> None:
    while not these.over():
        these.pause(these.rng.choice(_CALM))
        if these.over():
            return
        name, disturb = next(deck)
        these.done.append((name, disturb(these)))


def _judge(these: Federation, status: int | None, expected: dict[str, Any]) -> list[str]:
    """What is wrong with how a federation ended."""
    if status != 0:
        return [f"the server ended with {status}" if status is not None else "the run did not end"]
    found = _ending(these.processes.folder)
    wrong = [f"{what} differs" for what in expected if found.get(what) != expected[what]]
    for name in these.sites:
        if these.processes.running[name].poll() is not None:
            wrong.append(f"site {name} has ended by itself")
        if not (these.processes.folder / "state" / name / "classifier").is_dir():
            wrong.append(f"site {name} is deaf: it has not heard that the run is over")
    for name in ("server", *these.sites):
        wrong += [f"{raw!r} in the log of {name}" for raw in sorted(set(_RAW.findall(these.processes.log(name))))[:3]]
    return wrong


def _ending(folder: Path) -> dict[str, Any]:
    """What a federation has learned and written down, without times."""
    run = RunDirectory.open(folder / "run")
    prompts = {name: value.numpy().tobytes() for name, value in Checkpoint.read(run.checkpoint).server.items()}
    private = {}
    for site in SITES:
        (path,) = (folder / "state" / site).glob("*/private.safetensors")
        kept = PrivateFile(path)
        last = kept.after(kept.rounds[-1]) or {}
        private[site] = (kept.rounds[-1], {name: value.numpy().tobytes() for name, value in last.items()})
    answered = [(record["round"], record["answered"]) for record in run.metrics("round")]
    return {"the prompts": prompts, "what sites keep": private, "who answered": answered, "final": run.summary["final"]}


@contextmanager
def _started(inputs: Path, folder: Path, rng: random.Random, longest: float, kind: str) -> Iterator[Federation]:
    """A server and its sites, each behind a link of its own."""
    folder.mkdir()
    names = (*SITES, *(("liar",) if "liar" in kind else ()))
    secure = "secure" in kind
    config = make_deployable(inputs, federation={"rounds": SECURE_ROUNDS if secure else ROUNDS}).override(
        [f"partition.n_clients={len(names)}", "evaluation.every=0"]
    )
    (folder / "study.toml").write_text(config.to_toml())
    (folder / "policy.toml").write_text("secure_sums = true\n")
    make_keys(folder / "keys", ["localhost"], names)
    port = free_port()
    with ExitStack() as stack:
        started = stack.enter_context(processes(folder))
        links = {name: stack.enter_context(stalling_proxy(port)) for name in names}
        clocks = {name: clocked(folder, name) for name in ("server", *names)}
        listen = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", port, *_PATIENCE]

        def start_server() -> None:
            begun = (folder / "run/config.toml").is_file()
            how = ["--resume", "run"] if begun else ["study.toml", "--out", "run", *(["--secure"] if secure else [])]
            started.start("server", "server", *how, *listen, environment=clocks["server"])

        def start_site(part: int, name: str) -> None:
            where = ["--server", f"localhost:{links[name].port}", "--state", f"state/{name}"]
            where += ["--policy", "policy.toml"] if secure else []
            code = {"code": LIAR} if name == "liar" else {}
            arguments = ["client", "--part", part, "--keys", f"keys/sites/{name}", *where]
            started.start(name, *arguments, environment=clocks[name], **code)  # type: ignore[arg-type]

        starts = {"server": start_server}
        for part, name in enumerate(names):
            starts[name] = lambda part=part, name=name: start_site(part, name)  # type: ignore[misc]
        for begin in starts.values():
            begin()

        def over() -> bool:
            return (folder / "run/summary.json").is_file() or started.running["server"].poll() is not None

        yield Federation(started, port, starts, links, rng, longest, over, SITES)
