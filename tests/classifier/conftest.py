"""One set of runs for all tests of classifiers."""

import pytest
from classifier_made import Made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))
