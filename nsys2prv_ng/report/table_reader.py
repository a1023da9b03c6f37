"""Defines the interface of table readers: Database has one for each format of exports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError

T = TypeVar("T")

NULL = np.iinfo(np.int64).min
"""Stands for NULL, and for every value that is not a number, in integer columns."""

Among = Mapping[str, Collection[int]]
"""Condition on rows: the value in each of these columns is one of its integers."""


class TableReader(Protocol):
    """Reader of the tables of one export. Callers ask only for columns that exist; damage raises ReportError.

    Rows are in the order of the file. Values are as in SQLite: integers are signed and have 64 bits.
    """

    tables: frozenset[str]

    def list_columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table that exists."""

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table that exists, without reading a column."""

    def read_objects(self, table: str, columns: Sequence[str], among: Among) -> list[list[Any]]:
        """Read columns of values of any type: int, float, str, bytes or None."""

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        """Read integer columns that the caller may change. Floats lose their fraction; other values are `NULL`."""

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        """Return what `convert` makes of the same columns of each block of rows. Blocks last only for the call."""

    def read_values(self, table: str, column: str, kind: pa.DataType) -> pa.ChunkedArray:
        """Read strings, bytes (also the bytes of text) or floats: pa.string(), pa.binary() or pa.float64().

        Other values are null; in floats, NaN means the same.
        """

    def close(self) -> None:
        """Close the files."""


def make_damage_error(path: Path, error: Exception | str, table: str = "") -> ReportError:
    """Return the error of a file, or a table in it, that cannot be read."""
    where = f"table {table} " if table else ""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ReportError(f"{path}: {where}cannot be read ({lines[0].rstrip('.')}); export the report again")


def make_unreadable_error(path: Path, error: OSError) -> ReportError:
    """Return the error of a file that the system refuses to open or read."""
    return ReportError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions")
