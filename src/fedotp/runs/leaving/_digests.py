"""What a run has found, in a few digests: equal for two runs whose numbers are equal to the last bit."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedotp.federation import state_digest
from fedotp.runs._directory import PLACES, RunDirectory, reading

_TIMES = "seconds"


def digests_of(run: RunDirectory) -> dict[str, str]:
    """SHA-256 of each part of a complete run, without times and places."""
    with reading(run):
        found = {
            "configuration": _digest(_settings(run)),
            "backbone": run.manifest["backbone"]["digest"],
            "data": run.manifest["data"]["content"],
            "partition": run.manifest["partition"],
            "state": state_digest(run.checkpoint, run.kept),
            "metrics": _digest([_timeless(record) for record in run.metrics()]),
            "summary": _digest(_timeless(run.summary)),
        }
        if run.has_predictions:
            found["predictions"] = _digest({name: column.tolist() for name, column in vars(run.predictions()).items()})
        return found


def _settings(run: RunDirectory) -> dict[str, Any]:
    """All settings that there were when the run began, but those that say where things are."""
    tables = run.manifest.get("config", run.config.to_dict())
    sections = {key: table if isinstance(table, dict) else {"": table} for key, table in tables.items()}
    flat = {f"{section}.{key}": value for section, table in sections.items() for key, value in table.items()}
    return {key: value for key, value in flat.items() if key not in PLACES}


def _timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != _TIMES}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
