"""What every kind of export is asked for: the rooms that Database has, one for each kind of file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.errors import ReportError

T = TypeVar("T")

NULL = np.iinfo(np.int64).min
"""Stands for NULL, and for whatever is not a number, in columns of integers."""

TEXT_BLOCK_ROWS = 1 << 13
"""Texts may be large: these of a thousand bytes are 8 MB."""

Among = Mapping[str, Collection[int]]
"""A condition on rows: in each of these columns one of its integers."""


class TableReader(Protocol):
    """Tables of one export. All columns asked for are there; whatever cannot be read raises ReportError.

    Rows come in the order of the file. Values are those that SQLite has: integers are signed, of 64 bits.
    """

    tables: frozenset[str]

    def list_columns(self, table: str) -> frozenset[str]:
        """Names of the columns of a table that is there."""

    def count_rows(self, table: str) -> int:
        """Number of rows of a table that is there, of which no column is read."""

    def read_frame(self, table: str, columns: Sequence[str], among: Among) -> pd.DataFrame:
        """Values of any kind, of a column of objects each: int, float, str, bytes or None."""

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        """Columns that the caller may change. Real numbers lose their fraction, what is no number is `NULL`."""

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        """What `convert` makes of the same columns of some rows after the other, which are gone when it returns."""

    def read_texts(self, table: str, column: str) -> pa.ChunkedArray:
        """Strings; what is no text is null."""

    def read_texts_by_block(self, table: str, column: str, convert: Callable[[pa.Array], T]) -> list[T]:
        """What `convert` makes of the strings of some rows after the other, at most `TEXT_BLOCK_ROWS` at once."""

    def read_blobs(self, table: str, column: str) -> pa.ChunkedArray:
        """Bytes, of text as well; what is neither is null."""

    def read_reals(self, table: str, column: str) -> FloatArray:
        """Floating point numbers; what is no number is not a number."""

    def close(self) -> None:
        """Let go of the files."""


def make_damage_error(path: Path, error: Exception | str, table: str = "") -> ReportError:
    """What to tell of a file, or a table of it, that cannot be read."""
    where = f"table {table} " if table else ""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
    return ReportError(f"{path}: {where}cannot be read ({lines[0].rstrip('.')}); export the report again")


def make_unreadable_error(path: Path, error: OSError) -> ReportError:
    """What to tell of a file that the system does not give."""
    return ReportError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions")
