"""Makes pandas DataFrames of the tables of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nsys2prv_ng.arrays.row_keys import sort_rows
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.job.dropping import refuse_other_ranks
from nsys2prv_ng.runtime.limits import allow_pandas
from nsys2prv_ng.tables.columns import NO_ACCOUNT, Account, Column, Part, Table, Values, join_values
from nsys2prv_ng.tables.context import JobTables

if TYPE_CHECKING:
    import pandas as pd

NOT_ASKED_FOR = "of another rank or time than asked for"


def make_frame(
    tables: JobTables,
    table: Table,
    columns: Sequence[Column],
    ranks: Sequence[int] | None = None,
    time: tuple[int | None, int | None] = (None, None),
) -> pd.DataFrame:
    """Return the DataFrame of a table, with some columns, only of some ranks, and of what touches a time (ns).

    Raises UsageError if the job has none of the ranks.
    """
    allow_pandas()
    import pandas

    if ranks is not None:
        refuse_other_ranks(tables.job.tree, ranks)
    parts, account = read_parts(tables, table)
    if ranks is not None or time != (None, None):
        parts, account = _restrict(tables, parts, account, ranks, time)
    order = sort_rows(np.concatenate([np.zeros(0, np.int64), *(part.start for part in parts)]))
    series = {column.name: _make_array(column, [column.read(part) for part in parts], order) for column in columns}
    frame = pandas.DataFrame(series, copy=False, columns=[column.name for column in columns])
    frame.attrs = {
        "table": table.name,
        "meaning": table.meaning,
        "columns": {column.name: {"unit": column.unit, "meaning": column.meaning} for column in columns},
        "read": account.read,
        "dropped": account.dropped,
        "pieces": account.pieces,
    }
    return frame


def read_parts(tables: JobTables, table: Table) -> tuple[list[Part], Account]:
    """Return all rows of a table, in parts, and their account."""
    parts, account = list[Part](), NO_ACCOUNT
    for piece in table.list_pieces(tables):
        more, of_piece = table.read(tables, piece)
        parts += more
        account = account.add(of_piece)
    return parts, account


def _restrict(
    tables: JobTables,
    parts: Sequence[Part],
    account: Account,
    ranks: Sequence[int] | None,
    time: tuple[int | None, int | None],
) -> tuple[list[Part], Account]:
    """Return the rows of some ranks that touch a time; all others count as dropped."""
    low, high = (None if limit is None else tables.job.scope.origin + limit for limit in time)
    kept, left_out = [], 0
    for part in parts:
        wanted = np.ones(part.start.size, np.bool_)
        if ranks is not None:
            wanted &= np.isin(pick(tables.facts.rank, part.row, -1), [rank for rank in ranks if rank >= 0])
        if low is not None:
            wanted &= part.end >= low
        if high is not None:
            wanted &= part.start <= high
        which: IntArray = np.flatnonzero(wanted)
        left_out += wanted.size - which.size
        kept.append(part.take(which))
    return kept, account.add(Account(0, {NOT_ASKED_FOR: left_out} if left_out else {}))


def _make_array(column: Column, parts: Sequence[Values], order: IntArray) -> Any:
    """Return the array of a column of a DataFrame, in an order. Large columns are copied once, into that order."""
    import pandas

    values = join_values(parts) if parts else Values(np.zeros(0, np.int64), names=[] if column.kind == "name" else None)
    data = values.data[order]
    if column.kind == "name":
        dtype: Any = pandas.CategoricalDtype(list(values.names or ()))
        return pandas.Categorical.from_codes(data, dtype=dtype)
    if column.kind == "integer" and column.may_lack:
        missing = np.zeros(order.size, np.bool_) if values.missing is None else values.missing[order]
        return pandas.arrays.IntegerArray(data.astype(np.int64, copy=False), missing)
    return data.astype(column.dtype, copy=False)
