"""The interface of a reader of tables: Database has one for each kind of export."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.errors import ReportError

T = TypeVar("T")

NULL = np.iinfo(np.int64).min
"""Stands for NULL, and for every value that is not a number, in columns of integers."""

SUFFIXES = (".parquet", ".arrow", ".arrows")
"""Suffixes of files of tables in folders; other programs use the last one for Arrow streams."""

Among = Mapping[str, Collection[int]]
"""A condition on rows: each of these columns holds one of its integers."""


class TableReader(Protocol):
    """Tables of one export. Callers ask only for columns that exist; what cannot be read raises ReportError.

    Rows are in the order of the file. Values are as in SQLite: integers are signed and have 64 bits.
    """

    tables: frozenset[str]

    def list_columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table that exists."""

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table that exists, without reading a column."""

    def read_objects(self, table: str, columns: Sequence[str], among: Among) -> list[list[Any]]:
        """Read columns of values of any kind: int, float, str, bytes or None."""

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        """Read columns that the caller may change. Real numbers lose their fraction; other values are `NULL`."""

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        """Return what `convert` makes of the same columns of each block of rows, which are gone when it returns."""

    def read_texts(self, table: str, column: str) -> pa.ChunkedArray:
        """Read strings; other values are null."""

    def read_blobs(self, table: str, column: str) -> pa.ChunkedArray:
        """Read bytes, also those of text; other values are null."""

    def read_reals(self, table: str, column: str) -> FloatArray:
        """Read floating point numbers; other values are not a number (NaN)."""

    def close(self) -> None:
        """Close the files."""


def make_damage_error(path: Path, error: Exception | str, table: str = "") -> ReportError:
    """Return the error of a file, or a table in it, that cannot be read."""
    where = f"table {table} " if table else ""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
    return ReportError(f"{path}: {where}cannot be read ({lines[0].rstrip('.')}); export the report again")


def make_unreadable_error(path: Path, error: OSError) -> ReportError:
    """Return the error of a file that the system refuses to open or read."""
    return ReportError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions")
