"""Flower as fedotp starts it."""

import os
from pathlib import Path


def quiet_flower(home: Path) -> None:
    """No search for updates, nothing installed at launch, and Flower's own files below `home`."""
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_HOME"] = str(home)
    for name in ("NO_PROXY", "no_proxy"):  # SuperNode and its worker talk to each other on this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
