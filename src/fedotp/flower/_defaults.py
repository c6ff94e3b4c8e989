"""Defaults that the command line shows, and Flower's environment variables, available before Flower is imported."""

import os
from importlib.util import find_spec
from pathlib import Path

from fedotp.errors import FedotpError

PORT = 8000
SERVER_DAYS = 825  # validity of the server's certificate
SITE_DAYS = 365  # and of a site's
LEAST_SITES = 3  # in a secure sum: in a sum of two, each site can compute the other's update


def need_flower() -> None:
    """Raise FedotpError if Flower is not installed."""
    if find_spec("flwr") is None:
        raise FedotpError("federations of real sites require Flower: pip install 'fedotp[flower]'")


def quiet_flower(home: Path) -> None:
    """Disable Flower's update check and installation of dependencies; its own files go to `home`."""
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_HOME"] = str(home)
    for name in ("NO_PROXY", "no_proxy"):  # SuperNode and its worker connect to each other on this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
