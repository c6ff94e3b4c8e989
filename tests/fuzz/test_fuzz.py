"""A short pass over every reader, and the harness itself: one that cannot fail proves nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import planted
from fuzz.campaign import Tally, Worker, run
from fuzz.readers import all_readers
from fuzz.worker import make_case

CASES = 1  # of each reader; `make fuzz` runs thousands


@pytest.fixture(scope="module")
def suspicious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker with readers that have defects, and little patience."""
    folder = tmp_path_factory.mktemp("planted")
    with Worker(folder / "seeds", folder / "worker", readers="fuzz.planted") as worker:
        worker.cpu = 1
        yield worker


def test_every_reader_reads_or_refuses_damaged_and_forged_input(tmp_path: Path) -> None:
    readers = all_readers()
    tallies: dict[str, Tally] = {}
    with Worker(tmp_path / "seeds", tmp_path / "worker") as worker:
        tallies.update(run(readers, worker, cases=CASES * len(readers)))
    assert {name: tally.cases for name, tally in tallies.items()} == dict.fromkeys(tallies, CASES)
    findings = [
        f"python -m fuzz --reader {name} --case {case}: {why}"
        for name, tally in tallies.items()
        for case, why in tally.findings
    ]
    assert not findings, "\n".join(findings)


@pytest.mark.processes
@pytest.mark.parametrize("name", planted.DEFECTS)
def test_the_harness_finds_a_reader_that(name: str, suspicious: Worker) -> None:
    suspicious.wall = 2 if name == "waits" else 600
    suspicious.cpu = 30 if name == "eats-memory" else 1  # filling it takes time, too
    outcome, why = suspicious.ask(name, 0)
    assert outcome == "finding"
    assert planted.DEFECTS[name][1] in why


@pytest.mark.processes
def test_the_harness_knows_refusals_and_what_must_not_be_refused(suspicious: Worker) -> None:
    for name in planted.SOUND:
        assert suspicious.ask(name, 0)[0] in ("read", "refused")
    assert suspicious.ask("refuses-valid-input", 0)[0] == "finding"
    assert suspicious.ask("must-not-refuse", 0)[0] == "finding"


def test_a_case_is_the_same_for_the_same_number_and_another_for_another(tmp_path: Path) -> None:
    reader = next(reader for reader in all_readers() if reader.name == "pets-lists")
    reader.make(tmp_path / "valid")
    made = []
    for number in (0, 0, 1):
        make_case(reader, tmp_path / "valid", tmp_path / "case", str(number))
        made.append({path: path.read_bytes() for path in reader.mutable(tmp_path / "case")})
    assert made[0] == made[1] != made[2]
