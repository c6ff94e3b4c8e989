"""One set of inputs and one run of FedOTP for all tests of reports."""

from pathlib import Path

import pytest
from report_made import make_inputs, make_run

from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def done(squares: Path) -> RunDirectory:
    return make_run(squares, squares / "run")
