"""What a reader is to the harness."""

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reader:
    """A reader of foreign input.

    Attributes:
        name: for the command line and the table.
        make: fills a folder with valid files.
        read: reads such a folder exactly as a command does.
        files: patterns of the files that are mutated, one in every case.
        seal: makes checksums right again after a mutation, as who forges a file does.
        misplaced: what may lie in the place of a file: see `fuzz.worker`.
        may_refuse: whether `FedotpError` is an answer. It is not where one stranger must not stop the others.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    files: tuple[str, ...] = ("**/*",)
    seal: Callable[[Path], object] | None = None
    misplaced: tuple[str, ...] = ("nothing", "folder", "loop", "nowhere", "pipe", "endless", "outside")
    may_refuse: bool = True

    def mutable(self, folder: Path) -> list[Path]:
        """The files that may be mutated, in a fixed order."""
        found = {path for pattern in self.files for path in folder.glob(pattern) if path.is_file()}
        return sorted(found)


def inputs_of(seed: Path) -> Path:
    """The folder beside a reader's seed that readers share: backbones and images that are not mutated."""
    return seed.parent / "inputs"


def fedotp(*words: object) -> None:
    """Run a command as a user does; where it ends with the status of a refusal, its words are raised."""
    from fedotp.cli import main
    from fedotp.errors import FedotpError

    sys.argv = ["fedotp", *map(str, words)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            main()
    except SystemExit as end:
        if end.code in (2, 75):
            raise FedotpError(said.getvalue().strip()) from end
