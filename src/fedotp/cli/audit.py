"""`fedotp audit`: one run with canaries, and what epsilon is at least."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._files import write_atomically
from fedotp.cli import _complete
from fedotp.cli._options import SOURCE, QuietOption, SetOption
from fedotp.cli._status import SOME_FAILED
from fedotp.cli.show import facts, print_paths
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.audit import Audit
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

_UNITS = {"example": "one training image", "group": "one group of training images", "site": "one site"}
_LOOKED_AT = {
    "releases": "from every release",
    "shared": "from the shared prompt",
    "personal": "from clients' own classifiers",
}


@app.command()
def audit(
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
    canaries: Annotated[int, typer.Option(metavar="M", help="How many canaries.")] = 500,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="gradients|images",
            help="What canaries are; gradients where privacy is promised, else images with wrong labels.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the lower bound.")] = 0.95,
    out: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write; audit.json in the run if not given.", show_default=False),
    ] = None,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Find out what epsilon is at least: run once, with canaries, and guess which of them were in.

    The run is made in memory, and its prompts are thrown away. Of a RUN the same federation is made again, and
    what was found is kept in its directory, for the report. If the promise is refuted, the exit status is 1.

    \b
    Examples:
      fedotp audit demo --set privacy.unit=example --set privacy.noise=2
      fedotp audit runs/demo
      fedotp audit demo --canaries 1000 --out audit.json
    """
    from fedotp.audit import audit as make_audit
    from fedotp.cli.progress import print_json, run_progress
    from fedotp.config import load_config
    from fedotp.runs.directory import RunDirectory

    where = source or SOURCE
    run = RunDirectory.open(where) if Path(where).is_dir() else None
    if run is not None and changes and out is None:
        raise FedotpError(f"with --set it is another run than {where}: say with --out where to write what is found")
    config = (load_config(where) if run is None else run.config).override(changes or [])
    with run_progress(quiet=quiet or as_json) as observer:
        found = make_audit(config, canaries=canaries, kind=kind, confidence=confidence, like=run, observer=observer)
    written = _write(found, run, out)
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
        if written is not None:
            print_paths([("written to", written)])
    if found.is_broken:
        raise typer.Exit(SOME_FAILED)


def _write(found: "Audit", run: "RunDirectory | None", out: Path | None) -> Path | None:
    if out is not None:
        write_atomically(out, json.dumps(found.as_dict(), indent=2) + "\n")
        return out
    return None if run is None else run.save_finding("audit", found.as_dict())


def _print(found: "Audit") -> None:
    rows: list[tuple[object, ...]] = []
    for name, bound in found.bounds.items():
        remark = (
            f"{_LOOKED_AT[name]}: {bound.right} of {bound.guesses} guesses right, {bound.confidence:.0%} confidence"
        )
        rows.append(("at least", f"epsilon {bound.epsilon:.3g}", remark))
    if found.upper is None:
        rows.append(("at most", "anything", "nothing is promised (privacy.unit)"))
    else:
        rows.append(("at most", f"epsilon {found.upper:.3g}", f"by the accountant; {_UNITS[found.unit]} more or less"))
    first = next(iter(found.bounds.values()))
    rows.append(("at delta", f"{first.delta:g}"))
    rows.append(("canaries", first.canaries, f"{found.kind}; {first.included} were in"))
    facts(rows)
    if found.is_broken:
        print("The promise is broken: more leaks than is accounted for.")
