"""`fedotp log check` and `fedotp verify`: find later changes of security logs and runs of real sites."""

from pathlib import Path
from typing import Annotated

import typer

from fedotp._text import printable
from fedotp.cli import _complete
from fedotp.cli.show import SOME_FAILED

app = typer.Typer()
log_app = typer.Typer(help="Security logs of servers and sites.", no_args_is_help=True)


@log_app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="The files of one log; also those that were moved away.")
    ],
) -> None:
    """Check that no line of a security log was changed, removed, inserted or moved.

    Example: fedotp log check runs/skin.security.jsonl
    """
    from fedotp.flower.records import check_logs

    found = check_logs(files)
    _print(found.notes, found.wrong)
    events = ", ".join(f"{n} {event}" for event, n in sorted(found.events.items()))
    when = f", {min(found.times)} to {max(found.times)}: {events}" if found.times else ""
    print(printable(f"valid: {found.n_lines} lines{when}"))


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="Directory of a run of real sites.", autocompletion=_complete.runs)],
    logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[LOG]...", help="Transcripts of its sites: RUN.jsonl in transcripts/ of --state."),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of keys; its authority must have signed the sites' keys.")
    ] = None,
) -> None:
    """Verify a run of real sites: its transcript, files and signatures.

    All aggregations are repeated from their recorded inputs, and must give
    the same parameters, bit for bit. With transcripts of sites: what each
    sent and received is what the server has recorded.

    \b
    Examples:
      fedotp verify runs/skin
      fedotp verify runs/skin --keys keys/server
      fedotp verify runs/skin north/transcripts/*.jsonl
    """
    from fedotp.flower.server import verify_run

    found = verify_run(run, logs or [], keys)
    whose = "as the server recorded them; check them with --keys" if keys is None else f"certified in {keys}"
    _print([*found.notes, f"the sites' keys are {whose}"], found.wrong)
    print(
        f"valid: {found.repeated} of {found.rounds} rounds repeated, {found.statements} statements of "
        f"{len(found.sites)} sites, {found.files} files, {len(logs or [])} transcripts of sites"
    )


def _print(notes: list[str], wrong: list[str]) -> None:
    """Print findings; exit if something is wrong."""
    for note in notes:
        print(printable(f"note: {note}"))
    for line in wrong:
        typer.secho(f"wrong: {printable(line)}", err=True, fg="red")
    if wrong:
        raise typer.Exit(SOME_FAILED)
