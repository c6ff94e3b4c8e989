"""The server of a federation of real sites: who takes part, what they are asked, what becomes of their answers."""

from fedotp.flower._log import start_logging
from fedotp.flower.server._app import app
from fedotp.flower.server._run_server import run_server
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.flower.server._settings import ServerSettings

__all__ = [
    "ServerSettings",
    "app",
    "resume_serving",
    "run_server",
    "serve",
    "start_logging",
]
