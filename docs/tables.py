"""The page of all tables and their columns: python docs/tables.py writes it, `--check` only compares it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from page_file import DOCS, write_or_check

from nsys2prv_ng.tables.columns import Column, Table
from nsys2prv_ng.tables.registry import TABLES

PAGE = DOCS / "reference/tables.md"
_FEW = 3
"""Fewest tables with a column for it to be listed once for all."""

_HEAD = """# Tables

`python docs/tables.py` writes this page from the declarations in `nsys2prv_ng/tables/`; a test keeps them equal.

[`nsys2prv_ng.open`](python.md#tables) gives each table as a pandas DataFrame, and [`nsys2prv-ng
export`](commands.md#export) writes them as Parquet or CSV files. The rows are sorted by `start_ns`. All times are on
the one clock of all nodes, in ns from time 0 of the trace of the same reports. A chosen time cuts intervals, as in a
trace; collectives, messages, waits and steps that lie partly in it are whole.

In pandas, a column is int64, or Int64 if it may lack values (*); names are categories, which may lack values, too.

## Files

Each table is a folder with one for each rank: `FOLDER/kernels/rank=0/part-0.parquet`. So the rank is no column of a
file; programs that know Hive's names of folders add it. Events that belong to no rank are in
`rank=-1`. A table without rows has no folder.

```python
import duckdb, pandas, polars

pandas.read_parquet("FOLDER/kernels")
polars.scan_parquet("FOLDER/kernels")
duckdb.sql("SELECT rank, name, sum(end_ns - start_ns) FROM 'FOLDER/kernels/*/*.parquet' GROUP BY ALL")
```

The metadata of a column has its `unit` and `meaning`, that of a file what became of the events, as JSON in
`nsys2prv_ng`.
"""


def describe_tables() -> str:
    """Return the whole page."""
    common = _find_common()
    parts = [_HEAD, "\n## Columns of many tables\n", _list_columns(common)]
    for table in TABLES.values():
        shared = [f"`{column.name}`" for column in table.columns if column in common]
        own = [column for column in table.columns if column not in common]
        parts += [f"\n## {table.name}\n\n{table.meaning}.\n\nColumns: {', '.join(shared)}, and:\n", _list_columns(own)]
    return "".join(parts)


def _find_common() -> list[Column]:
    """Return the columns that are declared once for several tables."""
    columns = [column for table in TABLES.values() for column in table.columns]
    return list({column.name: column for column in columns if _count(column) >= _FEW}.values())


def _count(column: Column) -> int:
    return sum(_has(table, column) for table in TABLES.values())


def _has(table: Table, column: Column) -> bool:
    return any(column is each for each in table.columns)


def _list_columns(columns: list[Column]) -> str:
    return "\n".join(["", "| column | meaning | unit |", "|---|---|---|", *_list_rows(columns)]) + "\n"


def _list_rows(columns: list[Column]) -> Iterator[str]:
    for column in columns:
        star = "*" if column.kind == "integer" and column.may_lack else ""
        unit = "name" if column.kind == "name" else column.unit
        yield f"| `{column.name}`{star} | {column.meaning} | {unit} |"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, describe_tables(), sys.argv[1:], __doc__))
