"""What is needed before Flower is loaded: defaults that the command line shows, and how Flower is to behave."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from fedotp.errors import FedotpError

Share = Literal["nothing", "loss", "scores", "predictions"]

PORT = 8000
SERVER_DAYS = 825  # that its certificate is valid
SHARE: Share = "scores"
PRIVACY_DELTA = 1e-5
LEAST_NOISE = 0.5  # multiplier
SECURE_SITES = 3  # of a sum of two, each knows the other's part


def need_flower() -> None:
    """Refuse to go on without Flower."""
    if find_spec("flwr") is None:
        raise FedotpError("a federation of real sites needs Flower: pip install 'fedotp[flower]'")


def quiet_flower(home: Path) -> None:
    """No search for updates, nothing installed at launch, and Flower's own files below `home`."""
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_HOME"] = str(home)
    for name in ("NO_PROXY", "no_proxy"):  # SuperNode and its worker talk to each other on this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
