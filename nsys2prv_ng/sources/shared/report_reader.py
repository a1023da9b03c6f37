"""Access of sources to the tables of one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

import pyarrow as pa

from nsys2prv_ng.arrays.row_keys import find_distinct
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.report.database import Columns, Database, Table
from nsys2prv_ng.report.metadata import Metadata, Strings
from nsys2prv_ng.sources.shared.source import Source, SourceOptions

T = TypeVar("T")


class ReportReader:
    """One report while it is read: its columns, each read once for all sources, and what its records refer to."""

    def __init__(
        self,
        database: Database,
        metadata: Metadata,
        strings: Strings,
        sources: Sequence[Source],
        options: SourceOptions,
    ) -> None:
        self.options = options
        self.chosen = frozenset(source.name for source in sources)
        self.metadata = metadata
        self.strings = strings
        self.places = Places()
        self.labels = Labels()
        self._database = database
        self._tables = _union(table for source in sources for table in source.tables)
        self._columns: dict[str, Columns] = {}
        self._computed: dict[object, object] = {}

    def columns(self, table: str) -> Columns:
        """Columns of a table that a chosen source declares; no rows where none does."""
        if table not in self._columns:
            declared = self._tables.get(table, Table(table, ()))
            if table in self._tables:
                self._columns[table] = self._database.read(declared, self.metadata.schema_version)
            else:
                self._columns[table] = Columns(0, {}, {})
        return self._columns[table]

    def read(self, table: Table) -> Columns:
        """Columns that are read when they are asked for, and not kept: those that few reports need."""
        return self._database.read(table, self.metadata.schema_version)

    def has(self, table: str) -> bool:
        """Whether the report has the table and a chosen source reads it."""
        return table in self._tables and table in self._database.tables

    def by_block(self, table: str, convert: Callable[[Columns], T]) -> list[T]:
        """What `convert` makes of some rows after the other of a declared table, too large to be in memory at once.

        It has columns of integers only, which are gone when `convert` returns.
        """
        declared = self._tables.get(table)
        return self._database.by_block(declared, self.metadata.schema_version, convert) if declared else []

    def text_by_block(self, table: str, column: str, convert: Callable[[pa.Array], T]) -> list[T]:
        """What `convert` makes of the strings of some rows after the other, of a column too large to be in memory."""
        return self._database.text_by_block(table, column, convert)

    def apart(self, source: Source) -> ReportReader:
        """The same report read for one source whose places and names are not those of the trace."""
        reader = ReportReader(self._database, self.metadata, self.strings, (source,), self.options)
        for name, table in reader._tables.items():
            if name in self._tables and _holds(self._tables[name], table):
                reader._columns[name] = self.columns(name)
        return reader

    def names(self, ids: IntArray) -> tuple[IntArray, list[str]]:
        """(index into the names for each id, distinct names) of a column of string ids."""
        index, found = find_distinct(ids)
        return index, self.strings(found)

    def once(self, compute: Callable[[ReportReader], T]) -> T:
        """What `compute` makes of this report, computed for the first of the sources that ask for it."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return cast(T, self._computed[compute])


def _union(tables: Iterable[Table]) -> dict[str, Table]:
    """One declaration for each table: all columns that any source needs."""
    joined: dict[str, Table] = {}
    for table in tables:
        before = joined.get(table.name, Table(table.name, ()))
        required = tuple(dict.fromkeys((*before.required, *table.required)))
        optional = {k: v for k, v in {**before.optional, **table.optional}.items() if k not in required}
        text, real, blob = (
            tuple(dict.fromkeys((*getattr(before, kind), *getattr(table, kind)))) for kind in ("text", "real", "blob")
        )
        joined[table.name] = Table(table.name, required, optional, text, real, blob)
    return joined


def _holds(whole: Table, part: Table) -> bool:
    """Whether all columns of the one declaration are in the other, with the same defaults."""
    of_kinds = ((set(getattr(whole, kind)), set(getattr(part, kind))) for kind in ("text", "real", "blob"))
    return (
        set(part.required) <= set(whole.required)
        and all(whole.optional.get(name) == default for name, default in part.optional.items())
        and all(needed <= held for held, needed in of_kinds)
    )
