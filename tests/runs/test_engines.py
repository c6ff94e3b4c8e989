"""Where many runs go: GPUs of processes, and a cluster that loses nodes, played by a script."""

import os
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import make_config

import fedotp
from fedotp import _system
from fedotp._imports import name_imports
from fedotp.errors import FedotpError
from fedotp.runs.many import Local, ManyObserver, RayCluster, Trial, Update, _workers, by_method, run_many
from fedotp.runs.many._node import Ended, Place, run_there
from fedotp.runs.many._workers import _gpus_to_share, _served

ROOT = Path(__file__).parents[2]
VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("count", "visible", "device", "gpus"),
    [
        (3, None, "auto", ["0", "1", "2"]),
        (2, "5, 7", "cuda", ["5", "7"]),
        (2, "GPU-1a,GPU-2b,GPU-wrong", "auto", ["GPU-1a", "GPU-2b"]),  # CUDA stops at the first it does not know
        (3, None, "cuda:1", [None]),
        (3, None, "cpu", [None]),
        (1, "3", "auto", [None]),
        (0, None, "auto", [None]),
    ],
)
def test_processes_share_gpus(
    count: int, visible: str | None, device: str, gpus: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv(VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    (trial,) = by_method(make_config(Path(), compute={"device": device}), ["coop"], [0])
    assert _gpus_to_share([[(trial, Path())]]) == gpus


@pytest.mark.parametrize(
    ("error", "usable"),
    [("", True), ("not enough memory (CUDA out of memory. Tried to)", True), ("CUDA error: device-side assert", False)],
)
def test_a_process_that_lost_cuda_takes_no_more_runs(error: str, usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = by_method(make_config(Path()), ["coop", "fedotp"], [0])
    monkeypatch.setattr(_workers, "run_group", lambda group, *_: zip(trials, [error, ""], strict=True))
    ours, theirs = Pipe()
    ours.send([])
    assert _served(theirs) is usable
    assert [ours.recv().error for _ in trials] == [error, ""]


def test_each_process_sees_a_gpu_of_its_own(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are made up: what a process sees is written down by a file of the user's that it imports."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(VISIBLE, "98,99")
    (tmp_path / "seen").mkdir()
    code = f"import os\nopen({str(tmp_path / 'seen')!r} + '/' + os.environ[{VISIBLE!r}], 'w').close()\n"
    (tmp_path / "look.py").write_text(code)
    monkeypatch.setenv("FEDOTP_IMPORT", "")  # as before, afterwards
    name_imports([str(tmp_path / "look.py")])
    trials = by_method(make_config(inputs, compute={"device": "auto"}), ["zeroshot"], [0, 1])
    outcomes = run_many(trials, tmp_path / "runs", engine=Local(2))
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert sorted(os.listdir(tmp_path / "seen")) == ["98", "98,99", "99"]  # this process sees both


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jobs": 0}, "jobs = 0: must be 1 or more"),
        ({"cpus": 0}, "cpus = 0: must be 1 or more"),
        ({"gpus": 1.5}, "gpus = 1.5: must be a whole number, or a share such as 0.5"),
        ({"gpus": -1.0}, "gpus = -1.0: must be"),
    ],
)
def test_what_no_cluster_has(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedotpError, match=re.escape(message)):
        RayCluster(**settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"version": "0.0.1"}, rf"^node \S+ has fedotp {re.escape(fedotp.__version__)}, not 0.0.1: install the same$"),
        ({"folder": "/no/such"}, r"^node \S+ has no /no/such: give the command in a folder that all see$"),
        ({"mark": "/runs/.mark"}, r"^node \S+ does not see the runs in /runs: choose a shared --out$"),
    ],
)
def test_a_node_that_is_not_like_here(
    wrong: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back, afterwards
    place = replace(Place(fedotp.__version__, str(tmp_path), "", 1, 1.0), **wrong)  # type: ignore[arg-type]
    ended = run_there(place, [("one", {}, "one"), ("two", {}, "two")], False, lambda message: None)
    assert [end.name for end in ended] == ["one", "two"]
    assert all(re.search(message, end.error) for end in ended)


def test_a_process_on_a_node_takes_what_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VISIBLE, "3")  # as Ray chose
    monkeypatch.setattr("fedotp._system._sharing", 1)
    (tmp_path / "there").mkdir()
    before = torch.get_num_threads()
    for gpus, sharing, visible in [(2.0, 1, "3"), (1.0, 1, "3"), (0.25, 4, "3"), (0.0, 4, "")]:
        try:
            Place(fedotp.__version__, str(tmp_path / "there"), "", 2, gpus).enter()
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)
        assert Path.cwd() == tmp_path / "there"
        assert (_system._sharing, os.environ[VISIBLE]) == (sharing, visible)


def test_without_ray_or_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    trials = by_method(make_config(tmp_path), ["coop"], [0])
    for address, message in {
        "127.0.0.1:1": r"^no Ray cluster: start one with `ray start --head`.*no answer at 127.0.0.1:1\)$",
        "": r"^no Ray cluster: start one with `ray start --head`.*\(there is none yet\)$",
        "ray://there:10001": r"^RAY_ADDRESS = ray://there:10001: must be HOST:PORT",
    }.items():
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(FedotpError, match=message):
            run_many(trials, tmp_path / "runs", engine=RayCluster())
    monkeypatch.setattr("fedotp.runs.many._cluster.find_spec", lambda name: None)
    with pytest.raises(FedotpError, match=r"pip install 'fedotp\[ray\]'$"):
        run_many(trials, tmp_path / "runs", engine=RayCluster())
    assert not (tmp_path / "runs").exists()


def test_ray_is_asked_in_one_place_only() -> None:
    asking = [
        path for path in (ROOT / "src").rglob("*.py") if re.search(r"^\s*(import|from) ray\b", path.read_text(), re.M)
    ]
    assert [str(path.relative_to(ROOT / "src")) for path in asking] == ["fedotp/runs/many/_ray.py"]


class Script:
    """A cluster and its mailbox that say what is written: what comes of each task, in the order in which they begin.

    A message is heard; an exception, or a list of ends, ends the task.
    """

    def __init__(self, *tasks: list[object]) -> None:
        self.tasks = [iter(task) for task in tasks]
        self.given: list[tuple[list[str], bool]] = []  # the runs of each task, and whether they go on again
        self.going: dict[int, Iterator[object]] = {}
        self.results: dict[int, object] = {}
        self.cancelled: list[tuple[int, bool]] = []
        self.send = None

    def start(self, need: object, function: object, place: object, work: Any, again: bool, send: object) -> int:
        number = len(self.given)
        self.given.append(([name for name, _, _ in work], again))
        self.going[number] = self.tasks[number]
        return number

    def cancel(self, tasks: Sequence[int], *, force: bool) -> None:
        self.cancelled += [(task, force) for task in tasks]

    def result(self, task: int) -> object:
        if isinstance(result := self.results[task], Exception):
            raise result
        return result

    def wait(self, tasks: Sequence[int]) -> tuple[list[object], list[int]]:
        if not tasks:
            return [], []
        said = next(self.going[tasks[0]])
        if callable(said):
            said()
        elif isinstance(said, Update | Ended):
            return [said], []
        else:
            self.results[tasks[0]] = said
            return [], [tasks[0]]
        return [], []


class Heard(ManyObserver):
    def __init__(self) -> None:
        self.lost: list[str] = []
        self.rounds: list[tuple[str, int]] = []

    def on_update(self, update: Update) -> None:
        self.rounds.append((update.name, update.round))

    def on_lost(self, name: str, why: str) -> None:
        self.lost.append(name)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Go through a queue of groups of runs as a script says; what ended how, and what was heard."""
    pytest.importorskip("ray")
    from fedotp.runs.many import _cluster

    monkeypatch.setattr(_cluster, "_PAUSE", 0.0)
    monkeypatch.setattr(_cluster, "_wait_until_seen", lambda path: None)

    def go(script: Script, *groups: Sequence[str], most: int = 1) -> tuple[dict[str, str], Heard]:
        (trial,) = by_method(make_config(Path()), ["coop"], [0])
        work = [[(Trial(name, {}, trial.config), Path(name)) for name in group] for group in groups]
        heard = Heard()
        queue = _cluster.Queue(script, script, (1, 0.0), None, most, heard)  # type: ignore[arg-type]
        return {trial.name: error for trial, error in queue.go(work)}, heard

    return go


def lost() -> Exception:
    from fedotp.runs.many._ray import Lost

    return Lost("the node is gone")


def test_a_lost_group_goes_on_elsewhere_with_what_is_left_of_it(play: Any) -> None:
    one_is_done = [Update("a", 0, 9), Update("b", 0, 9), Ended("a", "", True), lost()]
    late = Update("a", 9, 9)  # on its way for long
    script = Script(one_is_done, [Update("b", 3, 9), late, [Ended("b", "", True)]], [[Ended("c", "bad", False)]])
    ended, heard = play(script, "ab", "c")
    assert ended == {"a": "", "b": "", "c": "bad"}
    assert script.given == [(["a", "b"], False), (["b"], True), (["c"], False)]
    assert heard.lost == ["b"]
    assert ("a", 9) not in heard.rounds


def test_a_group_that_gets_nowhere_is_given_up_and_one_that_gets_on_is_not(play: Any) -> None:
    nowhere = Script(*[[Update("a", 4, 9), lost()]] * 3)
    ended, heard = play(nowhere, "a")
    assert ended == {"a": "lost 3 times without a round between: the node is gone"}
    assert heard.lost == ["a", "a"]
    slow = Script(*[[Update("a", n, 9), Update("a", n + 1, 9), lost()] for n in range(6)], [[Ended("a", "", True)]])
    ended, heard = play(slow, "a")
    assert ended == {"a": ""}
    assert heard.lost == ["a"] * 6


def test_what_fails_on_every_node_is_not_tried_again(play: Any) -> None:
    from fedotp.runs.many._ray import Failed

    ended, heard = play(Script([Failed("no such module")], [[Ended("b", "", True)]]), "a", "b")
    assert ended == {"a": "no such module", "b": ""}
    assert not heard.lost


def test_ctrl_c_reaches_those_that_go_and_begins_no_others(play: Any) -> None:
    from fedotp.runs.many._ray import Cancelled

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    begun = [Update("a", 1, 9), interrupt, Update("a", 2, 9), [Ended("a", "", False)]]
    script = Script(begun, [Cancelled()])
    ended, _ = play(script, "a", "b", "c", most=2)
    assert ended == {"a": ""}  # b waited for a place, c was never given
    assert script.cancelled == [(0, False), (1, False)]
    script = Script([Update("a", 1, 9), interrupt, interrupt])
    with pytest.raises(KeyboardInterrupt):
        play(script, "a", "b")
    assert script.cancelled[-1] == (0, True)
