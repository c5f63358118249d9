"""Names for arrays by what they hold, so that signatures can say it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Words = NDArray[np.uint64]  # random bits, and keys
AnyArray = NDArray[Any]  # of whatever type the caller has

Numbers = float | Floats  # one for all, or an array of them
Matrix = Any  # a float64 array with two axes, C-contiguous; or a scipy.sparse CSR array
