"""What is known of a run's privacy from above and from below, for its page."""

import math
from collections.abc import Mapping
from typing import Any

from fedotp.errors import FedotpError
from fedotp.runs import RunDirectory, reading


def gather_privacy(run: RunDirectory) -> dict[str, Any] | None:
    """The findings of `fedotp audit` and `fedotp probe` beside the account; None where nobody asked for either."""
    try:
        with reading(run):
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
    bounds = [
        {
            "what": str(name),
            **{key: _number(bound[key]) for key in ("epsilon", "delta", "confidence")},
            **{key: int(bound[key]) for key in ("canaries", "included", "guesses", "right")},
        }
        for name, bound in found["bounds"].items()
    ]
    if not bounds:
        raise ValueError("an audit without a bound")
    upper = found["upper"]
    return {
        "unit": str(found["unit"]),
        "kind": str(found["kind"]),
        "upper": None if upper is None else _number(upper),
        "broken": bool(found["broken"]),
        "bounds": bounds,
    }


def _probe(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{key: int(found[key]) for key in ("members", "others")},
        "confidence": _number(found["confidence"]),
        "fair": bool(found["fair"]),
        "attacks": [_attack(attack) for attack in (*found["attacks"], found["control"])],
        "allowed": None if found["allowed"] is None else _allowed(found["allowed"]),
    }


def _allowed(found: Mapping[str, Any]) -> dict[str, Any]:
    """The most that the account allows any attack."""
    rates = {str(share): _number(rate) for share, rate in found["tpr"].items()}
    return {"epsilon": _number(found["epsilon"]), "auc": _number(found["auc"]), "tpr": rates}


def _attack(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "target": str(found["target"]),
        "score": str(found["score"]),
        "auc": _estimate(found["auc"]),
        "tpr": {str(share): _estimate(rate) for share, rate in found["tpr"].items()},
    }


def _estimate(found: Mapping[str, Any]) -> list[float]:
    return [float(f"{_number(found[key]):.4g}") for key in ("value", "low", "high")]


def _number(value: Any) -> float:
    """A number that a page can show."""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value!r} is no number to show")
    return number
