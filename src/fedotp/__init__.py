"""Personalised federated prompt learning of CLIP by unbalanced optimal transport (FedOTP)."""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fedotp.classifier import Classifier, load
    from fedotp.config import Config, load_config
    from fedotp.errors import FedotpError
    from fedotp.runs import RunDirectory, evaluate_run, resume, run

_WHERE = {
    "Classifier": "classifier",
    "Config": "config",
    "FedotpError": "errors",
    "RunDirectory": "runs",
    "evaluate_run": "runs",
    "load": "classifier",
    "load_config": "config",
    "resume": "runs",
    "run": "runs",
}

_ROOMS = (
    "classifier",
    "clip",
    "config",
    "data",
    "federation",
    "limits",
    "matching",
    "methods",
    "ot",
    "prompts",
    "report",
    "runs",
)

__all__ = [
    "Classifier",
    "Config",
    "FedotpError",
    "RunDirectory",
    "evaluate_run",
    "load",
    "load_config",
    "resume",
    "run",
]


def __getattr__(name: str) -> object:
    """Import what is asked for: `import fedotp` alone does not wait for torch."""
    if name in _WHERE:
        return getattr(importlib.import_module(f"fedotp.{_WHERE[name]}"), name)
    if name in _ROOMS:
        return importlib.import_module(".".join((__name__, name)))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What `dir(fedotp)` and completion show: the names for users, and where more is found."""
    return sorted([*__all__, *_ROOMS, "__version__"])
