"""`fedotp forget`: a federation without some clients, and its certificate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp.cli import _complete
from fedotp.cli._options import ClientsOption, QuietOption
from fedotp.cli.show import INTERRUPTED, SOME_FAILED, command, facts, print_paths
from fedotp.errors import FedotpError, listed

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

CertificateOption = Annotated[
    Path | None,
    typer.Option(metavar="CERTIFICATE", help="Instead: check a certificate and the run in whose directory it is."),
]
AgainstOption = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="With --check: a run that others made without the clients; it must be bit-equal, or equal to rounding.",
        autocompletion=_complete.runs,
    ),
]


@app.command()
def forget(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Directory of a run.", autocompletion=_complete.runs)
    ] = None,
    clients: ClientsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the new run; beside the old one if not given.")
    ] = None,
    check: CertificateOption = None,
    against: AgainstOption = None,
    quiet: QuietOption = False,
) -> None:
    """Forget clients: the federation as it would have been without them, with a certificate.

    All rounds are run again without the clients, from the same seed: the result
    is bit-equal to that of a run with federation.without = ["NAME"], the other
    clients' private prompts included. Of a method in closed form (ridge), what
    the clients added to the sums is subtracted instead: equal to rounding. The
    old run is not changed: delete it, and all that was made from it, when you
    have the new one. If stopped, the same command continues. A run of real sites
    is prepared here and replayed with them by `fedotp server --resume`.

    \b
    Examples:
      fedotp forget runs/demo --client client-3
      fedotp forget runs/demo --client client-1 --client client-3 --out runs/left
      fedotp forget --check runs/left/forgotten.json
      fedotp forget --check runs/left/forgotten.json --against runs/never
    """
    if check is not None:
        if run is not None or clients or out is not None:
            raise FedotpError("--check takes one certificate: leave out RUN, --client and --out")
        _check(check, against)
        return
    if run is None or not clients or against is not None:
        raise FedotpError("name a run and clients, for example `fedotp forget runs/demo --client client-3`; see --help")
    from fedotp.cli.progress import run_progress, say
    from fedotp.runs.leaving import forget as forget_clients

    with run_progress(quiet=quiet) as observer:
        left, certificate = forget_clients(run, clients, out, observer=observer)
    if certificate is None:
        _print_how_to_go_on(left, run, clients, out)
        return
    _print(certificate)
    print_paths([("run", left.path), ("certificate", left.path / "forgotten.json")])
    say(f"{run} still has all of {listed(clients)}: delete it, its reports, and bundles made of it")


def _print_how_to_go_on(left: "RunDirectory", run: Path, clients: list[str], out: Path | None) -> None:
    from fedotp.cli.progress import say

    again = command(
        "forget", run, *(word for client in clients for word in ("--client", client)), *(["--out", out] if out else [])
    )
    if not left.is_deployed:
        say(f"stopped; go on with: {again}")
        raise typer.Exit(INTERRUPTED)
    print_paths([("prepared", left.path), ("replay it", left.resume_command), ("then", again)])


def _check(path: Path, against: Path | None) -> None:
    from fedotp.cli.progress import say
    from fedotp.runs.directory import RunDirectory
    from fedotp.runs.leaving import check_certificate

    certificate, wrong = check_certificate(path, against)
    with RunDirectory(path).reading():  # a certificate by others may be incomplete
        _print(certificate)
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(SOME_FAILED)
    print("valid: the run is the certified one, and nothing of the forgotten clients is in it")
    if against is not None:
        print(f"{against} is {_how_equal(certificate)}")


def _how_equal(certificate: dict[str, Any]) -> str:
    return "equal to rounding" if certificate.get("by") == "subtraction" else "bit-equal"


def _print(certificate: dict[str, Any]) -> None:
    rounds = certificate["rounds_taken_part_in"]
    rows: list[tuple[object, ...]] = [
        ("forgotten", site, f"took part in {len(rounds[site])} rounds") for site in certificate["forgotten"]
    ]
    if certificate.get("by") == "subtraction":
        rows.append(("subtracted", "what they added to the sums", "equal to rounding to a run without them"))
    else:
        rows.append(("replayed", f"{certificate['replayed']['rounds']} rounds", "from the first"))
    if why := certificate.get("no_subtraction"):
        rows.append(("not subtracted", why))
    before, after = certificate["before"]["digests"], certificate["after"]["digests"]
    rows.append(("state before", before["state"][:16], certificate["before"]["run"]))
    rows.append(("state now", after["state"][:16], certificate["after"]["run"]))
    for key, was in certificate["made_with_before"].items():
        rows.append((f"another {key}", certificate["made_with"][key], f"before: {was}"))
    facts(rows)
