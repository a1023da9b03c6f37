"""Converts Arrow arrays to the values that SQLite has.

SQLite has signed 64-bit integers, floats, text and bytes. Parquet and Arrow have many more types, and a table may have
other types in another version of nsys: unsigned integers, dictionaries, booleans, times. Arrays from files are checked
before use: offsets beyond the end of a buffer would end the program.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.report.table_reader import NULL

_LARGEST = np.iinfo(np.int64).max
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds of each unit of time."""


def check_values(array: pa.Array) -> pa.Array:
    """Return an array from a file without its dictionary, with all text as strings and all bytes as pa.binary().

    Strings may have bytes that are not UTF-8. Raises pa.ArrowInvalid if the array is damaged. All other functions take
    what this returns.
    """
    if types.is_dictionary(array.type):
        array.indices.validate(full=True)
        return check_values(array.dictionary).take(array.indices)
    kind = array.type
    is_text = types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view"
    if types.is_large_string(kind):
        array = array.cast(pa.large_binary())  # without a check that it is UTF-8
    elif is_text:
        array = array.cast(pa.binary() if types.is_string(kind) else pa.binary_view())
    if is_text or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        array = array.cast(pa.binary())
    array.validate(full=True)
    return array.view(pa.string()) if is_text else array


def read_integers(array: pa.Array) -> IntArray:
    """Return a new array of integers: floats as SQLite casts them, times in ns, NULL for other values."""
    if types.is_floating(array.type):
        return _truncate(array.to_numpy(zero_copy_only=False).astype(np.float64))
    if types.is_decimal(array.type):
        return np.array([NULL if value is None else _make_signed(int(value)) for value in array.to_pylist()], np.int64)
    whole = _read_whole(array)
    if whole is None:
        return np.full(len(array), NULL, np.int64)
    return np.array(whole.fill_null(NULL).to_numpy(zero_copy_only=False), np.int64)


def read_reals(array: pa.Array) -> FloatArray:
    """Return a new array of floats; other values are NaN."""
    if types.is_decimal(array.type):
        return np.array([np.nan if value is None else float(value) for value in array.to_pylist()], np.float64)
    numbers = array if types.is_floating(array.type) else _read_whole(array)
    if numbers is None:
        return np.full(len(array), np.nan)
    return np.array(numbers.to_numpy(zero_copy_only=False), np.float64)  # of nulls, to_numpy makes NaN


def read_texts(array: pa.Array) -> pa.Array:
    """Return strings, with U+FFFD for bytes that are not UTF-8 (nsys writes names in the encoding of a locale)."""
    if not types.is_string(array.type):
        return pa.nulls(len(array), pa.string())
    as_bytes = array.cast(pa.binary())
    try:
        return as_bytes.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [value if value is None else value.decode("utf-8", "replace") for value in as_bytes.to_pylist()]
        return pa.array(decoded, pa.string())


def read_blobs(array: pa.Array) -> pa.Array:
    """Return bytes, also the bytes of text."""
    if types.is_string(array.type) or types.is_binary(array.type):
        return array.cast(pa.binary())
    return pa.nulls(len(array), pa.binary())


READ_VALUES: dict[pa.DataType, Callable[[pa.Array], pa.Array | FloatArray]] = {
    pa.string(): read_texts,
    pa.binary(): read_blobs,
    pa.float64(): read_reals,
}
"""What reads the values of each type."""


def read_objects(array: pa.Array) -> list[object]:
    """Return values of any type: int, float, str, bytes or None."""
    if types.is_floating(array.type) or types.is_binary(array.type):
        return array.to_pylist()
    if types.is_decimal(array.type):
        return [None if value is None else _read_decimal(value) for value in array.to_pylist()]
    if types.is_string(array.type):
        return read_texts(array).to_pylist()
    whole = _read_whole(array)
    return [None] * len(array) if whole is None else whole.to_pylist()


def select_among(array: pa.Array, values: list[int]) -> pa.Array:
    """Return whether each value is one of the given integers, like IN in SQL."""
    if types.is_floating(array.type) or types.is_decimal(array.type):
        return pa.array(np.isin(read_reals(array), np.array(values, np.int64)))
    whole = _read_whole(array)
    if whole is None:
        return pa.array(np.zeros(len(array), np.bool_))
    return pc.is_in(whole, pa.array(values, pa.int64()))


def _read_whole(array: pa.Array) -> pa.Array | None:
    """Return 64-bit integers; None for other types. SQLite stores unsigned 64-bit integers by their bits."""
    kind = array.type
    if types.is_uint64(kind):
        return array.view(pa.int64())
    if types.is_integer(kind) or types.is_boolean(kind):
        return array.cast(pa.int64())
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time(kind):
        unit = _NS[kind.unit]
    elif types.is_date32(kind):
        unit = 86400 * _NS["s"]
    elif types.is_date64(kind):
        unit = _NS["ms"]
    else:
        return None
    return pc.multiply(array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64()), unit)


def _truncate(values: FloatArray) -> IntArray:
    with np.errstate(invalid="ignore"):  # values out of range are set below
        whole = values.astype(np.int64)
    whole[values >= 2.0**63] = _LARGEST
    whole[~(values >= -(2.0**63))] = NULL  # also NaN
    return whole


def _make_signed(value: int) -> int:
    """Keep the bits of an unsigned integer, as SQLite does; limit larger ones as SQLite limits floats that it casts."""
    if _LARGEST < value < 2**64:
        return value - 2**64
    return min(max(value, NULL), _LARGEST)


def _read_decimal(value: Decimal) -> int | float:
    return _make_signed(int(value)) if value == int(value) else float(value)
