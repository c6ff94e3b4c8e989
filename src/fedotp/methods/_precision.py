"""The precision of the text tower's computation."""

from typing import Literal

Precision = Literal["float32", "bfloat16", "float64"]
PRECISION: Precision = "float32"
