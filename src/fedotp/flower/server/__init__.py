"""The server of a federation of real sites: registration, requests, validation of answers, and rounds."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face
from fedotp.flower.server._server_settings import ServerSettings as ServerSettings

if TYPE_CHECKING:
    from fedotp.flower.server._check import check_server as check_server
    from fedotp.flower.server._rehearse import rehearse_run as rehearse_run
    from fedotp.flower.server._serve import run_server as run_server
    from fedotp.flower.server._verify import verify_run as verify_run

__getattr__, __dir__ = lazy_face(__name__)
