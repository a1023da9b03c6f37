"""Types of the columns that most modules work on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
RecordArray = npt.NDArray[np.void]
FloatArray = npt.NDArray[np.float64]
