"""Flower is an extra: without it these tests have nothing to test."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.server.superlink.linkstate import in_memory_linkstate
from flwr.supercore.corestate import in_memory_corestate
from near_sites import NearGrid, make_deployable, parts

from fedotp.flower.link import _transport
from fedotp.flower.server import _registration, _secure_rounds
from fedotp.runs.directory import RunDirectory
from runs.toy_run import make_inputs


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in this process looks for answers at once: sites in this process have given them."""
    for module in (_transport, _registration):
        monkeypatch.setattr(module, "_PAUSE", 0.01)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not pause before a secure sum that was void is made again, and give up soon."""
    monkeypatch.setattr(_secure_rounds, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(_secure_rounds, "_MOST_VOID", 2)


@pytest.fixture
def flowers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put Flower's clock back at the end."""
    for module in (in_memory_linkstate, in_memory_corestate):
        monkeypatch.setattr(module, "now", module.now)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def grid(tmp_path: Path) -> NearGrid:
    """Three sites."""
    return NearGrid(parts(tmp_path, 3))


@pytest.fixture(scope="session")
def undisturbed(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Two rounds of three honest sites."""
    folder = tmp_path_factory.mktemp("undisturbed")
    grid = NearGrid(parts(folder, 3))
    return grid.serve(make_deployable(inputs), folder / "run")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    """What fedotp logs, each line once."""
    logger = logging.getLogger("fedotp")
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    yield caplog
    logger.removeHandler(caplog.handler)
