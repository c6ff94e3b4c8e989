"""The data of the page about one run, read from its directory, for JSON.

Shares are integers in millionths, or None if unknown, so that curves of many clients stay short.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedotp._files import read_json
from fedotp._text import counted
from fedotp.classifier import backbone_name
from fedotp.config import Config
from fedotp.errors import FedotpError, listed
from fedotp.federation import METRICS, Metric
from fedotp.runs.directory import RunDirectory
from fedotp.runs.tables import CONTROLS, check_run, open_checks

_MOST_BYTES = 16 << 20  # size limit of a client's result
_SHUFFLED = "Trained on shuffled labels: this is a control, not a result."
_MOST_POINTS = 300_000  # of clients' curves; some are skipped if there are more


def gather(run: RunDirectory) -> dict[str, Any]:
    """Gather the data of one run; unknown parts are None or empty, and unreadable ones are listed in `missing`."""
    config, manifest = run.config, run.manifest
    records = list(run.metrics())
    rounds = [record for record in records if record["kind"] == "round"]
    evaluations = list(
        {r["round"]: r for r in records if r["kind"] == "evaluation"}.values()
    )  # the last one of each round
    summary = run.summary if run.is_complete else {}
    missing: list[str] = []
    checks = check_run(summary) if summary else []
    shuffled = [_SHUFFLED] if config.data.labels == "shuffled" else []
    return {
        "name": run.path.resolve().name,
        "state": "complete" if run.is_complete else "running" if run.is_running else "stopped",
        "method": {"title": config.title, "reference": config.method.reference},
        "seed": config.seed,
        "data": {key: manifest["data"][key] for key in ("name", "classes", "train_images", "test_images")},
        "backbone": backbone_name(manifest["backbone"]["name"]),
        "deployed": run.is_deployed,
        "split": {"scheme": config.partition.scheme, "alpha": config.partition.alpha, "shots": config.partition.shots},
        "rounds": {
            "done": rounds[-1]["round"] if rounds else 0,
            "planned": summary.get("rounds", config.federation.rounds),
        },
        "clients": _clients(run, evaluations, summary, missing),
        "totals": _totals(evaluations),
        "best": summary.get("best"),
        "domains": (evaluations[-1]["domains"] if evaluations else {}),
        "class_accuracy": [share(x) for x in evaluations[-1]["class_accuracy"]] if evaluations else [],
        "curve": _curve(evaluations, len(manifest["clients"])),
        "training": _training(rounds),
        "seconds": {
            "train": _sum(rounds, "seconds"),
            "evaluate": summary["seconds"]["evaluate"] if summary else _sum(evaluations, "seconds"),
        },
        "confusion": _confusion(run, len(manifest["clients"]), len(manifest["data"]["classes"]), missing),
        "joined_later": _joined_later(run),
        "config": config.to_dict(),
        "manifest": {key: value for key, value in manifest.items() if key != "config"},  # shown separately
        "missing": missing,
        "notes": _notes(config, summary),
        "controls": {
            title: share(summary["controls"][name]["accuracy"])
            for name, title in CONTROLS.items()
            if name in summary.get("controls", {})
        },
        "warnings": _untrusted(summary),
        "checks": {
            "warnings": shuffled + [check.sentence(config.title) for check in checks if check.is_flagged],
            "notes": open_checks({config.title: checks}),
        },
    }


def _notes(config: Config, summary: dict[str, Any]) -> list[str]:
    """Return notes on excluded clients, missing views, secure sums and privacy."""
    away = config.federation.without
    notes = [f"{listed(away)} {'is' if len(away) == 1 else 'are'} excluded from this run."] if away else []
    notes += [f"There is no {view['view']} view: {view['why']}." for view in summary.get("missing_views", ())]
    if secure := summary.get("secure"):
        notes.append(f"The server saw only sums of updates: {counted(secure['sums'], 'secure sum')}.")
    if (privacy := summary.get("privacy", {})).get("ended_the_run"):
        notes.append(f"The privacy budget ended the run after round {summary['rounds']}.")
    if "epsilon" in privacy:
        notes.append(
            f"Privacy spent: epsilon {privacy['epsilon']:.3f} at delta {privacy['delta']:g}, "
            f"{privacy['releases']} releases; neighbours: {privacy['neighbours']}."
        )
    return notes


def _untrusted(summary: dict[str, Any]) -> list[str]:
    """Return warnings on sites whose image counts or updates were rejected or reduced."""
    notices = [
        f"Site {name} reported {n:,} training images; its weight was limited to {summary['weights'][name]:,}."
        for name, n in summary.get("capped", {}).items()
    ]
    for key, what in (("refused", "rejected"), ("shortened", "clipped: much larger than those of other sites")):
        for name, n in summary.get(key, {}).items():
            notices.append(f"{counted(n, 'update')} of site {name} {'was' if n == 1 else 'were'} {what}.")
    return notices


def share(value: float | None) -> int | None:
    """Return a share in millionths; None for None and nan."""
    return None if value is None or not np.isfinite(value) else round(1e6 * value)


def _clients(
    run: RunDirectory, evaluations: Sequence[dict[str, Any]], summary: dict[str, Any], missing: list[str]
) -> dict[str, list[Any]]:
    """Return columns with one entry per client; numbers are those of its last evaluation."""
    names, domains = run.manifest["clients"], run.manifest["domains"]
    columns: dict[str, list[Any]] = {"name": names, "domain": domains, "joined": [False] * len(names)}
    columns["train"], columns["test"] = _n_images(run, evaluations, missing)
    for key, metric in METRICS.items():
        last = _last(evaluations, f"client_{key}")
        columns[key] = [_number(metric, last.get(client)) for client in range(len(names))]
    for joined in summary.get("joined", {}).get("clients", []):
        client = names.index(joined["name"])
        columns["joined"][client] = True
        for key, metric in METRICS.items():
            columns[key][client] = _number(metric, joined.get(key))
    return columns


def _n_images(
    run: RunDirectory, evaluations: Sequence[dict[str, Any]], missing: list[str]
) -> tuple[list[int | None], list[int | None]]:
    """Return the numbers of training and test images of each client; real sites report them."""
    names = run.manifest["clients"]
    if run.is_deployed:
        train, test = run.manifest["deployment"]["train_images"], _last(evaluations, "n")
        return [train.get(name) or None for name in names], [test.get(client) for client in range(len(names))]
    try:
        clients = run.partition.clients
    except FedotpError as error:
        missing.append(str(error))
        return [None] * len(names), [None] * len(names)
    away = run.config.federation.without
    return (
        [None if client.name in away else len(client.train) for client in clients],
        [None if client.name in away else len(client.test) for client in clients],
    )


def _last(evaluations: Sequence[dict[str, Any]], what: str) -> dict[int, Any]:
    """Return the value `what` by client, from its last evaluation that has it."""
    return {
        client: value
        for record in evaluations
        if what in record
        for client, value in zip(record["clients"], record[what], strict=True)
    }


def _number(metric: Metric, value: float | None) -> float | None:
    return share(value) if metric.is_share else _short(value)


def _short(value: float | None) -> float | None:
    """Round to four digits, more than the page shows."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.4g}")


def _totals(evaluations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not evaluations:
        return {}
    last = evaluations[-1]
    spread = ("accuracy_std", "accuracy_worst_decile", "accuracy_min", "accuracy_pooled")
    return {key: share(last[key]) for key in spread} | {key: _number(m, last.get(key)) for key, m in METRICS.items()}


def _curve(evaluations: Sequence[dict[str, Any]], n_clients: int) -> dict[str, Any]:
    """Return accuracy over rounds: of all, and of `shown` clients, evenly spread if there are too many."""
    matrix = np.full((n_clients, len(evaluations)), np.nan)
    for i, record in enumerate(evaluations):
        matrix[record["clients"], i] = record["client_accuracy"]
    n_shown = min(n_clients, max(1, _MOST_POINTS // max(len(evaluations), 1)))
    shown = np.unique(np.linspace(0, n_clients - 1, n_shown).round().astype(np.int64))
    return {
        "round": [record["round"] for record in evaluations],
        "mean": [share(record["accuracy"]) for record in evaluations],
        "std": [share(record["accuracy_std"]) for record in evaluations],
        "min": [share(record["accuracy_min"]) for record in evaluations],
        "max": [share(max(record["client_accuracy"], default=None)) for record in evaluations],
        "loss": [_short(record.get("loss")) for record in evaluations],
        "shown": shown.tolist(),
        "clients": [[share(value) for value in matrix[client]] for client in shown],
    }


def _training(rounds: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    columns = {key: [record[key] for record in rounds] for key in ("round", "bytes_up", "bytes_down", "images")}
    columns["answered"] = [len(record["answered"]) for record in rounds]
    columns["sampled"] = [len(record["sampled"]) for record in rounds]
    for key in ("loss", "seconds"):
        columns[key] = [_short(record[key]) for record in rounds]
    if any("epsilon" in record for record in rounds):
        columns["epsilon"] = [_short(record.get("epsilon")) for record in rounds]
    return columns


def _sum(records: Sequence[dict[str, Any]], key: str) -> float:
    return round(sum(record[key] for record in records), 3)


def _confusion(run: RunDirectory, n_clients: int, n_classes: int, missing: list[str]) -> list[list[int]]:
    """Return flat triples of label, predicted class and count for each client; [] without predictions."""
    if not run.is_complete or (run.is_deployed and not run.has_predictions):
        return []  # not all sites share their predictions
    try:
        predictions = run.predictions()
    except FedotpError as error:
        missing.append(str(error))
        return []
    cells = (predictions.client * n_classes + predictions.label) * n_classes + predictions.predicted
    values, counts = np.unique(cells, return_counts=True)
    client, label, predicted = values // n_classes**2, values // n_classes % n_classes, values % n_classes
    triples = np.stack([label, predicted, counts], 1)
    ends = np.searchsorted(client, np.arange(n_clients + 1))
    return [triples[start:end].ravel().tolist() for start, end in itertools.pairwise(ends)]


def _joined_later(run: RunDirectory) -> list[dict[str, Any]]:
    """Return clients that joined after the run with `fedotp join`."""
    results = [read_json(path, _MOST_BYTES) for path in sorted(run.path.glob("joined/*/result.json"))]
    return [
        {
            "name": result["client"],
            "train": result["train_images"],
            "test": result["test_images"],
            "before": share(result["before"]["accuracy"]),
            "after": share(result["after"]["accuracy"]),
        }
        for result in results
    ]
