"""`fedotp join`: a client that joins after training."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedotp._bars import encoding_progress
from fedotp._text import printable
from fedotp.cli._options import JsonOption, QuietOption, RunArgument, SiteOption

app = typer.Typer()


@app.command()
def join(
    run: RunArgument,
    data: Annotated[Path, typer.Option(help="Images of the new client: a folder per class, or a *.csv table.")],
    site: SiteOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new client; default: that of the site or folder.")
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=0, help="Local epochs; 0: as many as a client of the run trained in total.")
    ] = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit a private prompt for a new client of a finished run, and evaluate it.

    The shared prompt is not changed, and nothing is sent to the run's clients. The classes of the new client must be
    among those of the run.

    Example: fedotp join runs/pets --data ~/photos/new-site --name site-4
    """
    from fedotp.federation import METRICS
    from fedotp.runs.one import join as join_run

    shown = Console(stderr=True).is_terminal and not quiet and not as_json
    with encoding_progress(quiet=not shown, transient=True) as on_progress:
        result = join_run(run, data, site=site, name=name, epochs=epochs, on_progress=on_progress)
    if as_json:
        print(json.dumps(result))
        return
    n_train, n_test = result["train_images"], result["test_images"]
    print(f"{printable(result['client'])}: {n_train:,} training and {n_test:,} test images")
    for when, what in (("before", "shared prompt, private one untrained"), ("after", "private prompt fitted")):
        shares = [f"{metric.title} {result[when][key]:6.1%}" for key, metric in METRICS.items() if metric.is_share]
        print("   ".join([*shares, what]))
    print(f"written to {printable(run / 'joined' / result['client'])}")
