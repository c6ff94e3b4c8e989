"""`fedotp demo`: the first run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp.cli._options import QuietOption
from fedotp.cli._trials import run_trials
from fedotp.cli.show import print_paths
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.runs import Outcome

app = typer.Typer()

_METHODS = ("zeroshot", "promptfl", "coop", "fedotp")
_MAPS = 4


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of its runs and pictures.")] = Path("runs/demo"),
    quiet: QuietOption = False,
) -> None:
    """Compare FedOTP with PromptFL, CoOp and zero-shot CLIP on a small federation with skewed labels.

    Backbone and images come with fedotp: nothing is downloaded. The same command again shows the same table.

    Example: fedotp demo
    """
    from fedotp.config import load_config
    from fedotp.runs import Local, by_method

    outcomes = run_trials(by_method(load_config("demo"), _METHODS, [0]), out, Local(), quiet=quiet)
    print()
    try:
        print_paths([("picture", path) for path in _draw(outcomes, out)])
    except FedotpError as error:  # matplotlib is not installed
        print(f"no pictures: {error}")
    fedotp_run = outcomes[_METHODS.index("fedotp")].directory.path
    print("\nWhat to try next:")
    for command, what in (
        (f"fedotp report {out}", "all of it as one page"),
        (f"fedotp serve {fedotp_run}", "a page to try images of your own on"),
        (f"fedotp runs show {fedotp_run}", "every client's numbers"),
        (f"fedotp evaluate {fedotp_run} --set method.mass=0.5", "the same prompts, half of the patches"),
        ("fedotp compare demo --methods fedotp,fedotp:rule=classical,fedotp:rule=average", "the paper's ablation"),
        ("fedotp run demo --set data.dataset=DIR", "your own images: a folder per class"),
        ("fedotp presets", "the paper's experiments, on OpenAI's weights"),
    ):
        print(f"  {command}\n      {what}")


def _draw(outcomes: "list[Outcome]", folder: Path) -> list[Path]:
    """Accuracy over rounds, and where the prompts of FedOTP's first client look."""
    from fedotp.report import plot_curves, plot_maps, transport_maps

    curves, maps = folder / "accuracy.png", folder / "transport.png"
    plot_curves([outcome.directory for outcome in outcomes]).savefig(curves, dpi=150)
    run = outcomes[_METHODS.index("fedotp")].directory
    client = run.manifest["clients"][0]
    title = f"{client}: similarity and transport plan of its global and its local prompt"
    plot_maps(transport_maps(run.path, client, _MAPS), title).savefig(maps, dpi=150)
    return [curves, maps]
