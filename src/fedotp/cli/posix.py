"""Commands of real sites, which Windows does not run."""

import sys

from fedotp.errors import FedotpError


def need_posix(command: str) -> None:
    """Refuse `command` on Windows: file modes guard keys and private prompts, signals end a site in order."""
    if sys.platform == "win32":
        raise FedotpError(
            f"fedotp {command} needs Linux or macOS: on Windows no file modes guard keys and private prompts; "
            "WSL is Linux, and `fedotp run` simulates a federation here"
        )
