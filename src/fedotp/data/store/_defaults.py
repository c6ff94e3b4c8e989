"""How images are encoded where nobody says otherwise."""

from typing import Literal

Storage = Literal["float16", "int8"]

STORAGE: Storage = "float16"
BATCH_SIZE = 64  # views in a step of the tower
