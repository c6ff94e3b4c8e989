"""Output of commands, with names made printable: tables, results and views of a run; exit statuses."""

import io
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedotp._imports import import_options
from fedotp._text import counted, n_bytes, percent, printable

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.limits import Calibration
    from fedotp.runs.directory import RunDirectory

# Exit statuses beside 0, and beside 2 for bad input
SOME_FAILED = 1
TRY_AGAIN = 75  # EX_TEMPFAIL: a temporary failure
INTERRUPTED = 130  # ended by Ctrl-C

_TITLE_WIDTH = 10  # of a column of numbers; longer titles take several lines
_ANY_WIDTH = 10_000


def cell(text: object, style: str = "") -> Text:
    """Return literal text for a table: no markup, no control characters."""
    return Text(printable(text), style=style)


def command(*words: object) -> str:
    """Return a command line to paste."""
    return shlex.join(["fedotp", *map(str, words), *import_options()])


def print_table(
    titles: Sequence[str], rows: Iterable[Iterable[object]], *, right: Sequence[str] = (), wide: bool = False
) -> None:
    """Print rows below titles; numbers, in the columns in `right`, are never wrapped, nor is a `wide` table."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        number = title in right
        lines = textwrap.wrap(printable(title), _TITLE_WIDTH, break_long_words=False) if number else [printable(title)]
        heading = Text("\n".join(lines), style="bold")
        table.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*(each if isinstance(each, Text) else cell(each) for each in row))
    if not wide:
        Console().print(table)
        return
    file = io.StringIO()
    Console(file=file, width=_ANY_WIDTH).print(table)
    for line in file.getvalue().splitlines():
        print(line.rstrip())


def facts(rows: Sequence[tuple[object, ...]]) -> None:
    """Print lines of a name, a value and an optional remark."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(style="dim", overflow="fold")
    for name, value, *remark in rows:
        grid.add_row(cell(name), cell(value), *map(cell, remark))
    Console().print(grid)


def print_numbers(numbers: dict[str, Any]) -> None:
    """Print the numbers of a summary, or of an evaluation in the shape of one."""
    from fedotp.federation import METRICS
    from fedotp.runs.tables import CONTROLS

    final = numbers["final"]
    rows: list[tuple[object, ...]] = []
    if final:
        remark = f"± {percent(final['accuracy_std'])} over clients"
        rows.append(("mean accuracy", f"{percent(final['accuracy'])} %", remark))
    else:
        rows.append(("mean accuracy", "-", "no site reports its accuracy"))
    for name, domain in numbers["domains"].items():
        remark = f"± {percent(domain['accuracy_std'])} over {counted(domain['clients'], 'client')}"
        rows.append((f"  {name}", f"{percent(domain['accuracy'])} %", remark))
    best, mean = numbers.get("best"), numbers.get("last_five", {"evaluations": 1})
    if best and (mean["evaluations"] > 1 or best["round"] != numbers["rounds"]):
        remark = f"after round {best['round']}; chosen on the test images"
        rows.append(("best", f"{percent(best['accuracy'])} %", remark))
    if mean["evaluations"] > 1:
        name = f"last {mean['evaluations']}"
        rows.append((name, f"{percent(mean['accuracy'])} %", f"mean of the {name} evaluations"))
    if final:
        worst = f"{percent(final['accuracy_worst_decile'])} %"
        rows.append(("worst decile", worst, "mean accuracy of the worst tenth of the clients"))
        others = [metric for key, metric in METRICS.items() if metric.is_share and key != "accuracy" and key in final]
        rows += [(metric.title, f"{metric.write(final[metric.key])} %") for metric in others]
    if final and numbers.get("with_prior") and numbers["with_prior"]["accuracy"] != final["accuracy"]:
        rows.append(("with class prior", f"{percent(numbers['with_prior']['accuracy'])} %", "evaluation.prior=1"))
    for name, control in numbers.get("controls", {}).items():
        rows.append((CONTROLS.get(name, name), f"{percent(control['accuracy'])} %", "control"))
    if "joined" in numbers:
        joined = numbers["joined"]
        remark = f"{counted(len(joined['clients']), 'client')}, after training"
        rows.append(("joined later", f"{percent(joined['accuracy'])} %", remark))
    if numbers.get("faults"):
        named = ", ".join(f"{name} {n}" for name, n in numbers["faults"].items())
        rows.append(("missing updates", sum(numbers["faults"].values()), named))
    if "epsilon" in (spent := numbers.get("privacy", {})):
        who = spent.get("neighbours", "add or remove one site")
        rows.append(("privacy spent", f"epsilon {spent['epsilon']:.3g}", f"at delta {spent['delta']:g}; {who}"))
    if "secure" in numbers:
        rows.append(("updates seen", "none", f"by the server, in {counted(numbers['secure']['sums'], 'secure sum')}"))
    if "optimizer" in numbers:
        rows.append(("learning rate", f"{numbers['optimizer']['lr']:g}", numbers["optimizer"]["name"]))
    if "communication" in numbers:
        sent = numbers["communication"]
        rows.append(("communication", f"{n_bytes(sent['bytes_up'])} up", f"{n_bytes(sent['bytes_down'])} down"))
    if "seconds" in numbers:
        spent = numbers["seconds"]
        rows.append(("time", f"{spent['train']:.1f} s", f"of training, {spent['evaluate']:.1f} s of evaluation"))
    facts(rows)


def print_run(directory: "RunDirectory") -> None:
    """Print the final numbers of a complete run."""
    from fedotp.runs.tables import check_run, open_checks

    summary = directory.summary
    print_headline(directory, len(directory.manifest["clients"] if directory.is_deployed else summary["clients"]))
    if (privacy := summary.get("privacy", {})).get("ended_the_run"):
        print(f"ended by the privacy budget, after round {summary['rounds']}: epsilon {privacy['epsilon']:.3f}")
    print_numbers(summary)
    rows: list[tuple[object, ...]] = []
    with directory.reading():  # results of attacks, if any
        if (audit := directory.finding("audit")) is not None:
            rows.append(("privacy lost", f"epsilon {audit['bound']['epsilon']:.3g}", "at least; from fedotp audit"))
        if (probe := directory.finding("probe")) is not None:
            auc = max(attack["separation"]["auc"]["value"] for attack in probe["attacks"])
            rows.append(("membership", f"AUC {auc:.3f}", "of the best attack of fedotp audit --probe; 0.5 is chance"))
    if rows:
        facts(rows)
    title, checks = directory.title, check_run(summary)
    print_checks([check.sentence(title) for check in checks if check.is_flagged], open_checks({title: checks}))


def print_checks(warnings: Sequence[str], notes: Sequence[str]) -> None:
    """Print warnings and notes on comparisons of methods with their controls."""
    for sentence in warnings:
        Console().print(cell(sentence, "bold yellow"))
    for sentence in notes:
        Console().print(cell(sentence, "dim"))


def print_headline(run: "RunDirectory", n_clients: int) -> None:
    """Print the method, data, clients and rounds of a run."""
    n_rounds = max((record["round"] for record in run.metrics("round")), default=0)
    what = f"{run.title} on {run.manifest['data']['name']}"
    text = f"{what}, {counted(n_clients, 'client')}, {counted(n_rounds, 'round')}"
    Console().print(cell(text, "bold"), soft_wrap=True)
    for note in run.manifest["data"].get("notes", ()):
        print(f"note: {printable(note)}")


def print_paths(rows: Sequence[tuple[str, str | Path]]) -> None:
    """Print names with paths or commands, never wrapped."""
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {printable(text)}")


def print_findings(findings: Iterable[tuple[str, str, str]]) -> None:
    """Print items, states and remarks of a check as they come, a line each; exit with SOME_FAILED if one failed."""
    states = Counter(dict.fromkeys(("ok", "warning", "failed", "not checked"), 0))
    for item, state, remark in findings:
        print(f"{state:<11}  {item:<13}  {printable(remark)}", flush=True)
        states[state] += 1
    print(", ".join(counted(n, state) if state == "warning" else f"{n} {state}" for state, n in states.items() if n))
    if states["failed"]:
        raise typer.Exit(SOME_FAILED)


# Views -----------------------------------------------------------------------------------------------------------

_MODELS = "personal: each client's own model; global: the method's global model."
_MEANS = (
    "HM: harmonic mean of base and novel; HM3: of personal (local), base and novel; CM: mean of personal and HM. "
    "The base of the global model is the view global."
)


def print_views(numbers: Mapping[str, Any]) -> None:
    """Print the views of a summary, or of an evaluation in that shape, and the impossible views."""
    views: Sequence[Mapping[str, Any]] = numbers.get("views", ())
    means: Mapping[str, Mapping[str, Any]] = numbers.get("base_to_novel", {})
    over_rounds = any(view["evaluations"] > 1 for view in views)
    titles = ("classes", "images", "clients", "last %", *(("best %", "in round", "mean of last 5 %") * over_rounds))

    def numbers_in(values: Mapping[str, Any]) -> list[object]:
        more = [percent(values["best"]), values["best_round"], percent(values["last_five"])] if over_rounds else []
        return [percent(values["last"]), *more]

    rows: list[list[object]] = []
    for view in views:
        sizes = [f"{n:,}" for n in (view["classes"], view["images"], len(view["clients"]))]
        rows.append([view["view"], view["model"], *sizes, *numbers_in(view)])
    for model, found in means.items():
        rows += [[name.upper(), model, "", "", "", *numbers_in(found[name])] for name in ("hm", "hm3", "cm")]
    if views:
        print()
        print_table(("view", "model", *titles), rows, right=titles)
        Console().print(cell(f"{_MODELS} {_MEANS}" if means else _MODELS, "dim"))
    for missing in numbers.get("missing_views", ()):
        print(f"no {printable(missing['view'])} view: {printable(missing['why'])}")


# Calibrations ----------------------------------------------------------------------------------------------------


def promise(calibration: "Calibration") -> str:
    """Return a line that states the guarantees of a calibration."""
    from fedotp.limits import COVERAGES, least_images

    n = len(calibration)
    possible = [f"{coverage:g}" for coverage in COVERAGES if n >= least_images(coverage)]
    sets = f"sets up to a coverage of {possible[-1]}" if possible else f"too few for a coverage of {COVERAGES[0]:g}"
    flags = "unlike images are flagged" if calibration.can_flag else "too few to flag unlike images"
    return f"calibrated with {counted(n, 'image')}: {sets}; {flags}"
