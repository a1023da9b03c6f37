"""Reads an export to a folder with a file for each table: TABLE.parquet (parquetdir) or TABLE.arrow (arrowdir).

Only the files of requested tables are opened, and only the requested columns are read, one block of rows after the
other. Nothing is mapped into memory: if someone truncates the file, touching a map kills the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report import arrow_values
from nsys2prv_ng.report.formats import ARROW, FOLDER_FORMATS, PARQUET, TABLE_SUFFIXES
from nsys2prv_ng.report.table_reader import Among, make_damage_error, make_unreadable_error

_PARQUET = PARQUET.first_bytes
_ARROW_FILE, _ARROW_STREAM = ARROW.first_bytes
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_BLOCK_ROWS = 1 << 17

T = TypeVar("T")
Block = dict[str, pa.Array]
"""Some rows of a table: columns by name."""


class TableFolder:
    """TableReader of a folder. Raises ReportError for a folder without tables, or with files in two formats."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = _find_files(path)
        self.tables = frozenset(self._files)

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def list_columns(self, table: str) -> frozenset[str]:
        with _open(self._files[table]) as file:
            names = _read_column_names(file)
            if len(set(names)) < len(names):
                raise pa.ArrowInvalid("two columns have one name")
            return frozenset(names)

    def count_rows(self, table: str) -> int:
        with _open(self._files[table]) as file:
            if _read_start(file).startswith(_PARQUET):
                return int(pq.ParquetFile(file).metadata.num_rows)
            return sum(batch.num_rows for batch in _read_arrow_batches(file, _read_column_names(file)[:1]))

    def read_objects(self, table: str, columns: Sequence[str], among: Among) -> list[list[Any]]:
        def values(block: Block) -> list[list[object]]:
            rows = pa.table(block)
            for name, wanted in among.items():
                rows = rows.filter(arrow_values.select_among(rows[name].combine_chunks(), list(wanted)))
            return [arrow_values.read_objects(rows[name].combine_chunks()) for name in columns]

        parts = self._read(table, [*columns, *among], values)
        # NaN is NULL in SQLite, and differs from itself.
        return [[v if v == v else None for part in parts for v in part[i]] for i in range(len(columns))]

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        parts = self._read(table, columns, lambda block: [arrow_values.read_integers(block[name]) for name in columns])
        by_column = [[part[i] for part in parts] for i in range(len(columns))]
        del parts
        joined = []
        while by_column:  # one column after the other, so that only one is in memory twice
            joined.append(np.concatenate(by_column.pop(0) or [np.zeros(0, np.int64)]))
        return joined

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        return self._read(
            table, columns, lambda block: convert([arrow_values.read_integers(block[name]) for name in columns])
        )

    def read_values(self, table: str, column: str, kind: pa.DataType) -> pa.ChunkedArray:
        parts = self._read(table, [column], lambda block: arrow_values.READ_VALUES[kind](block[column]))
        return pa.chunked_array(parts, kind)

    def _read(self, table: str, columns: Sequence[str], convert: Callable[[Block], T]) -> list[T]:
        """Return what `convert` makes of each block of rows."""
        with _open(self._files[table]) as file:
            return [convert(block) for block in _read_blocks(file, list(dict.fromkeys(columns)))]


def _find_files(folder: Path) -> dict[str, Path]:
    """Return the file of each table."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise make_unreadable_error(folder, error) from None
    if not entries:
        raise ReportError(f"{folder}: the folder is empty; export the report again")
    files = [path for path in entries if path.suffix in TABLE_SUFFIXES and not path.name.startswith(".")]
    if not files:
        names = " or ".join(f"TABLE{format.table_suffixes[0]}" for format in FOLDER_FORMATS)
        raise ReportError(f"{folder}: is a folder, but holds no tables of an export ({names}); name the reports in it")
    first_by_suffix = {path.suffix: path.name for path in reversed(files)}
    if len(first_by_suffix) > 1:
        raise ReportError(
            f"{folder}: holds tables of several exports ({', '.join(sorted(first_by_suffix.values()))});"
            " export the report again into a folder of its own"
        )
    return {path.stem: path for path in files}


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open the file of a table; turn every error while reading it into a ReportError."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
            raise ReportError(f"{path}: is not a file; export the report again")
        with path.open("rb") as file:
            if not file.peek(1):
                raise ReportError(f"{path}: the file is empty; export the report again")
            yield file
    except OSError as error:
        raise (make_unreadable_error(path, error) if error.strerror else make_damage_error(path, error)) from None
    except MemoryError:  # also if damage asks for more memory than can exist
        raise ReportError(
            f"{path}: takes more memory to read than there is;"
            " translate fewer reports at once, or export the report again if it does not help"
        ) from None
    except (pa.ArrowException, ValueError, LookupError, OverflowError) as error:  # pyarrow also raises Python's errors
        raise make_damage_error(path, error) from None


def _read_start(file: BinaryIO) -> bytes:
    file.seek(0)
    start = file.read(8)
    file.seek(0)
    return start


def _read_column_names(file: BinaryIO) -> list[str]:
    if _read_start(file).startswith(_PARQUET):
        return list(pq.ParquetFile(file).schema_arrow.names)
    return list(_open_arrow(file).schema.names)


def _open_arrow(file: BinaryIO, options: pa.ipc.IpcReadOptions | None = None) -> pa.RecordBatchReader:
    """Return a reader of an Arrow file (batches by number) or an Arrow stream (one batch after the other)."""
    start = _read_start(file)
    if start.startswith(_ARROW_FILE):
        return pa.ipc.open_file(file, options=options)
    if not start.startswith(_ARROW_STREAM):
        raise pa.ArrowInvalid("neither a Parquet nor an Arrow file")
    file.seek(-min(len(_END_OF_STREAM), len(start)), 2)
    if file.read() != _END_OF_STREAM:  # otherwise a stream that was cut between two batches looks whole
        raise pa.ArrowInvalid("the Arrow stream has no end")
    file.seek(0)
    return pa.ipc.open_stream(file, options=options)


def _read_blocks(file: BinaryIO, columns: list[str]) -> Iterator[Block]:
    read_batches = _read_parquet_batches if _read_start(file).startswith(_PARQUET) else _read_arrow_batches
    for batch in read_batches(file, columns):
        yield {name: arrow_values.check_values(batch.column(name)) for name in columns}


def _read_parquet_batches(file: BinaryIO, columns: list[str]) -> Iterator[pa.RecordBatch]:
    parquet = pq.ParquetFile(file, page_checksum_verification=True)
    rows = 0
    for batch in parquet.iter_batches(_BLOCK_ROWS, columns=columns):
        rows += batch.num_rows
        yield batch
    if rows != parquet.metadata.num_rows:
        raise pa.ArrowInvalid(f"it has {rows} rows and says that it has {parquet.metadata.num_rows}")


def _read_arrow_batches(file: BinaryIO, columns: list[str]) -> Iterator[pa.RecordBatch]:
    names = _read_column_names(file)
    options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
    reader = _open_arrow(file, options)
    if isinstance(reader, pa.RecordBatchFileReader):
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)
    else:
        yield from reader
