"""`fedotp runs`: list and show runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp._imports import import_named
from fedotp._text import percent, printable
from fedotp.cli._options import JsonOption, RunArgument
from fedotp.cli.show import cell, facts, print_paths, print_run, print_table, print_views
from fedotp.errors import FedotpError, listed

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.runs.directory import RunDirectory

app = typer.Typer(help="Runs: list, show.", no_args_is_help=True)

_CLIENTS_SHOWN = 20


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to search, with all folders below.")] = Path(
        "runs"
    ),
    as_json: JsonOption = False,
) -> None:
    """List the runs in a folder and below.

    \b
    Examples:
      fedotp runs list runs/compare-demo
      fedotp runs list --json | jq -r 'select(.state == "stopped") | .run'
    """
    from fedotp.runs.directory import find_runs

    if not folder.is_dir():
        raise FedotpError(f"{folder} is not a folder; `fedotp run` creates runs in runs/ by default")
    import_named()  # reports errors in files given by --import, though none is needed here
    rows: list[list[object]] = []
    found = find_runs(folder)
    unreadable: list[str] = []
    for run in found:
        try:
            with run.reading():
                line = _facts(run)
                row = [line["started"], line["state"], *_progress(line), line["method"], line["data"]]
        except FedotpError as error:
            line = {"run": str(run.path), "state": "unreadable", "error": str(error)}
            row = ["?", "unreadable", "-", "-", "?", "?"]
            unreadable.append(printable(error))
        if as_json:
            print(json.dumps(line))
        else:
            rows.append([*row, run.path])
    if as_json:
        return
    if found:
        titles = ("started", "state", "rounds", "accuracy %", "method", "data", "run")
        print_table(titles, rows, right=("rounds", "accuracy %"), wide=True)
    else:
        print(f"no runs in {printable(folder)}; create one with `fedotp run`")
    for why in unreadable:
        print(f"unreadable: {why}")


@app.command()
def show(
    run: RunArgument,
    every: Annotated[bool, typer.Option("--all", help=f"Show all clients, not only {_CLIENTS_SHOWN}.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all numbers of its rounds as CSV instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the settings of a run and its results for each client.

    \b
    Examples:
      fedotp runs show runs/office --all
      fedotp runs show runs/office --csv > rounds.csv
      fedotp runs show runs/office --json | jq .summary
    """
    from fedotp.runs.directory import RunDirectory, as_csv, rounds_of

    directory = RunDirectory.open(run)
    if csv:
        with directory.reading():
            rows = rounds_of(directory)
        print(as_csv(rows), end="")
        return
    with directory.reading():
        # fail on unreadable files before anything is printed
        line = _facts(directory)
        if as_json:
            summary = directory.summary if directory.is_complete else None
            print(json.dumps({**line, "manifest": directory.manifest, "summary": summary}))
            return
        state, (rounds, accuracy) = line["state"], _progress(line)
        facts(list(_essentials(directory)))
        print()
        if not directory.is_complete:
            facts([("state", state), ("rounds", rounds), ("accuracy %", accuracy, "at the last evaluation")])
            if state != "running":
                print_paths([("continue", directory.resume_command)])
            return
        print_run(directory)
        print_views(directory.summary)
        print()
        _print_clients(directory, every)


def _facts(run: "RunDirectory") -> dict[str, Any]:
    """Return the state of a run, its rounds and last accuracy, in JSON values."""
    manifest, last = run.manifest, {record["kind"]: record for record in run.metrics()}
    return {
        "run": str(run.path),
        "started": manifest["started"][:10],
        "state": "complete" if run.is_complete else "running" if run.is_running else "stopped",
        "round": last.get("round", {}).get("round", 0),
        "rounds": run.summary["rounds"] if run.is_complete else manifest["config"]["federation"]["rounds"],
        "accuracy": last["evaluation"]["accuracy"] if "evaluation" in last else None,
        "method": run.title,
        "data": manifest["data"]["name"],
    }


def _progress(line: dict[str, Any]) -> tuple[str, str]:
    """Write the rounds and the accuracy."""
    accuracy = line["accuracy"]
    return f"{line['round']}/{line['rounds']}", "-" if accuracy is None else percent(accuracy)


def _essentials(run: "RunDirectory") -> Iterator[tuple[object, ...]]:
    manifest, data, what, tables = run.manifest, run.manifest["data"], run.manifest["method"], run.manifest["config"]
    partition, rounds, optimizer, server = (
        tables[section] for section in ("partition", "federation", "optimizer", "server")
    )
    options = ", ".join(f"{name} {value}" for name, value in tables["method"].items() if name != "name")
    images = f"{data['train_images']:,} train, {data['test_images']:,} test images, {len(data['classes'])} classes"
    yield "method", f"{what['title']} ({what['reference']})", options
    yield "backbone", manifest["backbone"]["name"], manifest["backbone"]["digest"][:12]
    yield "data", data["name"], ", ".join(filter(None, [images, data["digest"][:12]]))  # real sites: no digest
    division = f"{partition['scheme']}, partition seed {partition['seed']}"
    yield "clients", len(manifest["clients"]), "real sites" if run.is_deployed else division
    if away := rounds.get("without"):
        yield "  without", listed(away), "excluded from this run"
    steps = f"local epochs {rounds['local_epochs']}, batches of {rounds['batch_size']}"
    yield "rounds", rounds["rounds"], f"{steps}, participation {rounds['participation']}"
    yield "optimizer", optimizer["name"], f"lr {optimizer['lr']}, momentum {optimizer['momentum']}"
    if server["name"] != "average":
        yield "server optimizer", server["name"], f"lr {server['lr']}"
    yield "seed", tables["seed"]
    started = manifest["started"][:16].replace("T", " ")
    yield "started", started, f"fedotp {manifest['fedotp']}, torch {manifest['torch']}"
    yield "on", manifest["device"], manifest["commit"] or ""


def _print_clients(run: "RunDirectory", every: bool) -> None:
    from fedotp.federation import METRICS

    summary = run.summary
    with_domains = any(client["domain"] for client in summary["clients"])
    numbers = ("test images", *(metric.heading for metric in METRICS.values()))
    joined = summary.get("joined", {}).get("clients", [])
    rows = [*((client, "") for client in summary["clients"]), *((client, "joined later") for client in joined)]
    if run.is_deployed:
        known = {client["name"] for client in summary["clients"]}
        rows += [({"name": name}, "reported no test results") for name in run.manifest["clients"] if name not in known]
    shown = rows if every else rows[:_CLIENTS_SHOWN]
    lines: list[list[object]] = []
    for client, remark in shown:
        values = [metric.write(client.get(key)) for key, metric in METRICS.items()]
        domain = [client.get("domain") or "mixed"] if with_domains else []
        lines.append([client["name"], *domain, client.get("test_images", "-"), *values, cell(remark, "dim")])
    print_table(["client", *(["domain"] if with_domains else []), *numbers, ""], lines, right=numbers)
    if len(shown) < len(rows):
        print(f"and {len(rows) - len(shown)} more; show them with --all")
