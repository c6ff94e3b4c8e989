"""Stopped at any moment and resumed, a run ends bit for bit as one never stopped."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from toy_run import Killed, assert_same_outcome, make_config, outcome

import fedotp
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation
from fedotp.runs.directory import RunDirectory
from fedotp.runs.watch import Observer
from own_process import python

CASES = {
    "fedotp-sgd": {},
    "fedotp-adamw-kept": {"optimizer": {"name": "adamw", "lr": 0.01, "reset": False}},
    "fedamp-sgd-kept": {"method": {"name": "promptfl-fedamp"}, "optimizer": {"reset": False}},
    "fedotp-groups": {"compute": {"group_size": 2}, "federation": {"dropout": 0.3}},
    "crops": {"data": {"crops": 2}, "optimizer": {"schedule": "cosine", "warmup_rounds": 1}},
    "server-adam": {"server": {"name": "adam", "lr": 0.02}, "federation": {"dropout": 0.3}},
    "server-yogi": {"method": {"name": "promptfl-fedper"}, "server": {"name": "yogi", "lr": 0.02}},
    "fedmgp-kept": {"method": {"name": "fedmgp"}, "optimizer": {"reset": False}, "federation": {"dropout": 0.3}},
    "closed-form": {"method": {"name": "ridge", "personal": 5.0}, "compute": {"group_size": 1}},
    "finetuned": {"method": {"name": "promptfl-ft"}, "optimizer": {"reset": False}},
}
CASES |= {
    f"features-{name}": {"method": {"name": name}, "prompt": {"space": "features"}} for name in ("fedotp", "coop")
}


class Deadly(Observer):
    """Kills the run at the `at`-th thing it hears of."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.heard = 0

    def _hear(self) -> None:
        self.heard += 1
        if self.heard == self.at:
            raise Killed

    def on_images(self, n: int) -> None:
        self._hear()

    def on_round(self, report: RoundReport) -> None:
        self._hear()

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self._hear()


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_at_any_step_round_or_evaluation(case: str, inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, **CASES[case])
    counting = Deadly()
    expected = outcome(fedotp.run(config, tmp_path / "whole", observer=counting))
    assert counting.heard > (5 if case == "closed-form" else 10)
    moments = range(1, counting.heard + 1, {"fedotp-sgd": 2, "closed-form": 1}.get(case, 6))
    for at in moments:
        path = tmp_path / f"killed-{at}"
        with pytest.raises(Killed):
            fedotp.run(config, path, observer=Deadly(at))
        assert not RunDirectory(path).is_complete
        done = fedotp.resume(path)
        assert_same_outcome(outcome(done), expected, f"when killed at {at} of {counting.heard}")


def deadly_calls(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Kill the run just before the `at`-th time it forces a file to disk or puts one in place."""
    made = 0

    def guard(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal made
            made += 1
            if made == at:
                raise Killed
            return plain(*args)

        return call

    for name in ("fsync", "replace", "pwrite"):
        monkeypatch.setattr(os, name, guard(getattr(os, name)))


@pytest.mark.parametrize(("case", "first"), [("fedotp-adamw-kept", 1), ("fedamp-sgd-kept", 2), ("closed-form", 1)])
def test_a_run_killed_before_any_write(case: str, first: int, inputs: Path, tmp_path: Path) -> None:
    """Also between the last checkpoint and the summary; temporary files are left behind and do no harm."""
    config = make_config(inputs, federation={"rounds": 2}, **CASES[case])
    expected = outcome(fedotp.run(config, tmp_path / "whole"))
    n_resumed = left_behind = 0
    for at in count(first, 2):  # every second one: the two cases make the same writes
        path = tmp_path / f"killed-{at}"
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            deadly_calls(patch, at)
            fedotp.run(config, path)
            break  # it makes fewer writes
        left_behind += len(list(path.rglob(".*")))
        if not (path / "config.toml").exists():  # it was not yet a run
            with pytest.raises(fedotp.FedotpError, match="is not a run"):
                fedotp.resume(path)
            continue
        n_resumed += 1
        assert_same_outcome(outcome(fedotp.resume(path)), expected, f"when killed before write {at}")
    assert at > 20
    assert n_resumed > at / 2 - 5
    assert left_behind > 2


class Interrupting(Observer):
    """Presses Ctrl-C in a round, or sends what a scheduler sends."""

    def __init__(self, round_: int, number: int) -> None:
        self.round, self.number = round_, number
        self.interrupts = self.ended = 0

    def on_round(self, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), self.number)

    def on_interrupt(self) -> None:
        self.interrupts += 1

    def on_end(self, path: Path) -> None:
        self.ended += 1


@pytest.mark.parametrize(("round_", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM), (3, signal.SIGINT)])
def test_an_interrupted_run_ends_its_round_and_is_resumed(
    inputs: Path, tmp_path: Path, expected: dict[str, Any], round_: int, number: int
) -> None:
    before = signal.getsignal(number)
    observer = Interrupting(round_, number)
    stopped = fedotp.run(make_config(inputs), tmp_path / "stopped", observer=observer)
    assert (observer.interrupts, observer.ended) == (1, 1)
    assert signal.getsignal(number) is before
    assert stopped.is_complete == (round_ == 3)
    assert [record["round"] for record in stopped.metrics("round")] == list(range(1, round_ + 1))
    assert_same_outcome(outcome(fedotp.resume(stopped.path)), expected)


def test_a_second_interrupt_ends_the_run_at_once(inputs: Path, tmp_path: Path, expected: dict[str, Any]) -> None:
    class Impatient(Interrupting):
        def on_interrupt(self) -> None:
            os.kill(os.getpid(), self.number)

    with pytest.raises(KeyboardInterrupt):
        fedotp.run(make_config(inputs), tmp_path / "run", observer=Impatient(1, signal.SIGINT))
    assert_same_outcome(outcome(fedotp.resume(tmp_path / "run")), expected)


_KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
import fedotp
from toy_run import make_config, outcome, assert_same_outcome
inputs, folder = map(Path, sys.argv[1:])
config = make_config(inputs, federation={"rounds": 12}, optimizer={"reset": False})
expected = outcome(fedotp.run(config, folder / "first"))
start = time.perf_counter()
fedotp.run(config, folder / "second")
whole = time.perf_counter() - start
random.seed(0)
path = folder / "killed"
n_killed = 0
def size():
    return (path / "metrics.jsonl").stat().st_size if (path / "metrics.jsonl").exists() else 0
for attempt in range(6):
    child = os.fork()
    if child == 0:
        fedotp.resume(path) if (path / "config.toml").exists() else fedotp.run(config, path)
        os._exit(0)
    seen = size()
    while size() == seen and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.002)  # until it has written something
    time.sleep(random.uniform(0, 0.08) * whole)  # about a round; three, where others leave the processor meanwhile
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    n_killed += os.WIFSIGNALED(status)
done = fedotp.resume(path)
assert done.is_complete
assert_same_outcome(outcome(done), expected)
print(n_killed)
"""


@pytest.mark.processes
def test_a_process_killed_by_sigkill_at_random_moments(inputs: Path, tmp_path: Path) -> None:
    fedotp.run(make_config(inputs), tmp_path / "warm")  # the tokens are there
    assert int(python("-c", _KILLED, inputs, tmp_path).stdout) >= 3


def test_lines_written_after_the_last_checkpoint_are_forgotten(
    inputs: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    stopped = fedotp.run(make_config(inputs), tmp_path / "stopped", observer=Interrupting(2, signal.SIGINT))
    with open(stopped.path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"kind": "round", "round": 3}) + "\n" + '{"kind": "eval')
    assert [record["round"] for record in stopped.metrics("round")] == [1, 2, 3]  # the broken line is not read
    (stopped.path / "state" / ".checkpoint.safetensors.123.tmp").write_bytes(b"half a checkpoint")
    (stopped.path / ".123.predictions.npz").write_bytes(b"half of it")
    assert_same_outcome(outcome(fedotp.resume(stopped.path)), expected)


@pytest.mark.parametrize("unit", ["example", "site", "group"])
def test_a_resumed_run_has_spent_what_one_never_stopped_has(unit: str, inputs: Path, tmp_path: Path) -> None:
    """A round that is made again releases the same bits again, and is counted once."""
    config = make_config(inputs).override([f"privacy.unit={unit}", "privacy.noise=2"])
    if unit == "group":
        config = config.override(["data.groups=([a-z]+/[0-9]+)[.]png", "partition.n_clients=3"])
    counting = Deadly()
    whole = fedotp.run(config, tmp_path / "whole", observer=counting)
    expected = outcome(whole)
    spent = [record["epsilon"] for record in whole.metrics("round")]
    assert whole.summary["privacy"]["epsilon"] == spent[-1] > spent[0] > 0
    for at in (counting.heard // 3, 2 * counting.heard // 3):
        path = tmp_path / f"killed-{at}"
        with pytest.raises(Killed):
            fedotp.run(config, path, observer=Deadly(at))
        resumed = fedotp.resume(path)
        assert_same_outcome(outcome(resumed), expected)
        assert [record["epsilon"] for record in resumed.metrics("round")] == spent
        assert resumed.summary["privacy"] == whole.summary["privacy"]
