"""Python imports this by itself when it starts: a process whose clock is as far ahead as a file says, at any moment."""

import datetime
import os
import time
from pathlib import Path
from typing import Any

_real_time, _RealDatetime = time.time, datetime.datetime


def _ahead() -> float:
    try:
        return float(Path(os.environ["CAMPAIGN_CLOCK"]).read_text())
    except (KeyError, OSError, ValueError):  # no such file, or it is being written
        return 0.0


def _time() -> float:
    return _real_time() + _ahead()


class _Kind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _RealDatetime)


class _Datetime(_RealDatetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.fromtimestamp(_time(), tz)


if "CAMPAIGN_CLOCK" in os.environ:
    time.time, datetime.datetime = _time, _Datetime  # type: ignore[misc]
