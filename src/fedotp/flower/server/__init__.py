"""The server of a federation of real sites: who takes part, what they are asked, what becomes of their answers.

What needs Flower, which is all but the settings, is imported when first used: the command line shows their defaults.
"""

import importlib
from typing import TYPE_CHECKING

from fedotp.flower.server._server_settings import ServerSettings

if TYPE_CHECKING:
    from fedotp.flower._log import start_logging
    from fedotp.flower.server._run_server import app, run_server
    from fedotp.flower.server._serve import resume_serving, serve

_NEED_FLOWER = {
    "app": "server._run_server",
    "resume_serving": "server._serve",
    "run_server": "server._run_server",
    "serve": "server._serve",
    "start_logging": "_log",
}

__all__ = [
    "ServerSettings",
    "app",
    "resume_serving",
    "run_server",
    "serve",
    "start_logging",
]


def __getattr__(name: str) -> object:
    if name in _NEED_FLOWER:
        return getattr(importlib.import_module(f"fedotp.flower.{_NEED_FLOWER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
