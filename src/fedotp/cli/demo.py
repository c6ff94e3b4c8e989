"""`fedotp demo`: the first run."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedotp.cli._options import QuietOption
from fedotp.cli._trials import run_trials
from fedotp.cli.report import analysed
from fedotp.cli.show import print_paths

app = typer.Typer()

PRESET = "demo-sites"
SPLITS = range(6, 12)  # not used to choose any setting (recipes/demo)
METHODS = ("personal-ridge", "fedotp", "promptfl", "coop", "ridge", "zeroshot")  # the first is the baseline


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs and the page.")] = Path("runs/demo"),
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser, if there is a display.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare six methods on 50 small sites: FedOTP, CoOp (local), PromptFL (shared), two ridges, zero-shot CLIP.

    The column "with prior" adds the logarithm of a site's class frequencies to the logits. Backbone and images are
    built in, nothing is downloaded. The results are a table of differences with intervals, and a page. Repeating the
    command shows the same table.

    Example: fedotp demo --open
    """
    from fedotp.config import load_config
    from fedotp.report.page import Analysed, write_page
    from fedotp.runs.many import by_method

    outcomes = run_trials(by_method(load_config(PRESET), METHODS, [0], SPLITS), out, 1, quiet=quiet)
    runs = [outcome.directory for outcome in outcomes]
    fedotp_run = runs[METHODS.index("fedotp") * len(SPLITS)]
    looked_into: list[Analysed] = [analysed(run, quiet=True) if run is fedotp_run else None for run in runs]
    page = write_page(runs, out / "report.html", looked_into)
    print_paths([("page", page)])
    print(f"\n{page.resolve().as_uri()}")
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if open_ and has_display:
        webbrowser.open(page.resolve().as_uri())
    print("\nNext steps:")
    for command, what in (
        (f"fedotp serve {runs[0].path}", "a page to try your own images"),
        (f"fedotp runs show {runs[0].path}", "the results of each site"),
        (f"fedotp advise {PRESET}", "the expected gain from prior, sharing and personal weights, without training"),
        (f"fedotp evaluate {fedotp_run.path} --set method.mass=0.5", "the same prompts on half of the patches"),
        (
            "fedotp compare demo --splits 0..2 --seeds 0",
            "five sites with two classes each, where federation does not help",
        ),
        (f"fedotp run {PRESET} --set data.dataset=DIR", "your own images, in a folder per class"),
        ("fedotp presets", "the paper's experiments, on OpenAI's weights"),
    ):
        print(f"  {command}\n      {what}")
