"""The `fedotp` command line: parses arguments, calls the other packages and prints results."""

import atexit
import errno
import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from fedotp import __version__
from fedotp._imports import VARIABLE, name_imports
from fedotp._system import end_at_once, shortage
from fedotp._text import one_line, printable
from fedotp.cli import (
    advise,
    audit,
    bundles,
    client,
    data,
    demo,
    figures,
    join,
    keys,
    leaving,
    many,
    paper,
    predict,
    records,
    report,
    run,
    runs,
    serve,
    server,
    tokens,
    weights,
)
from fedotp.cli.show import INTERRUPTED, TRY_AGAIN
from fedotp.errors import FedotpError, TransientError

_PANELS = {
    "Start": ("demo", "advise", "run", "presets", "config"),
    "Compare": ("compare", "sweep", "paper", "runs", "report", "figures", "evaluate"),
    "Use": ("predict", "serve", "export", "calibrate", "join"),
    "Data": ("data", "weights"),
    "Federate": ("keys", "server", "client"),
    "Trust": ("audit", "forget", "dossier", "log", "verify"),
}
"""All commands, in the order of `fedotp --help`."""
_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}  # variables that control how OpenMP threads wait


class _Commands(TyperGroup):
    """All commands, in panels; adds `--import` to each, and makes help independent of typer's version."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        order = [name for names in _PANELS.values() for name in names]
        self.commands = {**{name: self.commands[name] for name in order}, **self.commands}
        for panel, names in _PANELS.items():
            for name in names:
                self.commands[name].rich_help_panel = panel  # type: ignore[attr-defined]
        imports = next(option for option in self.params if option.name == "imports")
        imports.callback = _name_imports  # set here: typer below 0.19 fails if such an option is not given
        for command in _walk(self):
            if command is not self:
                command.params.append(copy(imports))
                command.params[-1].expose_value = False  # its callback does the work
            paragraphs = (command.help or "").split("\n\n")
            command.help = "\n\n".join(
                text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs
            )
            hints = get_type_hints(command.callback, include_extras=True) if command.callback else {}
            for argument in command.params:
                if argument.param_type_name == "argument":  # click 8.5 overwrites the help that typer < 0.21 has set
                    argument.help = hints[argument.name].__metadata__[0].help


def _walk(command: Any) -> Iterator[Any]:
    """Yield a click command and all its subcommands."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _walk(below)


def _name_imports(context: Any, _option: object, names: Sequence[str] | None) -> Sequence[str] | None:
    """Collect the imports given before and after the command."""
    if names:
        context.meta[VARIABLE] = [*context.meta.get(VARIABLE, ()), *names]
        name_imports(context.meta[VARIABLE])
    return names


app = typer.Typer(
    name="fedotp",
    cls=_Commands,
    help="Personalised federated prompt learning of CLIP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (demo, advise, run, many, report, figures, predict, serve, bundles, join, server, client, audit, leaving):
    app.add_typer(module.app)  # its commands
app.add_typer(records.app)
data.app.add_typer(tokens.app)  # `fedotp data encode` and `fedotp data cache`
for group in (paper, runs, data, weights, keys):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
app.add_typer(records.log_app, name="log")


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
            metavar="MODULE",
            help="Import a module or *.py file that defines methods, data sets or partition schemes; repeatable. "
            f"Default: ${VARIABLE}.",
            is_eager=True,
        ),
    ] = None,
) -> None:
    """Personalised federated prompt learning of CLIP."""


def main() -> None:
    """Run the command line; bad input becomes one line on stderr and exit status 2, a temporary failure 75."""
    if not _WAITING & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "passive"  # spinning threads of torch take cores that others need
    atexit.register(gc.freeze)  # the final collection takes half a second and frees nothing useful
    warnings.filterwarnings("ignore", module=r"PIL\.")  # malformed metadata is harmless: fedotp checks sizes
    try:
        try:
            app()
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
                raise FedotpError(f"{error.strerror}: {one_line(error.filename, 60)}; choose a shorter one") from None
            if (line := shortage(error)) is None:
                raise
            raise TransientError(line) from None
    except FedotpError as error:
        typer.secho(f"error: {printable(error)}", err=True, fg="red")
        sys.exit(TRY_AGAIN if isinstance(error, TransientError) else 2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # an orderly exit takes seconds, in which another Ctrl-C would print a traceback
            end_at_once(INTERRUPTED)
        raise
