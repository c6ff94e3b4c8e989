"""`fedotp forget`: rerun a federation without some clients, with a certificate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedotp.cli import _complete
from fedotp.cli._options import ClientsOption, QuietOption
from fedotp.cli.show import INTERRUPTED, SOME_FAILED, command, facts, print_paths
from fedotp.errors import FedotpError, listed

app = typer.Typer()

CertificateOption = Annotated[
    Path | None, typer.Option(metavar="CERTIFICATE", help="Only check a certificate and the run in its directory.")
]
AgainstOption = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="With --check: an independent run without the clients; it must be bit-equal.",
        autocompletion=_complete.runs,
    ),
]


@app.command()
def forget(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Directory of a run.", autocompletion=_complete.runs)
    ] = None,
    clients: ClientsOption = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the new run; default: beside the old one.")] = None,
    check: CertificateOption = None,
    against: AgainstOption = None,
    quiet: QuietOption = False,
) -> None:
    """Forget clients: rerun the federation without them, and certify the result.

    All rounds are replayed without the clients from the same seed: the result is
    bit-equal to a run with federation.without = ["NAME"], including the other
    clients' private prompts. The old run is not changed: delete it, and
    everything made from it, once you have the new one. If interrupted, the same
    command continues. A run of real sites is prepared here and replayed with
    `fedotp server --resume`.

    \b
    Examples:
      fedotp forget runs/demo --client client-3
      fedotp forget runs/demo --client client-1 --client client-3 --out runs/left
      fedotp forget --check runs/left/forgotten.json
      fedotp forget --check runs/left/forgotten.json --against runs/never
    """
    if check is not None:
        if run is not None or clients or out is not None:
            raise FedotpError("--check needs only a certificate: remove RUN, --client and --out")
        _check(check, against)
        return
    if run is None or not clients or against is not None:
        raise FedotpError("give a run and clients, for example `fedotp forget runs/demo --client client-3`; see --help")
    from fedotp.cli.progress import run_progress, say
    from fedotp.runs.leaving import forget as forget_clients

    with run_progress(quiet=quiet) as observer:
        left, certificate = forget_clients(run, clients, out, observer=observer)
    if certificate is None:
        named = (word for client in clients for word in ("--client", client))
        again = command("forget", run, *named, *(["--out", out] if out else []))
        if not left.is_deployed:
            say(f"stopped; continue with: {again}")
            raise typer.Exit(INTERRUPTED)
        print_paths([("prepared", left.path), ("replay it", left.resume_command), ("then", again)])
        return
    _print(certificate)
    print_paths([("run", left.path), ("certificate", left.path / "forgotten.json")])
    say(f"{run} still contains {listed(clients)}: delete it, its reports and its bundles")


def _check(path: Path, against: Path | None) -> None:
    from fedotp.cli.progress import say
    from fedotp.runs.directory import RunDirectory
    from fedotp.runs.leaving import check_certificate

    certificate, wrong = check_certificate(path, against)
    with RunDirectory(path).reading():  # a certificate from elsewhere may be incomplete
        _print(certificate)
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(SOME_FAILED)
    print("valid: the run is the certified one and contains nothing of the forgotten clients")
    if against is not None:
        print(f"{against} is bit-equal")


def _print(certificate: dict[str, Any]) -> None:
    rounds = certificate["rounds_taken_part_in"]
    rows: list[tuple[object, ...]] = [
        ("forgotten", site, f"participated in {len(rounds[site])} rounds") for site in certificate["forgotten"]
    ]
    rows.append(("replayed", f"{certificate['replayed']['rounds']} rounds", "from the first"))
    before, after = certificate["before"]["digests"], certificate["after"]["digests"]
    rows.append(("state before", before["state"][:16], certificate["before"]["run"]))
    rows.append(("state now", after["state"][:16], certificate["after"]["run"]))
    for key, was in certificate["made_with_before"].items():
        rows.append((f"another {key}", certificate["made_with"][key], f"before: {was}"))
    facts(rows)
