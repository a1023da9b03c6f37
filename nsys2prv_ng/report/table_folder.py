"""Reads an export to a folder with a file for each table: TABLE.parquet (parquetdir) or TABLE.arrow (arrowdir).

Only the files of requested tables are opened, and only the requested columns are read, one block of rows after the
other. Nothing is mapped into memory: if someone truncates the file, touching a map kills the program.

Values become those that SQLite has: signed 64-bit integers, floats, text and bytes. Parquet and Arrow have many more
types, and a table may have other types in another version of nsys: unsigned integers, dictionaries, booleans. What
nsys never writes, such as decimals and dates, is like NULL.
Arrays from files are checked before use: offsets beyond the end of a buffer would end the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from nsys2prv_ng.arrays.types import FloatArray, IntArray
from nsys2prv_ng.errors import ReportError
from nsys2prv_ng.report.formats import ARROW, FOLDER_FORMATS, PARQUET, TABLE_SUFFIXES
from nsys2prv_ng.report.table_reader import NULL, Among, make_damage_error, make_unreadable_error

_PARQUET = PARQUET.first_bytes
_ARROW_FILE, _ARROW_STREAM = ARROW.first_bytes
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_BLOCK_ROWS = 1 << 17
"""A choice: 1 MB of each column, however large the table is."""

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
                rows = rows.filter(select_among(rows[name].combine_chunks(), list(wanted)))
            return [read_objects(rows[name].combine_chunks()) for name in columns]

        parts = self._read(table, [*columns, *among], values)
        # NaN is NULL in SQLite, and differs from itself.
        return [[v if v == v else None for part in parts for v in part[i]] for i in range(len(columns))]

    def read_integers(self, table: str, columns: Sequence[str]) -> list[IntArray]:
        parts = self._read(table, columns, lambda block: [read_integers(block[name]) for name in columns])
        by_column = [[part[i] for part in parts] for i in range(len(columns))]
        del parts
        joined = []
        while by_column:  # one column after the other, so that only one is in memory twice
            joined.append(np.concatenate(by_column.pop(0) or [np.zeros(0, np.int64)]))
        return joined

    def read_by_block(self, table: str, columns: Sequence[str], convert: Callable[[Sequence[IntArray]], T]) -> list[T]:
        return self._read(table, columns, lambda block: convert([read_integers(block[name]) for name in columns]))

    def read_values(self, table: str, column: str, kind: pa.DataType) -> pa.ChunkedArray:
        parts = self._read(table, [column], lambda block: READ_VALUES[kind](block[column]))
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
        yield {name: check_values(batch.column(name)) for name in columns}


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


_LARGEST = np.iinfo(np.int64).max


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
    """Return a new array of integers: floats as SQLite casts them, NULL for other values."""
    if types.is_floating(array.type):
        return _truncate(array.to_numpy(zero_copy_only=False).astype(np.float64))
    whole = _read_whole(array)
    if whole is None:
        return np.full(len(array), NULL, np.int64)
    return np.array(whole.fill_null(NULL).to_numpy(zero_copy_only=False), np.int64)


def read_reals(array: pa.Array) -> FloatArray:
    """Return a new array of floats; other values are NaN."""
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
    if types.is_string(array.type):
        return read_texts(array).to_pylist()
    whole = _read_whole(array)
    return [None] * len(array) if whole is None else whole.to_pylist()


def select_among(array: pa.Array, values: list[int]) -> pa.Array:
    """Return whether each value is one of the given integers, like IN in SQL."""
    if types.is_floating(array.type):
        return pa.array(np.isin(read_reals(array), np.array(values, np.int64)))
    whole = _read_whole(array)
    if whole is None:
        return pa.array(np.zeros(len(array), np.bool_))
    return pc.is_in(whole, pa.array(values, pa.int64()))


def _read_whole(array: pa.Array) -> pa.Array | None:
    """Return 64-bit integers; None for other types. SQLite stores unsigned 64-bit integers by their bits."""
    if types.is_uint64(array.type):
        return array.view(pa.int64())
    return array.cast(pa.int64()) if types.is_integer(array.type) or types.is_boolean(array.type) else None


def _truncate(values: FloatArray) -> IntArray:
    with np.errstate(invalid="ignore"):  # values out of range are set below
        whole = values.astype(np.int64)
    whole[values >= 2.0**63] = _LARGEST
    whole[~(values >= -(2.0**63))] = NULL  # also NaN
    return whole
