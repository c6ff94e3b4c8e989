"""One set of inputs and one complete run for all tests of runs."""

from pathlib import Path
from typing import Any

import pytest
from toy_run import make_config, make_inputs, outcome

import fedotp
from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def complete(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of the configuration without changes; tests only read it."""
    return fedotp.run(make_config(inputs), tmp_path_factory.mktemp("complete") / "run")


@pytest.fixture(scope="session")
def expected(complete: RunDirectory) -> dict[str, Any]:
    """The outcome of that run: every other run of its configuration must have the same."""
    return outcome(complete)
