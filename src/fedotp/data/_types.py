"""Types of data sets, partitions and the token store."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
OnProgress = Callable[[str, int, int], object]  # the step, the number done, the total
