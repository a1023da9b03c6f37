"""Takes values of a column at indices of which some are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pick(column: NDArray[Any], index: NDArray[np.integer[Any]], missing: Any) -> NDArray[Any]:
    """Return column[index] (n), and `missing` where an index is -1 or the length of the column."""
    return np.append(column, missing)[index]
