"""The rounds of a run as a table: what was trained and what was evaluated, a row for each round."""

import csv
import io
from numbers import Real
from typing import Any

from fedotp.runs._directory import RunDirectory

_BOTH = {"round": "train", "evaluation": "test"}  # what begins the names of numbers that both kinds of line have
_IN_BOTH = ("loss", "seconds")


def rounds_of(run: RunDirectory) -> list[dict[str, Any]]:
    """A row for each round, by round: `round`, then every single number that metrics.jsonl has of it.

    Round 0 is the evaluation before training. Loss and seconds are `train_loss`, `test_loss` and so on; accuracies in
    other views are named after the view and the model. A number that is not known of a round is left out.
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
    """The rows as CSV with titles; what is not known is empty."""
    titles = list(dict.fromkeys(key for row in rows for key in row)) or ["round"]
    text = io.StringIO()
    writer = csv.DictWriter(text, titles, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
