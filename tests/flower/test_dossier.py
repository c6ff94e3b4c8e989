"""The data protection dossier of a run of real sites."""

import re
from pathlib import Path

import pytest
from near_sites import NearGrid, cut_in, make_deployable, parts, with_keys

import fedotp
from fedotp.errors import FedotpError
from fedotp.flower.server import ServerSettings
from fedotp.report import make_dossier
from fedotp.runs.directory import RunDirectory

TESTS = Path(__file__).parents[1]
TEMPLATE = (Path(fedotp.__file__).parent / "report/dossier.md").read_text()


def test_every_test_that_it_names_exists() -> None:
    references = re.findall(r"`([a-z_]+/test_\w+\.py)(?:::(\w+))?`", TEMPLATE)
    assert len(references) > 20
    for file, name in references:
        assert f"def {name}(" in (TESTS / file).read_text() if name else (TESTS / file).is_file(), (file, name)


def test_a_plain_run_promises_nothing_that_it_does_not_keep(undisturbed: RunDirectory) -> None:
    accuracy = 100 * undisturbed.summary["final"]["accuracy"]
    kept = [
        "which sees each site's update",
        "of every average, the sites' updates",
        "no mathematical bound",
        f"mean accuracy over sites {accuracy:.2f} %",
        "TLS with the federation's own authority",
        "the update of a single site, with at least three sites",
    ]
    require(make_dossier(undisturbed), kept, without=["masked", "epsilon"])


def test_a_trial_without_keys_that_has_not_ended_promises_less(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, server={"rule": "krum", "malicious": 0})
    grid = NearGrid(parts(tmp_path, 3), meddle={100: cut_in(2)})
    with pytest.raises(KeyboardInterrupt):
        grid.serve(config, tmp_path / "run", known=False)
    kept = [
        "no TLS: a trial",
        "can pass it on",
        "not signed, without keys",
        "the run has not ended",
        "refused: unknown",
    ]
    require(
        make_dossier(RunDirectory.open(tmp_path / "run")), kept, without=["authority", "at least three", "no scores"]
    )


def test_sums_and_privacy_are_those_of_the_records(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, privacy={"unit": "example", "noise": 1.0, "epsilon": 8.0, "delta": 1e-3})
    grid, keys = with_keys(tmp_path, 3)
    grid.meddle[100] = cut_in(2)
    with pytest.raises(KeyboardInterrupt):
        grid.serve(config, tmp_path / "run", ServerSettings(secure=True), public_keys=keys)
    grid.meddle.clear()
    run = grid.resume(tmp_path / "run", public_keys=keys)
    manifest = run.manifest
    manifest["data"]["classes"] = ["a|b"]
    run.save_manifest(manifest)
    epsilon = run.summary["privacy"]["epsilon"]
    assert run.summary["secure"]["sums"] == 2
    kept = [
        f"epsilon {epsilon:.3g} at delta 0.001",
        "which sees only the sum",
        "budget: epsilon 8; the run ends",
        r"classes: a\|b |",
        "of every average, opened sums",
    ]
    require(make_dossier(run), kept, without=["no mathematical bound", "sees each site's update"])


def require(text: str, kept: list[str], *, without: list[str]) -> None:
    for part in kept:
        assert part in text
    for part in ["[if", "$", *without]:
        assert part not in text


def test_a_simulation_has_no_dossier(inputs: Path, tmp_path: Path) -> None:
    run = fedotp.run(make_deployable(inputs), tmp_path / "run")
    with pytest.raises(FedotpError, match="was simulated"):
        make_dossier(RunDirectory.open(run.path))
