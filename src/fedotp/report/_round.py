"""Numbers for a page: as many digits as anyone reads."""

from typing import Any

import numpy as np


def rounded(value: Any) -> Any:
    """`value` with every float in it at four significant digits; arrays and tuples become lists."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    return value
