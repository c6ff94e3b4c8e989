"""What audits and probes leave in a run, with invented numbers."""

from typing import Any


def an_audit(upper: float | None = 2.0, lower: float = 0.9) -> dict[str, Any]:
    bound = {"epsilon": lower, "delta": 1e-5, "confidence": 0.95, "canaries": 500, "included": 251}
    bound |= {"guesses": 250, "right": 190}
    broken = upper is not None and lower > upper
    return {"unit": "example", "upper": upper, "bound": bound, "rounds": 4, "broken": broken}


def a_probe(fair: bool = True) -> dict[str, Any]:
    def attack(target: str, score: str, auc: float) -> dict[str, Any]:
        near = {"value": auc, "low": auc - 0.03, "high": auc + 0.03}
        rates = {"0.01": {"value": 0.02, "low": 0.0, "high": 0.05}, "0.1": {"value": 0.16, "low": 0.1, "high": 0.2}}
        return {"target": target, "score": score, "separation": {"auc": near, "tpr": rates, "by_client": [near, None]}}

    return {
        "clients": ["north", "south"],
        "members": 1234,
        "others": 567,
        "round": 4,
        "confidence": 0.95,
        "attacks": [attack("personal", "loss", 0.612), attack("global", "learned", 0.538)],
        "control": attack("zero_shot", "loss", 0.501 if fair else 0.6)["separation"],
        "fair": fair,
        "allowed": {"epsilon": 2.0, "delta": 1e-5, "auc": 0.88, "tpr": {"0.01": 0.074, "0.1": 0.739}},
    }
