"""Flower is an extra."""

from importlib.util import find_spec

from fedotp.errors import FedotpError


def need_flower() -> None:
    """Refuse to go on without Flower."""
    if find_spec("flwr") is None:
        raise FedotpError("a federation of real sites needs Flower: pip install 'fedotp[flower]'")
