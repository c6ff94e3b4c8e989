"""Flower is an extra: without it these tests have nothing to test."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from runs.toy_run import make_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))
