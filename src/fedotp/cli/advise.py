"""`fedotp advise`: the expected benefit of a federation, before training."""

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from fedotp._system import open_driver
from fedotp._text import percent, printable
from fedotp.cli._options import SOURCE, JsonOption, QuietOption, SetOption, SourceArgument
from fedotp.cli.show import cell, command, print_paths, print_table

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.runs.advice import Advice

app = typer.Typer()

_MOST_SITES = 20  # printed; --json contains all


@app.command()
def advise(
    source: SourceArgument = None, changes: SetOption = None, quiet: QuietOption = False, as_json: JsonOption = False
) -> None:
    """Estimate before training whether the class prior, sharing or personal weights help.

    Zero-shot CLIP and three closed-form ridge classifiers predict every site's
    training images by leave-one-out. Test images are encoded for later runs,
    but not evaluated. The configuration's method is ignored.

    \b
    Examples:
      fedotp advise demo-sites
      fedotp advise demo-sites --set partition.n_clients=5
      fedotp advise mine.toml --json | jq .recommended
    """
    chosen = changes or []
    open_driver(chosen)
    from fedotp.cli.progress import print_json, run_progress
    from fedotp.config import load_config
    from fedotp.runs.advice import advise as advise_config

    config = load_config(source or SOURCE).override(chosen)
    with run_progress(quiet=quiet or as_json) as observer:
        advice = advise_config(config, observer)
    if as_json:
        print_json(advice.as_dict())
    else:
        _print(advice)
        if advice.settings:
            options = [word for change in (*chosen, *advice.settings) for word in ("--set", change)]
            print_paths([("next", command("run", source or SOURCE, *options))])


def _print(advice: "Advice") -> None:
    """Print accuracies, gains, sites and the recommendation."""
    accuracy, worst, interval = "accuracy", "worst site", "95 % interval"
    means = [
        (name, percent(mean), percent(min(site.accuracy[name] for site in advice.sites)))
        for name, mean in advice.accuracy.items()
    ]
    print_table(("classifier", accuracy, worst), means, right=(accuracy, worst))

    gained, lost = "sites that gain", "sites that lose"
    print()
    gains = []
    for name, found in advice.gains.items():
        ups = sum(site.gains[name].is_above for site in advice.sites)
        downs = sum(site.gains[name].is_below for site in advice.sites)
        gains.append((name, found.points, found.interval, ups, downs))
    print_table(("gain by", "points", interval, gained, lost), gains, right=("points", interval, gained, lost))

    if len(advice.sites) <= _MOST_SITES:
        print()
        sites = (
            (site.name, len(next(iter(site.right.values()))), *(found.points for found in site.gains.values()))
            for site in advice.sites
        )
        print_table(("site", "images", *advice.gains), sites, right=("images", *advice.gains))
    note = (
        f"means over {len(advice.sites)} sites by leave-one-out, which overestimates the gain from sharing for sites "
        "with few images; a site gains or loses if its own interval excludes 0"
    )
    Console().print(cell(note, "dim"))
    print()
    for line in advice.sentences:
        print(printable(line))
