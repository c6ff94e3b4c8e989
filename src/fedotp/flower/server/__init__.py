"""The server of a federation of real sites: who takes part, what they are asked, what becomes of their answers.

Everything but the settings needs Flower and is imported on first use: the command line shows the settings' defaults.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face
from fedotp.flower.server._server_settings import ServerSettings as ServerSettings

if TYPE_CHECKING:
    from fedotp.flower._log import start_logging as start_logging
    from fedotp.flower.server._serve import app as app
    from fedotp.flower.server._serve import resume_serving as resume_serving
    from fedotp.flower.server._serve import run_server as run_server
    from fedotp.flower.server._serve import serve as serve

__getattr__, __dir__ = lazy_face(__name__)
