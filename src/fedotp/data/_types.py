"""Types that data sets, partitions and the token store share."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
OnProgress = Callable[[str, int, int], object]  # what is being done, how many are done, of how many
