"""Flower is an extra: without it these tests have nothing to test."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from runs.toy_run import make_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What fedotp logs."""
    logger = logging.getLogger("fedotp")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    yield caplog
    logger.removeHandler(caplog.handler)
