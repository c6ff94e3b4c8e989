"""`fedotp report`: write an HTML page about runs."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._text import printable
from fedotp.cli._options import QuietOption, RunArgument, RunsArgument, runs_at
from fedotp.cli.show import print_paths
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.report.page import Analysed
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

_NAME = "report.html"


@app.command()
def report(
    runs: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(help=f"HTML file to write; default: {_NAME} in the run or folder, or here for several runs."),
    ] = None,
    analysis: Annotated[
        bool, typer.Option(help="Show where prompts look and what they learned; needs the run's data and backbone.")
    ] = True,
    against: Annotated[
        str | None, typer.Option(help="Baseline method, as named in the table; default: FedOTP, else the first.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write one self-contained HTML page about one or several runs.

    The page needs no network and can be sent as a single file. Incomplete runs are shown up to their last round; runs
    that differ only in the seed form one row of the comparison.

    \b
    Examples:
      fedotp report runs/office
      fedotp report runs/demo --out demo.html --open
      fedotp report runs/fedotp runs/promptfl --no-analysis
    """
    from fedotp.report.page import is_page, write_page

    found = runs_at(runs)
    path = out or (runs[0] if len(runs) == 1 else Path()) / _NAME
    if out is None and len(runs) > 1 and path.exists():  # it may be about other runs
        raise FedotpError(f"{path} already exists; choose another --out, or overwrite it with --out {path}")
    if path.exists() and not is_page(path):  # checked before the analysis, which takes a while
        raise FedotpError(f"{path} exists and is not a report; choose another --out")
    write_page(found, path, [analysed(run, quiet=quiet) for run in found] if analysis else None, against=against)
    print_paths([("report", path)])
    if open_:
        webbrowser.open(path.resolve().as_uri())


def analysed(run: "RunDirectory", *, quiet: bool) -> "Analysed":
    """Return the analysis of a run, or the reason why there is none."""
    from fedotp.report import analyse

    if not quiet:
        typer.echo(f"analysing {printable(run.path)}", err=True)
    try:
        return analyse(run.path).as_dict()
    except FedotpError as error:
        return str(error)


@app.command()
def dossier(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option(help="Markdown file to write; default: dossier.md in the run.", show_default=False)
    ] = None,
) -> None:
    """Write a data protection dossier of a run of real sites, for an ethics board.

    It answers the questions of a data protection impact assessment (GDPR
    Art. 35) with the run's facts: what left the sites, who could learn what,
    the privacy spent, the tests behind each statement, what is not promised.

    \b
    Examples:
      fedotp dossier runs/skin
      fedotp dossier runs/skin --out skin-dossier.md
    """
    from fedotp._files import write_atomically
    from fedotp.report import make_dossier
    from fedotp.runs.directory import RunDirectory

    path = out or run / "dossier.md"
    if path.exists():  # the user may have completed it
        raise FedotpError(f"{path} already exists; remove it, or choose another --out")
    write_atomically(path, make_dossier(RunDirectory.open(run)))
    print_paths([("dossier", path)])
