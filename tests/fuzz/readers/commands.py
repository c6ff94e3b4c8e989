"""The command line, within this process."""

import contextlib
import io
import sys

from fedotp.cli import main
from fedotp.errors import FedotpError

_REFUSED = (2, 75)


def fedotp(*words: object) -> None:
    """Run a command as a user does; where it ends with the status of a refusal, its words are raised."""
    sys.argv = ["fedotp", *map(str, words)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            main()
    except SystemExit as end:
        if end.code in _REFUSED:
            raise FedotpError(said.getvalue().strip()) from end
