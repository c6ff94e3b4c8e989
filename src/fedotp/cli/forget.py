"""`fedotp forget`: a federation as it would have been without a site, with a certificate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp.cli import _complete
from fedotp.cli._options import QuietOption
from fedotp.cli._status import INTERRUPTED
from fedotp.cli.show import command, facts, print_paths
from fedotp.errors import FedotpError, listed

if TYPE_CHECKING:
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

_DIFFER = 1  # exit status: a certificate does not hold


@app.command()
def forget(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="Directory of a run.", show_default=False, autocompletion=_complete.runs),
    ] = None,
    sites: Annotated[
        list[str] | None,
        typer.Option("--site", metavar="NAME", help="Who is to be forgotten; any number of times.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the new run; beside the old one if not given.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="CERTIFICATE", help="Check a certificate and the run it lies in instead.", show_default=False
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="With --check: a run that was made without the site by others; it must be the same to the bit.",
            show_default=False,
            autocompletion=_complete.runs,
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Forget a site: the federation as it would have been without it, with a certificate.

    All rounds are made again without the site, from the same seed, so that the
    result is, bit for bit, that of a run with federation.without = ["NAME"]: what
    the others learn privately is learned again, too. The run itself is left as
    it is: delete it, and what was made of it, when you have the new one. Stopped
    half-way, the same command goes on. A run of real sites is prepared here and
    replayed with them by `fedotp server --resume`.

    \b
    Examples:
      fedotp forget runs/demo --site client-3
      fedotp forget runs/demo --site client-1 --site client-3 --out runs/left
      fedotp forget --check runs/left/forgotten.json
      fedotp forget --check runs/left/forgotten.json --against runs/never
    """
    if check is not None:
        if run is not None or sites or out is not None:
            raise FedotpError("--check looks at one certificate: leave out RUN, --site and --out")
        _check(check, against)
        return
    if run is None or not sites or against is not None:
        raise FedotpError("say what to forget, for example `fedotp forget runs/demo --site client-3`; see --help")
    from fedotp.cli.progress import run_progress, say
    from fedotp.runs.leaving import forget as forget_sites

    with run_progress(quiet=quiet) as observer:
        left, certificate = forget_sites(run, sites, out, observer=observer)
    if certificate is None:
        _tell_how_to_go_on(left, run, sites, out)
        return
    _print(certificate)
    print_paths([("run", left.path), ("certificate", left.path / "forgotten.json")])
    say(f"{run} still has all of {listed(sites)}: delete it, its reports, and bundles made of it")


def _tell_how_to_go_on(left: "RunDirectory", run: Path, sites: list[str], out: Path | None) -> None:
    from fedotp.cli.progress import say

    again = command(
        "forget", run, *(word for site in sites for word in ("--site", site)), *(["--out", out] if out else [])
    )
    if not left.is_deployed:
        say(f"stopped; go on with: {again}")
        raise typer.Exit(INTERRUPTED)
    print_paths([("prepared", left.path), ("replay it", left.resume_command), ("then", again)])


def _check(path: Path, against: Path | None) -> None:
    from fedotp.cli.progress import say
    from fedotp.runs.directory import RunDirectory, reading
    from fedotp.runs.leaving import check_certificate

    certificate, wrong = check_certificate(path, against)
    with reading(RunDirectory(path)):  # whoever made it may have left something out
        _print(certificate)
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(_DIFFER)
    print("it holds: the run is the one certified, and nothing of the forgotten is in it")
    if against is not None:
        print(f"{against} is the same, to the bit")


def _print(certificate: dict[str, Any]) -> None:
    rounds = certificate["rounds_taken_part_in"]
    rows: list[tuple[object, ...]] = [
        ("forgotten", site, f"took part in {len(rounds[site])} rounds") for site in certificate["forgotten"]
    ]
    replayed = certificate["replayed"]
    rows.append(("replayed", f"{replayed['rounds']} rounds", "from the first"))
    before, after = certificate["before"]["digests"], certificate["after"]["digests"]
    rows.append(("state before", before["state"][:16], certificate["before"]["run"]))
    rows.append(("state now", after["state"][:16], certificate["after"]["run"]))
    for key, was in certificate["made_with_before"].items():
        rows.append((f"another {key}", certificate["made_with"][key], f"before: {was}"))
    facts(rows)
