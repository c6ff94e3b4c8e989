"""`fedotp config`."""

from pathlib import Path
from typing import Annotated

import typer

from fedotp._text import printable
from fedotp.cli import _complete
from fedotp.cli._options import SOURCE, SetOption

app = typer.Typer()


@app.command()
def config(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|FILE|RUN",
            help=f"A preset, a file that ends in .toml, or the directory of a run; {SOURCE} if not given.",
            show_default=False,
            autocompletion=_complete.sources_or_runs,
        ),
    ] = None,
    changes: SetOption = None,
) -> None:
    """Print the complete configuration of a run to be, with what each key means.

    It is a file to begin from: whatever is not changed may be left out.

    \b
    Examples:
      fedotp config demo
      fedotp config demo --set method.name=promptfl > mine.toml
      fedotp config runs/office
    """
    from fedotp.config import explained, load_config
    from fedotp.runs.directory import RunDirectory

    where = source or SOURCE
    found = RunDirectory.open(where).config if Path(where).is_dir() else load_config(where)
    for line in explained(found.override(changes or [])).splitlines():
        print(printable(line))
