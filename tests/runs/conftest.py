"""One set of inputs for all tests of runs."""

from pathlib import Path

import pytest
from toy_run import make_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))
