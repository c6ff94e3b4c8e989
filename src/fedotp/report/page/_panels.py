"""Optional parts of the page: views, and upper and lower bounds of privacy."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedotp.errors import FedotpError
from fedotp.federation.testing import ZERO_SHOT
from fedotp.report.page._gather import share
from fedotp.runs.directory import RunDirectory, summary_of_views

_WHAT = {
    "personal": "each client’s own test images",
    "global": "the whole test set",
    "base": "all test images of the base classes, for every client",
    "novel": "test images of novel classes, with their names only",
    "neighbours": "test images of classes without training images of the client",
    "before joining": "own test images of held-out clients, before joining",
    "after joining": "own test images of held-out clients, after fitting private parameters",
}
_MEANS = {
    "hm": "harmonic mean of base and novel",
    "hm3": "harmonic mean of personal, base and novel",
    "cm": "mean of personal and HM",
}


def gather_views(run: RunDirectory) -> list[dict[str, Any]]:
    """Return a row for each view and model with its curve over rounds, and rows for their means; [] without views."""
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


def gather_privacy(run: RunDirectory) -> dict[str, Any] | None:
    """Return the findings of `fedotp audit`, also with --probe; None if there are none."""
    try:
        with run.reading():
            audit, probe = run.finding("audit"), run.finding("probe")
            if audit is None and probe is None:
                return None
            return {
                "audit": None if audit is None else _audit(audit),
                "probe": None if probe is None else _probe(probe),
                "problem": None,
            }
    except FedotpError as error:
        return {"audit": None, "probe": None, "problem": str(error)}


def _audit(found: Mapping[str, Any]) -> dict[str, Any]:
    bound, upper = found["bound"], found["upper"]
    return {
        "unit": str(found["unit"]),
        "upper": None if upper is None else _number(upper),
        "broken": bool(found["broken"]),
        **{key: _number(bound[key]) for key in ("epsilon", "delta", "confidence")},
        **{key: int(bound[key]) for key in ("canaries", "included", "guesses", "right")},
    }


def _probe(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: int(found[key]) for key in ("members", "others")},
        "confidence": _number(found["confidence"]),
        "fair": bool(found["fair"]),
        "attacks": [_attack(**attack) for attack in found["attacks"]] + [_attack(ZERO_SHOT, "loss", found["control"])],
        "allowed": None if found["allowed"] is None else _allowed(found["allowed"]),
    }


def _allowed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accountant's limits of any attack."""
    rates = {str(share): _number(rate) for share, rate in found["tpr"].items()}
    return {"epsilon": _number(found["epsilon"]), "auc": _number(found["auc"]), "tpr": rates}


def _attack(target: str, score: str, separation: Mapping[str, Any]) -> dict[str, Any]:
    rates = {str(share): _estimate(rate) for share, rate in separation["tpr"].items()}
    return {"target": str(target), "score": str(score), "auc": _estimate(separation["auc"]), "tpr": rates}


def _estimate(found: Mapping[str, Any]) -> list[float]:
    return [float(f"{_number(found[key]):.4g}") for key in ("value", "low", "high")]


def _number(value: Any) -> float:
    """Convert to a finite number."""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value!r}: must be a finite number")
    return number
