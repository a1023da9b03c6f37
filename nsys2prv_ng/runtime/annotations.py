"""What annotations of a kernel's arguments may say beside numpy's types (runtime/signatures.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

READ_ONLY = "read-only"
"""Marks an array that cannot be written."""


def make_records(size: int, fields: Iterable[str]) -> npt.NDArray[np.void]:
    """Return an array of records whose fields are int64."""
    records: npt.NDArray[Any] = np.recarray(size, [(name, np.int64) for name in fields])
    return records
