"""`fedotp server`: the server of a federation of real sites."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp.cli import _options
from fedotp.cli.show import INTERRUPTED, command, print_findings, print_paths, print_run
from fedotp.errors import FedotpError
from fedotp.flower import PORT
from fedotp.flower.server import ServerSettings

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

KEPT = ("allow_new_counts", "secure", "secure_threshold", "secure_range")  # the run stores them, or their effects

_waiting = partial(typer.Option, rich_help_panel="Waiting for sites")
_limit = partial(typer.Option, rich_help_panel="Limits of a site's influence")
_secure = partial(typer.Option, rich_help_panel="Secure sums")
HostOption = Annotated[
    str | None,
    _options.connection_option(help="Address to listen on.", show_default="0.0.0.0; 127.0.0.1 with --insecure"),
]
PortOption = Annotated[int, _options.connection_option(min=1, max=65535, help="Port to listen on.")]
MinSitesOption = Annotated[
    int, _waiting(min=0, metavar="N", help="Start when N sites are ready; 0: all sites with keys.")
]
StartTimeoutOption = Annotated[float, _waiting(metavar="SECONDS", help="Timeout for these sites to be ready; 0: none.")]
RoundTimeoutOption = Annotated[
    float, _waiting(metavar="SECONDS", help="Ignore answers of a round that arrive later than this.")
]
PatienceOption = Annotated[
    float, _waiting(metavar="SECONDS", help="Time to wait for a disconnected site to reconnect.")
]
MaxTimesOption = Annotated[
    float, _limit(metavar="X", help="Limit the image count and the update of each site to X times the median.")
]
MaxImagesOption = Annotated[
    int,
    _limit(
        metavar="N",
        help="Limit the image count of each site to N; 0: only by --max-times and the total of all other sites.",
    ),
]
NewCountsOption = Annotated[
    bool, _limit("--allow-new-counts", help="Accept a larger image count from a site that reconnects.")
]
SecureOption = Annotated[
    bool, _secure("--secure", help="Sum updates securely: the server sees the sum, but no single update.")
]
ThresholdOption = Annotated[
    float,
    _secure(
        metavar="X",
        help="Open a secure sum if more than this share of a round's sites remain; the others can drop out.",
        show_default=f"{ServerSettings.secure_threshold:.3g}",
    ),
]
SecurityLogOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The security log.", show_default="beside the run: RUN.security.jsonl"),
]
REHEARSE_SITES = 4
RehearseOption = Annotated[
    bool,
    typer.Option("--rehearse", help="Run two rounds with made-up sites and images on this machine, then delete them."),
]
RehearseSitesOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Number of made-up sites: at most N, and at most as many as have keys.")
]
RangeOption = Annotated[int, _secure(metavar="X", help="Largest value of a prompt in a secure sum.")]


@app.command()
def server(
    source: _options.SourceArgument = None,
    changes: _options.SetOption = None,
    classes: _options.ClassesOption = None,
    out: _options.OutOption = None,
    resume: _options.ResumeOption = None,
    keys: _options.KeysOption = None,
    host: HostOption = None,
    port: PortOption = PORT,
    insecure: _options.InsecureOption = False,
    min_sites: MinSitesOption = ServerSettings.min_sites,
    start_timeout: StartTimeoutOption = ServerSettings.start_timeout,
    round_timeout: RoundTimeoutOption = ServerSettings.round_timeout,
    patience: PatienceOption = ServerSettings.patience,
    max_times: MaxTimesOption = ServerSettings.max_times,
    max_images: MaxImagesOption = ServerSettings.max_images,
    allow_new_counts: NewCountsOption = ServerSettings.allow_new_counts,
    secure: SecureOption = ServerSettings.secure,
    secure_threshold: ThresholdOption = ServerSettings.secure_threshold,
    secure_range: RangeOption = ServerSettings.secure_range,
    security_log: SecurityLogOption = None,
    log_format: _options.LogFormatOption = _options.LOG_FORMAT,
    status: _options.StatusOption = None,
    status_token: _options.StatusTokenOption = None,
    check: _options.CheckOption = False,
    rehearse: RehearseOption = False,
    rehearse_sites: RehearseSitesOption = REHEARSE_SITES,
) -> None:
    """Run a federation with real sites, and write the same directory as `fedotp run`.

    Sites connect with `fedotp client`. The connection is encrypted, and only
    sites whose keys are in --keys are accepted. After an interruption or a
    failure, --resume continues after the last round.

    \b
    Examples:
      fedotp server demo --keys keys/server --classes "cat,dog"
      fedotp server study.toml --keys keys/server --out runs/study --secure
      fedotp server --resume runs/study --keys keys/server
      fedotp server study.toml --keys keys/server --rehearse
    """
    given = locals()
    settings = ServerSettings(**{item.name: given[item.name] for item in fields(ServerSettings)})
    _options.require_keys("server", keys, insecure, " (create it with `fedotp keys make`)")
    if resume is not None and (source is not None or out is not None or changes or classes):
        raise FedotpError("--resume uses the run's own configuration: remove PRESET|FILE, --set, --classes and --out")
    if rehearse and resume is not None:
        raise FedotpError("--rehearse is for a new run: remove --resume")
    from fedotp.flower.server import check_server, rehearse_run, run_server

    listen_at = host or ("127.0.0.1" if insecure else "0.0.0.0")
    job: dict[str, Any] = {"source": source or _options.SOURCE, "changes": changes or [], "classes": _classes(classes)}
    if check:
        print_findings(check_server(settings, listen_at, port, keys, **job, out=out, resume=resume))
    if rehearse:
        _rehearse(partial(rehearse_run, settings, keys, rehearse_sites, _given(settings, ("min_sites",)), **job))
    if check or rehearse:
        return
    job |= {"log_to": security_log, "log_format": log_format, "status": _options.status_of(status, status_token)}
    directory = run_server(settings, listen_at, port, keys, **job, out=out, resume=resume)
    kept: dict[str, object] = {"--keys": keys, "--host": host, "--port": None if port == PORT else port}
    kept |= {"--status": status, "--status-token": status_token, "--security-log": security_log}
    kept |= {"--log-format": log_format if log_format != _options.LOG_FORMAT else None}
    more = [word for option, value in kept.items() if value is not None for word in (option, str(value))]
    _print_end(directory, [*(["--insecure"] if insecure else []), *more, *_given(settings)])


def _given(settings: ServerSettings, without: tuple[str, ...] = KEPT) -> list[str]:
    """Return the changed options, except those in `without`: by default, those that the run stores."""
    values = {item.name: getattr(settings, item.name) for item in fields(settings) if item.name not in without}
    changed = {name: value for name, value in values.items() if value != getattr(ServerSettings, name)}
    words = [
        (f"--{name.replace('_', '-')}", "" if value is True else f"{value:.15g}") for name, value in changed.items()
    ]
    return [word for pair in words for word in pair if word]


def _rehearse(rehearsal: "Callable[[Callable[[str, str, str], object]], str]") -> None:
    """Print the steps of a rehearsal as they end, and its result."""
    try:
        summary = rehearsal(lambda *cells: print("{:<20}  {:>9}  {}".format(*cells).rstrip(), flush=True))
    except KeyboardInterrupt:
        typer.echo("stopped; all processes have ended", err=True)
        raise typer.Exit(INTERRUPTED) from None
    print(f"rehearsed: {summary}")


def _print_end(directory: "RunDirectory", options: list[str]) -> None:
    if not directory.is_complete:
        begun = (directory.path / "config.toml").is_file()
        resume = f"continue with: {command('server', '--resume', directory.path, *options)}"
        typer.echo(f"stopped; {resume}" if begun else "stopped before the first round: no run was created", err=True)
        raise typer.Exit(INTERRUPTED)
    print_run(directory)
    print()
    print_paths([("run", str(directory.path)), ("next", command("report", directory.path))])


def _classes(given: str | None) -> tuple[str, ...]:
    """Parse class names, which must be distinct; none if not given."""
    if given is None:
        return ()
    names = tuple(_options.class_names(given))
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated or len(names) < 2:
        raise FedotpError(
            f"--classes: {repeated[0]!r} is given twice" if repeated else "--classes: must be at least two classes"
        )
    return names
