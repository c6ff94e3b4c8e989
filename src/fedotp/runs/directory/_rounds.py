"""The results of a run, read without torch: its rounds as a table, and its views.

Views are summarised after the last round, after the best, and over the last five rounds, always all three: the best is
chosen on the data on which it is reported, and the last is a single round.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from statistics import fmean, harmonic_mean
from typing import Any

from fedotp.federation import METRICS
from fedotp.runs.directory._directory import RunDirectory

_BOTH = {"round": "train", "evaluation": "test"}  # prefix of numbers that both kinds of line have
_IN_BOTH = ("loss", "seconds")
_LAST = 5  # rounds; the mean of the evaluations in them is reported

Series = dict[int, float]  # by round, in ascending order


def rounds_of(run: RunDirectory) -> list[dict[str, Any]]:
    """Return a row for each round: `round`, then all scalars of metrics.jsonl, if known.

    Round 0 is the evaluation before training. Loss and seconds are named `train_loss`, `test_loss` and so on;
    accuracies in other views are named after the view and the model.
    """
    rows: dict[int, dict[str, Any]] = {}
    for record in run.metrics():
        row = rows.setdefault(record["round"], {"round": record["round"]})
        if record["kind"] == "view":
            row[f"{record['view']} by {record['model']} model"] = record["accuracy"]
            continue
        for key, value in record.items():
            if isinstance(value, Real) and key != "round":
                row[f"{_BOTH[record['kind']]}_{key}" if key in _IN_BOTH else key] = value
    return [rows[number] for number in sorted(rows)]


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV with titles; unknown values are empty."""
    titles = list(dict.fromkeys(key for row in rows for key in row)) or ["round"]
    text = io.StringIO()
    writer = csv.DictWriter(text, titles, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def summary_of_views(
    evaluations: Iterable[Mapping[str, Any]], views: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, Any]:
    """Compute the parts of a summary that follow from metrics.jsonl; `names` are those of the clients.

    `last_five` is for the clients' own tests; `views` has an entry for each view and model; `base_to_novel` exists if a
    model was evaluated on base and novel classes.
    """
    tests: list[Mapping[str, Any]] = []  # the clients' own tests as a view; an image of several clients counts for each
    for record in evaluations:
        classes, images = len(record["class_accuracy"]), sum(record["n"])
        tests.append({**record, "view": "personal", "model": "personal", "classes": classes, "images": images})
    own = {record["round"]: record["accuracy"] for record in tests}
    records: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in views:
        records.setdefault((record["view"], record["model"]), []).append(record)
    series = {key: {record["round"]: record["accuracy"] for record in some} for key, some in records.items()}
    found: dict[str, Any] = {"last_five": _last_five(own)} if own else {}
    if records:
        found["views"] = [_entry(some, names) for some in [tests, *records.values()]]
    protocol = {
        "personal": (own, series.get(("base", "personal")), series.get(("novel", "personal"))),
        "global": (
            series.get(("personal", "global")),
            series.get(("global", "global")),
            series.get(("novel", "global")),
        ),
    }
    both = {
        model: base_to_novel(local, base, novel)
        for model, (local, base, novel) in protocol.items()
        if local and base and novel
    }
    return found | ({"base_to_novel": both} if both else {})


def base_to_novel(local: Series, base: Series, novel: Series) -> dict[str, dict[str, float]]:
    """Compute the summaries of the literature, over the rounds that have all three.

    hm: harmonic mean of base and novel; hm3: of all three; cm: mean of local and hm. Accuracies are averaged over
    clients, then combined, then averaged over rounds.
    """
    rounds = [round_ for round_ in base if round_ in local and round_ in novel]
    each = {"local": local, "base": base, "novel": novel}
    numbers = {name: {r: series[r] for r in rounds} for name, series in each.items()}
    numbers["hm"] = {r: harmonic_mean([base[r], novel[r]]) for r in rounds}
    numbers["hm3"] = {r: harmonic_mean([local[r], base[r], novel[r]]) for r in rounds}
    numbers["cm"] = {r: (local[r] + numbers["hm"][r]) / 2 for r in rounds}
    return {name: _over_rounds(series) for name, series in numbers.items()}


def _entry(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return a view: its description, its numbers after the last round, and those over rounds."""
    last = records[-1]
    one_for_all = last["model"] == "global" and last["view"] in ("global", "novel")
    clients = ["all"] if one_for_all else [names[client] for client in last["clients"]]
    return {
        **{key: last[key] for key in ("view", "model", "classes", "images", "round")},
        "accuracy_std": last["accuracy_std"],
        **{key: last[key] for key in METRICS if key in last},
        "clients": dict(zip(clients, last["client_accuracy"], strict=True)),
        "domains": last["domains"],
        **_over_rounds({record["round"]: record["accuracy"] for record in records}),
    }


def _over_rounds(series: Series) -> dict[str, float]:
    """Return last, best and mean over the last five rounds of a number."""
    best = max(series, key=lambda round_: series[round_])
    return {
        "last": series[max(series)],
        "best": series[best],
        "best_round": best,
        "last_five": _last_five(series)["accuracy"],
        "evaluations": len(series),
    }


def _last_five(series: Series) -> dict[str, float]:
    """Return the mean of the evaluations in the last five rounds, without that before the first round."""
    end = max(series)
    last = [value for round_, value in series.items() if round_ > max(0, end - _LAST) or round_ == end]
    return {"accuracy": fmean(last), "evaluations": len(last)}
