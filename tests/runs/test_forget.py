"""Forgetting a client: the run that never had it, to the bit, and nothing of it left."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from toy_run import Stops, assert_same_outcome, make_config, outcome

import fedotp
from fedotp._files import write_atomically
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint
from fedotp.report.page._page import make_page
from fedotp.runs.directory import RunDirectory
from fedotp.runs.directory._checksum import with_checksum
from fedotp.runs.leaving import check_certificate, forget
from fedotp.runs.leaving._forget import digests_of, read_certificate, traces, write_certificate

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


def test_what_was_interrupted_goes_on(whole: RunDirectory, left: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        forget(whole.path, AWAY, tmp_path / "out", observer=Stops())
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


@pytest.mark.parametrize(
    ("method", "federation"),
    [
        ({"name": "ridge", "personal": 5.0}, {"holdout_clients": 2}),
        ({"name": "personal-ridge"}, {"holdout_clients": 0}),
    ],
)
def test_of_a_closed_form_the_rounds_of_sums_are_made_again(
    method: dict[str, Any], federation: dict[str, Any], inputs: Path, tmp_path: Path
) -> None:
    """One client after the other; held-out clients are drawn again, and what they fit joins what is left."""
    config = make_config(inputs, method=method, federation=federation, evaluation=VIEWS)
    whole = fedotp.run(config, tmp_path / "whole")
    first, _ = forget(whole.path, AWAY[:1], tmp_path / "first")
    second, certificate = forget(first.path, AWAY[1:], tmp_path / "second")
    never = fedotp.run(config.override([f'federation.without=["{AWAY[0]}","{AWAY[1]}"]']), tmp_path / "never")
    assert check_certificate(second.path, never.path) == (certificate, [])
    assert not traces(second, AWAY)
