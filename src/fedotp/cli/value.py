"""`fedotp value`: what each site contributed to a federation."""

import json
from typing import Annotated

import typer

from fedotp.cli._options import JobsOption, QuietOption, RunArgument
from fedotp.cli._value import print_value
from fedotp.cli.show import print_paths

app = typer.Typer()


@app.command()
def value(
    run: RunArgument,
    of: Annotated[
        str | None,
        typer.Option(
            metavar="global|personal",
            help="What a federation is worth: accuracy of what is shared, or of each site's own classifier.",
            show_default="global, where the method has a global part",
        ),
    ] = None,
    permutations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Random orders in which sites come, for the Shapley value.",
            show_default="all orders, exactly, of up to 5 sites; else 10",
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Run every coalition: 2^n runs of n sites, 12 sites at most.")
    ] = False,
    jobs: JobsOption = None,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """What each site contributed: what is lost without it, and its Shapley value.

    The federation is run again with some of its sites only, many times, side by
    side as `fedotp compare` does; the runs are kept in RUN/value. Stop it when
    you like: the same command again does the rest, and more --permutations only
    what they add. All coalitions are measured on the test images of all sites.

    \b
    Examples:
      fedotp value runs/demo
      fedotp value runs/office --permutations 20 --jobs 2
      fedotp value runs/demo --of personal --json
    """
    from fedotp.cli._trials import execute, require_complete
    from fedotp.cli.progress import run_progress
    from fedotp.runs.leaving import measure_plan, plan_value
    from fedotp.runs.many import Local

    plan = plan_value(run, of=of, permutations=permutations, all_of_them=exact)
    outcomes = execute(plan.trials, run / "value", Local(jobs or 1), quiet=quiet or as_json)
    require_complete(outcomes)
    with run_progress(quiet=quiet or as_json) as observer:
        result = measure_plan(plan, observer)
    if as_json:
        print(json.dumps(result))
        return
    print_value(result)
    print_paths([("written to", run / "value.json"), ("runs", run / "value")])
