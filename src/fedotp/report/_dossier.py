"""A data protection dossier of a run of real sites: a template in the words of GDPR Art. 35, with the run's facts.

In `dossier.md`, a line that begins with `[if FACT]` or `[if not FACT]` is kept if the fact is true or false; `$NAME` is
replaced by a value.
"""

import math
import re
from datetime import date
from importlib.resources import files
from string import Template
from typing import Any

import fedotp
from fedotp._text import percent, printable
from fedotp.classifier import backbone_name
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory

_CONDITION = re.compile(r"\[if (not )?(\w+)\] ")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")


def make_dossier(directory: RunDirectory) -> str:
    """Return the dossier of a run as Markdown."""
    if not directory.is_deployed:
        raise FedotpError(f"{directory.path} was simulated; a dossier describes a run of `fedotp server`")
    with directory.reading():
        facts, values = _facts(directory)
    kept = []
    for line in files("fedotp.report").joinpath("dossier.md").read_text(encoding="utf-8").splitlines():
        condition = _CONDITION.match(line)
        if condition is None or facts[condition[2]] is not bool(condition[1]):
            kept.append(line[condition.end() if condition else 0 :])
    return Template("\n".join(kept) + "\n").substitute(values)


def _facts(directory: RunDirectory) -> tuple[dict[str, bool], dict[str, str]]:
    """Return the conditions of the template, and its values."""
    manifest, summary = directory.manifest, directory.summary if directory.is_complete else {}
    deployment, rounds = manifest["deployment"], list(directory.metrics("round"))
    answers = sum(len(record["answered"]) for record in rounds)
    final, secure = summary.get("final", {}), summary.get("secure", {})
    budget, none = directory.config.privacy.epsilon, "none" if summary else "unknown before the run ends"
    privacy = {**vars(directory.config.privacy), **summary.get("privacy", {})}
    epsilon = privacy["epsilon"] if summary else max((record.get("epsilon", 0.0) for record in rounds), default=0.0)
    facts = {
        "keys": bool(deployment["keys"]),
        "secure": bool(deployment["settings"]["secure"]),
        "private": privacy["unit"] != "none" and privacy["noise"] > 0,
        "central": privacy["unit"] == "site",
        # methods that keep a prompt of each site, and rules that choose among updates
        "average": directory.config.method.name not in ("pfedmoap", "promptfl-fedamp")
        and directory.config.server.rule in ("average", "bounded"),
        "scores": "accuracy" in final,
        "transcript": (directory.path / "transcript.jsonl").is_file(),
    }
    counts = deployment["train_images"]
    values: dict[str, Any] = {
        "title": directory.title,
        "version": fedotp.__version__,
        "today": date.today().isoformat(),
        "run": deployment["run"],
        "classes": ", ".join(manifest["data"]["classes"]),
        "method": f"{manifest['method']['title']} ({manifest['method']['reference']})",
        "done": len(rounds),
        "rounds": directory.config.federation.rounds,
        "started": manifest["started"],
        "backbone": backbone_name(manifest["backbone"]["name"]),
        "digest": manifest["backbone"]["digest"],
        "flower": manifest["flower"],
        "sites": ", ".join(f"{name} ({counts.get(name, 0):,} training images)" for name in manifest["clients"]),
        "images": f"{sum(counts.values()):,}",
        "kilobytes": f"{sum(record['bytes_up'] for record in rounds) / max(answers, 1) / 1000:,.0f}",
        "accuracy": percent(final.get("accuracy", math.nan)),
        "worst": percent(min((each["accuracy"] for each in summary.get("clients", [])), default=math.nan)),
        "sums": secure.get("sums", len(rounds)),
        "void": secure.get("void", "an unknown number"),
        "threshold": f"{100 * deployment['settings']['secure_threshold']:.0f} %",
        "unit": {"example": "training image", "group": "group of images (patient)"}.get(privacy["unit"], "site"),
        "neighbours": privacy.get("neighbours", "zero out one unit"),
        "epsilon": f"{epsilon:.3g}",
        "guess": f"{100 / (1 + math.exp(-epsilon)):.1f}",
        "inputs": "opened sums"
        if facts["secure"]
        else "private averages"
        if facts["central"]
        else "the sites' updates",
        "sender": "the server" if facts["central"] else "a site",
        "budget": f"epsilon {budget:g}; the run ends before it is exceeded" if budget else "no limit on epsilon",
        "signed": "signed by the sites" if facts["keys"] else "not signed, without keys",
        "unscored": "the sites reported no scores to the server" if summary else "the run has not ended",
        "epsilons": _listed({name: f"{each:.3g}" for name, each in privacy.get("clients", {}).items()}) or "all equal",
        **{name: f"{privacy[name]:g}" for name in ("delta", "noise", "clip")},
        **{name: _listed(summary.get(name, {})) or none for name in ("capped", "shortened", "refused", "faults")},
    }
    return facts, {name: _SPECIAL.sub(r"\\\1", printable(value)) for name, value in values.items()}


def _listed(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())
