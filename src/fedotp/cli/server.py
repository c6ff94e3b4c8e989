"""`fedotp server`: the server of a federation of real sites."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._files import cache_folder
from fedotp.cli._options import SOURCE, InsecureOption, KeysOption, ResumeOption, SetOption, SourceArgument
from fedotp.cli._status import INTERRUPTED
from fedotp.cli.posix import need_posix
from fedotp.cli.show import command, print_paths, print_run
from fedotp.errors import FedotpError
from fedotp.flower import PORT
from fedotp.flower.server import ServerSettings

if TYPE_CHECKING:
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

KEPT = ("allow_new_counts", "secure", "secure_threshold", "secure_range")  # or what they did: a run has it for good


@app.command()
def server(
    source: SourceArgument = None,
    keys: KeysOption = None,
    changes: SetOption = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES|FILE",
            help="Names of the classes, with commas, or a file with one per line.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The new directory of the run; named after the run, in runs/, if not given.")
    ] = None,
    resume: ResumeOption = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen at.", show_default="all of the machine's; this machine's, if --insecure"),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = PORT,
    min_sites: Annotated[
        int, typer.Option(min=0, metavar="N", help="Begin when N sites are ready; 0: when all are that have keys.")
    ] = ServerSettings.min_sites,
    start_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up if they are not ready by then; 0: wait for ever.")
    ] = ServerSettings.start_timeout,
    round_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="What a site answers later does not count.")
    ] = ServerSettings.round_timeout,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long for a site that has just gone away.")
    ] = ServerSettings.patience,
    max_update: Annotated[
        float, typer.Option(metavar="X", help="Refuse an update that moves the prompt by more than X times its length.")
    ] = ServerSettings.max_update,
    max_times: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="No site counts with more images, or moves the prompt further, than X times the median of all.",
        ),
    ] = ServerSettings.max_times,
    max_images: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="No site counts with more than N images; 0: as --max-times says, nor more than all others together.",
        ),
    ] = ServerSettings.max_images,
    allow_new_counts: Annotated[
        bool,
        typer.Option("--allow-new-counts", help="A site that comes back with more images counts with all of them."),
    ] = ServerSettings.allow_new_counts,
    secure: Annotated[
        bool | None,
        typer.Option("--secure", help="Add updates up securely: the server sees their sum and no site's own."),
    ] = None,
    secure_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="More than this share of a round's sites open a secure sum; the others may drop out.",
            show_default=f"{ServerSettings.secure_threshold:.3g}",
        ),
    ] = None,
    secure_range: Annotated[
        int | None,
        typer.Option(
            metavar="X",
            help="The largest value of a prompt in a secure sum.",
            show_default=str(ServerSettings.secure_range),
        ),
    ] = None,
    insecure: InsecureOption = False,
) -> None:
    """Run a federation with real sites, and write the same directory as `fedotp run`.

    Sites connect with `fedotp client`. The connection is encrypted, and only
    sites whose keys are in --keys are let in. The run can be stopped, or the
    machine can fail: --resume goes on from the last round.

    \b
    Examples:
      fedotp server demo --keys keys/server --classes "cat,dog"
      fedotp server study.toml --keys keys/server --out runs/study --secure
      fedotp server --resume runs/study --keys keys/server
    """
    need_posix("server")
    from fedotp.flower import need_flower, quiet_flower

    need_flower()
    quiet_flower(cache_folder() / "flower")
    from fedotp.flower.server import run_server, start_logging

    start_logging()
    if (keys is None) != insecure:
        raise FedotpError(
            "give --keys DIR (`fedotp keys make` makes them)"
            + (", or --insecure, and not both" if insecure else "; --insecure goes without, on one machine only")
        )
    settings = ServerSettings.asked_for(
        min_sites=min_sites,
        start_timeout=start_timeout,
        round_timeout=round_timeout,
        patience=patience,
        max_update=max_update,
        max_times=max_times,
        max_images=max_images,
        allow_new_counts=allow_new_counts,
        secure=secure,
        secure_threshold=secure_threshold,
        secure_range=secure_range,
    )
    if resume is not None and (source is not None or out is not None or changes or classes):
        raise FedotpError(
            "--resume goes on with its own configuration: leave out PRESET|FILE, --set, --classes and --out"
        )
    listen_at = host or ("127.0.0.1" if insecure else "0.0.0.0")
    directory = run_server(
        settings,
        listen_at,
        port,
        keys,
        source=source or SOURCE,
        changes=changes or [],
        classes=_classes(classes) if classes else (),
        out=out,
        resume=resume,
    )
    where = [*(["--host", host] if host else []), *(["--port", str(port)] if port != PORT else [])]
    access = ["--insecure"] if keys is None else ["--keys", str(keys)]
    _tell(directory, [*access, *where, *_given(settings)])


def _given(settings: "ServerSettings") -> list[str]:
    """The options that were set and that the run does not keep by itself."""
    options = [item for item in fields(settings) if item.compare and item.name not in KEPT]
    values = {item.name.replace("_", "-"): getattr(settings, item.name) for item in options}
    changed = [name for item, name in zip(options, values, strict=True) if values[name] != item.default]
    return [word for name in changed for word in (f"--{name}", f"{values[name]:.15g}")]


def _tell(directory: "RunDirectory", options: list[str]) -> None:
    if not directory.is_complete:
        begun = (directory.path / "config.toml").is_file()
        go_on = f"go on with: {command('server', '--resume', directory.path, *options)}"
        typer.echo(f"stopped; {go_on}" if begun else "stopped before the first round: no run was made", err=True)
        raise typer.Exit(INTERRUPTED)
    print_run(directory)
    print()
    print_paths([("run", str(directory.path)), ("next", command("report", directory.path))])


def _classes(text: str) -> tuple[str, ...]:
    """Names from a list with commas, or from a file with one per line."""
    path = Path(text).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise FedotpError(f"--classes {path}: cannot be read ({error})") from error
    names = tuple(name.strip() for name in lines if name.strip())
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated or len(names) < 2:
        raise FedotpError(
            f"--classes: {repeated[0]!r} is there twice" if repeated else "--classes: name at least two classes"
        )
    return names
