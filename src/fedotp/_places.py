"""Where fedotp keeps what it can make or fetch again."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """`$FEDOTP_CACHE`, else `fedotp` in the user's cache: on Linux `$XDG_CACHE_HOME` or `~/.cache`."""
    if "FEDOTP_CACHE" in os.environ:
        return Path(os.environ["FEDOTP_CACHE"])
    return platformdirs.user_cache_path("fedotp", appauthor=False)
