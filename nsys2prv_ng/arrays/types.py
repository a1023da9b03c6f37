"""Types of the columns that most modules work on, and how to take values of a column at indices.

Kernels can be compiled before they are called (runtime/precompile.py), so the annotations of their arguments say all
that matters for that: arrays are contiguous, and have one dimension unless their type says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float64]

Integers = npt.NDArray[np.integer[Any]]
"""Integers of any width."""

IntTable = Annotated[IntArray, 2]
FloatTable = Annotated[FloatArray, 2]
ByteTable = Annotated[ByteArray, 2]
BoolTable = Annotated[BoolArray, 2]
Int32Table = Annotated[Int32Array, 2]
"""Arrays with two dimensions."""
IntCube = Annotated[IntArray, 3]
"""Arrays with three dimensions."""


class Index(NamedTuple):
    """Says what the integers of a column are indices of, so that those of a file of other people can be checked.

    `of`: how many there are, or the name of what has them: a field of the same object, or of one that contains it.
    `least`: -1 if an index may be missing. A NamedTuple with such columns has arrays of equal length.
    """

    of: str | int
    least: int = 0


class OneFor(NamedTuple):
    """Says that a column has a value for each item of another field, instead of one for each row."""

    of: str


PlaceColumn = Annotated[IntArray, Index("places.all")]
"""Places of the report that contains the column."""

ReadOnlyInts = Annotated[IntArray, "read-only"]
ReadOnlyInts32 = Annotated[Int32Array, "read-only"]
ReadOnlyBytes = Annotated[ByteArray, "read-only"]
"""Arrays that cannot be written, such as files that are mapped."""


def pick(column: NDArray[Any], index: NDArray[np.integer[Any]], missing: Any) -> NDArray[Any]:
    """Return column[index] (n), and `missing` where an index is -1 or the length of the column."""
    return np.append(column, missing)[index]


def put(values: Any, index: Any, size: int, missing: int = -1) -> IntArray:
    """Return integers (n = size): `values` at an index or a mask, and `missing` elsewhere. The inverse of `pick`."""
    found = np.full(size, missing, np.int64)
    found[index] = values
    return found


def mark(index: NDArray[Any], size: int) -> BoolArray:
    """Return a mask (n = size) that is true at an index."""
    marks = np.zeros(size, np.bool_)
    marks[index] = True
    return marks


def sum_at(values: NDArray[Any], index: NDArray[Any], size: int) -> IntArray:
    """Return integers (n = size): the sum of the values of each index."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, index, values)
    return sums


def find_most_at(values: NDArray[Any], index: NDArray[Any], size: int, least: int) -> IntArray:
    """Return integers (n = size): the largest of the values of each index, and at least `least`."""
    largest = np.full(size, least, np.int64)
    np.maximum.at(largest, index, values)
    return largest
