"""What a run has found, in a few digests: equal for two runs whose numbers are equal to the last bit."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedotp.config import Config, flatten
from fedotp.federation import state_digest
from fedotp.runs._directory import PLACES, RunDirectory, reading

_TIMES = "seconds"


def digests_of(run: RunDirectory) -> dict[str, str]:
    """SHA-256 of each part of a complete run, without times and places."""
    with reading(run):
        found = {
            "configuration": settings_digest(run.config),
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


def settings_digest(config: Config) -> str:
    """Of all settings but those that say where things are."""
    return _digest({key: value for key, value in flatten(config).items() if key not in PLACES})


def _timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != _TIMES}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
