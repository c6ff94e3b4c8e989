"""A page that is being served, from a small run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serve_made import Served, make_run, served

from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make_run(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def page(run: RunDirectory) -> Iterator[Served]:
    with served(run.path) as page:
        yield page


@pytest.fixture
def image(run: RunDirectory) -> Path:
    return Path(run.config.data.dataset) / "day" / "red" / "0.png"
