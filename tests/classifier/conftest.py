"""One set of runs for all tests of classifiers."""

import pytest
from classifier_made import Made

import fedotp
from fedotp.classifier import Classifier


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="session")
def classifier(made: Made) -> Classifier:
    return fedotp.load(made.run("fedotp").path, "client-1")
