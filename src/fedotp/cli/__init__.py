"""The `fedotp` command: parsing and printing; the work is done in the other rooms."""

import atexit
import gc
import os
import sys
import warnings
from typing import Annotated

import typer

from fedotp import __version__
from fedotp._imports import VARIABLE, name_imports
from fedotp._interrupt import end_at_once
from fedotp._memory import shortage
from fedotp._text import printable
from fedotp.cli import (
    audit,
    calibrate,
    client,
    config,
    data,
    demo,
    export,
    figures,
    forget,
    join,
    keys,
    many,
    paper,
    predict,
    probe,
    report,
    run,
    runs,
    serve,
    server,
    tokens,
    value,
    weights,
)
from fedotp.cli._status import INTERRUPTED, TRY_AGAIN
from fedotp.errors import FedotpError, TransientError

__all__ = ["app", "main"]

_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}  # who sets one of these says how threads wait

app = typer.Typer(
    name="fedotp",
    help="Personalised federated prompt learning of CLIP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demo.app)
app.add_typer(run.app)  # `fedotp run`, `evaluate` and `presets`
app.add_typer(config.app)
app.add_typer(many.app)  # `fedotp compare` and `sweep`
app.add_typer(paper.app, name="paper")
app.add_typer(join.app)
app.add_typer(forget.app)
app.add_typer(value.app)
app.add_typer(report.app)
app.add_typer(predict.app)
app.add_typer(export.app)
app.add_typer(audit.app)
app.add_typer(probe.app)
app.add_typer(calibrate.app)
app.add_typer(serve.app)
app.add_typer(figures.app)
app.add_typer(runs.app, name="runs")
data.app.add_typer(tokens.app)  # `fedotp data encode` and `fedotp data cache`
app.add_typer(data.app, name="data")
app.add_typer(weights.app, name="weights")
app.add_typer(server.app)
app.add_typer(client.app)
app.add_typer(keys.app, name="keys")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
    ),
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="FILE.py|MODULE",
            help="Import methods or data sets of your own: before or after the command, any number of times; "
            f"else those of ${VARIABLE} are.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Personalised federated prompt learning of CLIP."""
    if imports:
        name_imports(imports)


def _import_first(words: list[str]) -> list[str]:
    """The words with `--import` in front of the command: whoever is told to give it will add it at the end."""
    end = words.index("--") if "--" in words else len(words)
    first: list[str] = []
    others: list[str] = []
    given = iter(words[:end])
    for word in given:
        if word == "--import":
            value = next(given, None)
            if value is None:
                return [word]  # typer says what it lacks
            first += [word, value]
        else:
            (first if word.startswith("--import=") else others).append(word)
    return [*first, *others, *words[end:]]


def main() -> None:
    """Run the command line; bad input becomes one line on stderr and exit status 2, what may pass by itself 75."""
    if not _WAITING & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "passive"  # threads of torch that wait in a loop take the cores others need
    atexit.register(gc.freeze)  # all goes away with the process: to look for what is not needed takes half a second
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata does no harm, the limits are our own
    try:
        try:
            app(_import_first(sys.argv[1:]))
        except Exception as error:
            if (line := shortage(error)) is None:
                raise
            raise TransientError(line) from None
    except FedotpError as error:
        typer.secho(f"error: {printable(error)}", err=True, fg="red")
        sys.exit(TRY_AGAIN if isinstance(error, TransientError) else 2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what is left to do takes seconds, and one more Ctrl-C ends that, too
            end_at_once(INTERRUPTED)
        raise
