"""What each client of a run contributed, as it is written beside it; read without torch."""

from pathlib import Path
from typing import Any

from fedotp.errors import FedotpError
from fedotp.runs._directory import RunDirectory
from fedotp.runs._seal import read_sealed

VALUE_FORMAT = "fedotp-value-1"


def value_file(run: RunDirectory) -> Path:
    """Where it is."""
    return run.path / "value.json"


def read_value(run: RunDirectory) -> dict[str, Any] | None:
    """What `measure_plan` has written of a run; None where it has not."""
    if not (path := value_file(run)).is_file():
        return None
    content = read_sealed(path)
    if content.get("format") != VALUE_FORMAT:
        raise FedotpError(f"{path} is not of this version: it should say format {VALUE_FORMAT!r}")
    return content
