"""The views of a run for its page."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedotp.report.page._gather import share
from fedotp.runs import RunDirectory, reading, summary_of_views

_WHAT = {
    "personal": "each client’s own test images",
    "global": "the whole test set",
    "base": "all test images of the classes trained on, shown to every client",
    "novel": "test images of classes nobody trained on, among their names",
    "neighbours": "test images of classes that a client has no training image of",
    "before joining": "clients that never trained, on their own test images",
    "after joining": "clients that never trained, when they have fitted what is theirs",
}
_MEANS = {
    "hm": "harmonic mean of base and novel",
    "hm3": "harmonic mean of personal, base and novel",
    "cm": "mean of personal and HM",
}


def gather_views(run: RunDirectory) -> list[dict[str, Any]]:
    """A row for each view and model with its curve over rounds, and for the means of some; [] where there are none."""
    with reading(run):
        return _gather(run)


def _gather(run: RunDirectory) -> list[dict[str, Any]]:
    tests, views = list(run.metrics("evaluation")), list(run.metrics("view"))
    found = summary_of_views(tests, views, run.manifest["clients"])
    if "views" not in found:
        return []
    own, *others = found["views"]
    rows = [_row(own, _curve(tests)), *(_row(view, _curve(_of(views, view))) for view in others)]
    for model, means in found.get("base_to_novel", {}).items():
        rows += [
            {"view": name.upper(), "model": model, "what": what, **_numbers(means[name])}
            for name, what in _MEANS.items()
        ]
    return rows


def _row(view: Mapping[str, Any], curve: dict[str, list[Any]]) -> dict[str, Any]:
    facts = {key: view[key] for key in ("view", "model", "classes", "images")}
    facts |= {"what": _WHAT.get(view["view"], ""), "clients": len(view["clients"]), "std": share(view["accuracy_std"])}
    return {**facts, **_numbers(view), **curve}


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    shares = {key: share(values[key]) for key in ("last", "best", "last_five")}
    return {**shares, "best_round": values["best_round"], "evaluations": values["evaluations"]}


def _of(records: Sequence[Mapping[str, Any]], view: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [record for record in records if all(record[key] == view[key] for key in ("view", "model"))]


def _curve(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    by_round = {record["round"]: share(record["accuracy"]) for record in records}
    return {"round": list(by_round), "accuracy": list(by_round.values())}
