"""What is needed before Flower is loaded: defaults that the command line shows, and Flower's environment."""

import os
from importlib.util import find_spec
from pathlib import Path

from fedotp.errors import FedotpError

PORT = 8000
SERVER_DAYS = 825  # for which the server's certificate is valid
LEAST_SITES = 3  # of a secure sum: in a sum of two, each site knows the other's summand


def need_flower() -> None:
    """Raise FedotpError if Flower is not installed."""
    if find_spec("flwr") is None:
        raise FedotpError("a federation of real sites needs Flower: pip install 'fedotp[flower]'")


def quiet_flower(home: Path) -> None:
    """Turn off Flower's search for updates and its installations at launch; its own files go below `home`."""
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_HOME"] = str(home)
    for name in ("NO_PROXY", "no_proxy"):  # SuperNode and its worker connect to each other on this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
