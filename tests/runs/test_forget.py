"""Forgetting a client: the run that never had it, to the bit, and nothing of it left."""

import json
import shutil
import tempfile
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_run import assert_same_outcome, make_config, outcome

import fedotp
from fedotp._files import write_atomically
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint
from fedotp.report.page._page import make_page
from fedotp.runs.directory import RunDirectory
from fedotp.runs.directory._checksum import with_checksum
from fedotp.runs.leaving import check_certificate, forget
from fedotp.runs.leaving._forget import digests_of, read_certificate, traces, write_certificate
from fedotp.runs.watch._observer import Observer

AWAY = ("client-1", "client-3")
VIEWS = {"views": ["personal", "global", "base"], "views_every": 1, "clients": 0}


@pytest.fixture(scope="module")
def whole(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run in which everybody takes part, in random rounds, with noise."""
    privacy = {"unit": "example", "noise": 0.5}
    config = make_config(inputs, federation={"holdout_clients": 0}, evaluation=VIEWS, privacy=privacy)
    return fedotp.run(config, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def left(whole: RunDirectory) -> RunDirectory:
    return forget(whole.path, AWAY)[0]


def test_it_is_the_run_that_never_had_them(whole: RunDirectory, left: RunDirectory, tmp_path: Path) -> None:
    """Made from the configuration alone; compared by what the tests read, and by the digests."""
    config = whole.config.override([f'federation.without=["{AWAY[0]}","{AWAY[1]}"]'])
    never = fedotp.run(config, tmp_path / "never")
    assert_same_outcome(outcome(left), outcome(never))
    assert digests_of(left) == digests_of(never)
    certificate, wrong = check_certificate(left.path, never.path)
    assert not wrong
    assert certificate["after"]["digests"] == digests_of(never)
    assert certificate["before"]["digests"] == digests_of(whole)
    old, new = digests_of(whole), digests_of(left)
    assert {part for part in old if old[part] == new[part]} == {"backbone", "data", "partition"}


def test_nothing_of_them_is_left(whole: RunDirectory, left: RunDirectory) -> None:
    """Their prompts, searched for as bytes in every file, their lines and their names; in the old run all is found."""
    numbers = [whole.manifest["clients"].index(name) for name in AWAY]
    clients, rows = Checkpoint.read(whole.checkpoint).rows(whole.kept)
    secrets = [
        value[list(clients).index(number)].numpy().tobytes()
        for number in numbers
        if number in clients
        for value in rows.values()
    ]
    assert secrets

    def holding(run: RunDirectory, what: list[bytes]) -> set[str]:
        files = {path.name: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        return {name for name, content in files.items() if any(each in content for each in what)}

    names = [name.encode() for name in AWAY]
    assert holding(whole, secrets) == {"private.bin"}
    assert not holding(left, secrets)
    assert holding(left, names) == {"config.toml", "manifest.json", "partition.json", "forgotten.json"}
    assert {"summary.json"} < holding(whole, names)
    found = traces(whole, AWAY)
    assert {where.partition(",")[0].partition(":")[0] for where in found} == {
        *("config.toml", "metrics.jsonl", "predictions.npz", "state", "summary.json")
    }
    assert not traces(left, AWAY)
    assert not {*left.predictions().client} & {*numbers}
    assert f"{AWAY[0]}, {AWAY[1]} are excluded from this run." in make_page([left])
    with pytest.raises(FedotpError, match=f"has no client '{AWAY[0]}'"):
        fedotp.load(left.path, client=AWAY[0])
    assert {client["name"] for client in left.summary["clients"]}.isdisjoint(AWAY)


def test_a_certificate_says_what_was_done_and_does_not_hold_of_another_run(
    whole: RunDirectory, left: RunDirectory, tmp_path: Path
) -> None:
    certificate, wrong = check_certificate(left.path / "forgotten.json")
    assert not wrong
    assert certificate["forgotten"] == [*AWAY]
    answered = [record["answered"] for record in whole.metrics("round")]
    for name in AWAY:
        number = whole.manifest["clients"].index(name)
        assert certificate["rounds_taken_part_in"][name] == [i for i, who in enumerate(answered, 1) if number in who]
    assert (certificate["replayed"]["from_round"], certificate["replayed"]["rounds"]) == (0, 3)
    assert certificate["made_with_before"] == {}

    copied = shutil.copytree(whole.path, tmp_path / "copied")
    shutil.copy(left.path / "forgotten.json", copied)
    _, wrong = check_certificate(copied)
    assert any("mismatch with the certificate: state" in line for line in wrong)
    assert any("state: a private prompt" in line for line in wrong)
    _, wrong = check_certificate(left.path, whole.path)
    assert f"{whole.path}: mismatch with the certificate: state" in wrong

    content = json.loads((copied / "forgotten.json").read_text())
    (copied / "forgotten.json").write_text(json.dumps({**content, "forgotten": ["client-0"]}))
    with pytest.raises(FedotpError, match="corrupt or was edited"):
        check_certificate(copied)
    with pytest.raises(FedotpError, match="not a certificate"):
        check_certificate(whole.path / "summary.json")


def test_a_certificate_of_nothing_is_refused(whole: RunDirectory, left: RunDirectory, tmp_path: Path) -> None:
    """Sealed as fedotp seals it, and beside the run it describes: the seal says nothing of what was forgotten."""
    honest = read_certificate(left.path)
    copied = shutil.copytree(left.path, tmp_path / "left")
    for forgotten in ([], "client-1", [3]):
        write_atomically(copied / "forgotten.json", with_checksum({**honest, "forgotten": forgotten}))
        with pytest.raises(FedotpError, match="is invalid: its list of forgotten clients must contain names"):
            check_certificate(copied)
    same = {**honest, "before": {**honest["before"], "digests": honest["after"]["digests"]}}
    write_atomically(copied / "forgotten.json", with_checksum(same))
    assert any("nothing was removed" in line for line in check_certificate(copied)[1])
    with pytest.raises(FedotpError, match=r"has the same prompts as .* nothing to certify"):
        write_certificate(left, left, AWAY)  # as of clients that have no images


class Impatient(Observer):
    """Ends the run after its first round, as a power cut would."""

    def on_round(self, report: object) -> None:
        raise KeyboardInterrupt


def test_what_was_interrupted_goes_on(whole: RunDirectory, left: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        forget(whole.path, AWAY, tmp_path / "out", observer=Impatient())
    assert not (tmp_path / "out/forgotten.json").exists()
    again, certificate = forget(whole.path, AWAY, tmp_path / "out")
    assert certificate is not None
    assert digests_of(again) == digests_of(left)
    with pytest.raises(FedotpError, match=r"is another run: federation\.without differs"):
        forget(whole.path, AWAY[:1], tmp_path / "out")


def test_what_cannot_be_replayed_is_refused(whole: RunDirectory, left: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match="--client stranger: is not in this run; its clients are client-0, "):
        forget(whole.path, ["stranger"])
    with pytest.raises(FedotpError, match=r"--client client3: is not in this run; did you mean client-3\?$"):
        forget(whole.path, ["client3"])
    with pytest.raises(FedotpError, match="is already excluded from this run; its clients are client-0, client-2"):
        forget(left.path, AWAY[:1])
    with pytest.raises(FedotpError, match="these are all 5 clients"):
        forget(whole.path, whole.manifest["clients"])
    with pytest.raises(FedotpError, match="already exists"):
        forget(whole.path, AWAY, whole.path.parent)
    incomplete = shutil.copytree(whole.path, tmp_path / "incomplete")
    (incomplete / "summary.json").unlink()
    with pytest.raises(FedotpError, match="is not complete; resume it with `fedotp run --resume"):
        forget(incomplete, AWAY)


def test_other_data_than_the_run_had_are_refused(
    inputs: Path, whole: RunDirectory, left: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same elsewhere are not; and a later version makes it again, which the certificate says."""
    data = shutil.copytree(inputs / "data", tmp_path / "data")
    moved = RunDirectory(shutil.copytree(whole.path, tmp_path / "moved"))
    text = (moved.path / "config.toml").read_text()
    (moved.path / "config.toml").write_text(text.replace(str(inputs / "data"), str(data)))
    monkeypatch.setattr(fedotp, "__version__", "9.9")
    certificate = forget(moved.path, AWAY, tmp_path / "same")[1]
    assert certificate is not None
    assert certificate["made_with_before"] == {"fedotp": whole.manifest["fedotp"]}
    assert certificate["after"]["digests"] == digests_of(left)
    some, other = sorted(data.rglob("*.png"))[:2]
    some.write_bytes(other.read_bytes())
    with pytest.raises(FedotpError, match="data changed since the run started"):
        forget(moved.path, AWAY, tmp_path / "changed")
    assert not (tmp_path / "changed").exists()


# Methods in closed form ------------------------------------------------------------------------------------------

CLIENTS = [f"client-{i}" for i in range(5)]


def in_closed_form(inputs: Path, out: Path, *changes: str, **sections: Any) -> RunDirectory:
    federation = {"holdout_clients": 0, **sections.pop("federation", {})}
    method = {"name": "ridge", "personal": 5.0, **sections.pop("method", {})}
    config = make_config(inputs, method=method, federation=federation, evaluation=VIEWS, **sections)
    return fedotp.run(config.override([*changes]), out)


@pytest.fixture(scope="module")
def sums(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return in_closed_form(inputs, tmp_path_factory.mktemp("sums") / "run")


def assert_close(run: RunDirectory, never: RunDirectory) -> None:
    """What server and clients have, what they predict, and the summary's scores, whatever the certificate says."""
    one, other = (Checkpoint.read(each.checkpoint) for each in (run, never))
    assert one.server.keys() == other.server.keys()
    (who, rows), (others, other_rows) = one.rows(run.kept), other.rows(never.kept)
    np.testing.assert_array_equal(who, others)
    for mine, theirs in ((one.server, other.server), (rows, other_rows)):
        for name, value in mine.items():
            np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), atol=1e-10, rtol=0)
    for name, column in vars(run.predictions()).items():
        np.testing.assert_allclose(column, getattr(never.predictions(), name), atol=1e-6, rtol=0)
    assert run.summary["final"] == pytest.approx(never.summary["final"], abs=1e-6)
    assert run.summary["rounds"] == never.summary["rounds"] == 1


@settings(max_examples=6)
@given(st.sampled_from([*chain(combinations(CLIENTS, 1), combinations(CLIENTS, 2))]))
def test_sums_are_corrected_by_a_subtraction(sums: RunDirectory, away: tuple[str, ...]) -> None:
    """Equal to a run without them; only their images are read."""
    with tempfile.TemporaryDirectory() as folder:
        run, certificate = forget(sums.path, away, Path(folder) / "left")
        names = ",".join(f'"{name}"' for name in away)
        never = fedotp.run(sums.config.override([f"federation.without=[{names}]"]), Path(folder) / "never")
        assert certificate is not None
        assert certificate["by"] == "subtraction"
        assert check_certificate(run.path, never.path) == (certificate, [])
        assert_close(run, never)
        (line,) = run.metrics("round")
        numbers = [CLIENTS.index(name) for name in away]
        assert line["answered"] == [i for i in range(5) if i not in numbers]
        assert line["images"] == sum(len(sums.partition.clients[i].train) for i in numbers)
        assert check_certificate(run.path, sums.path)[1] == [
            f"{sums.path}: its state differs by more than 1e-10",
            f"{sums.path}: mismatch with the certificate: configuration",
        ]


def test_clients_that_never_trained_join_what_is_left(inputs: Path, tmp_path: Path) -> None:
    """Those drawn without client-1 and client-3, of which one trained before."""
    whole = in_closed_form(inputs, tmp_path / "whole", federation={"holdout_clients": 2})
    run, certificate = forget(whole.path, AWAY)
    never = fedotp.run(whole.config.override([f'federation.without=["{AWAY[0]}","{AWAY[1]}"]']), tmp_path / "never")
    assert certificate is not None
    assert certificate["by"] == "subtraction"
    joined = [[each["name"] for each in of.summary["joined"]["clients"]] for of in (whole, run, never)]
    assert joined[0] != joined[1] == joined[2]
    assert_close(run, never)


def test_clients_leave_one_after_the_other(sums: RunDirectory, tmp_path: Path) -> None:
    first, _ = forget(sums.path, AWAY[:1], tmp_path / "first")
    second, _ = forget(first.path, AWAY[1:], tmp_path / "second")
    both, _ = forget(sums.path, AWAY, tmp_path / "both")
    assert_close(second, both)
    assert not traces(second, AWAY)


class BeforeTheEnd(Observer):
    """Ends the run in its last evaluation: the subtraction is on disk."""

    def on_evaluation(self, round_: int, evaluation: object) -> None:
        raise KeyboardInterrupt


def test_a_subtraction_that_was_interrupted_goes_on(sums: RunDirectory, tmp_path: Path) -> None:
    whole, _ = forget(sums.path, AWAY, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        forget(sums.path, AWAY, tmp_path / "out", observer=BeforeTheEnd())
    again, certificate = forget(sums.path, AWAY, tmp_path / "out")
    assert certificate is not None
    assert certificate["by"] == "subtraction"
    assert digests_of(again) == digests_of(whole)


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"privacy": {"unit": "example", "noise": 0.5}}, 'privacy.unit = "example" adds noise'),
        ({"server": {"rule": "median"}}, 'server.rule = "median" is not the average'),
        ({"server": {"name": "momentum"}}, 'server.name = "momentum" is not the average'),
        ({"method": {"name": "fedcof"}}, "the server of FedCOF does not average updates"),
        ({"federation": {"holdout_clients": 1}}, "different clients participate, or too few images remain"),
        ({"federation": {"min_clients": 4}}, "different clients participate, or too few images remain"),
    ],
)
def test_where_a_subtraction_would_be_wrong_the_round_is_made_again(
    sections: dict[str, Any], why: str, inputs: Path, tmp_path: Path
) -> None:
    """And is the run that never had them, to the bit."""
    whole = in_closed_form(inputs, tmp_path / "whole", **sections)
    run, certificate = forget(whole.path, AWAY)
    assert certificate is not None
    assert (certificate["by"], certificate["no_subtraction"]) == ("replay", why)
    never = fedotp.run(whole.config.override([f'federation.without=["{AWAY[0]}","{AWAY[1]}"]']), tmp_path / "never")
    assert digests_of(run) == digests_of(never)
