"""Defines what a table is: its columns, each with a unit and a meaning, and parts with the values of some of its rows.

A declaration is all that pandas, files and the reference need to know of a table (`registry.py` lists them). Columns of
one name mean the same in all tables. Times are ns from time 0 of the trace, on the clock that all nodes share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nsys2prv_ng.arrays.types import BoolArray, IntArray, Integers, pick
from nsys2prv_ng.errors import UsageError, suggest
from nsys2prv_ng.value_class import ValueClass

if TYPE_CHECKING:
    from nsys2prv_ng.tables.context import JobTables

NS, BYTES = "ns", "bytes"
Named = TypeVar("Named")


class Values(NamedTuple):
    """n values of a column. `missing` marks those that are not known. With `names`, the data are indices of names.

    `of_all`: whether the names are those of the whole job, so that all its tables have them, used or not.
    """

    data: NDArray[Any]
    missing: BoolArray | None = None
    names: Sequence[str] | None = None
    of_all: bool = False

    def take(self, which: NDArray[Any] | slice) -> Values:
        """Return the values at indices, or of a slice."""
        return self._replace(data=self.data[which], missing=None if self.missing is None else self.missing[which])


def make_partial(data: IntArray, missing: BoolArray) -> Values:
    """Return integers of which some are not known; these are 0."""
    return Values(np.where(missing, 0, data), missing)


def lack_below(data: Integers, least: int = 0) -> Values:
    """Return integers; those below a limit are not known."""
    return make_partial(data.astype(np.int64, copy=False), np.asarray(data < least, np.bool_))


def make_names(index: Integers, names: Sequence[str]) -> Values:
    """Return names by their indices; -1 stands for none."""
    return Values(index, np.asarray(index < 0, np.bool_), names)


def join_values(parts: Sequence[Values]) -> Values:
    """Return the values of all parts, one after the other. Names are sorted, each once, without those that none has."""
    masks = [np.zeros(part.data.size, np.bool_) if part.missing is None else part.missing for part in parts]
    missing = np.concatenate(masks) if any(part.missing is not None for part in parts) else None
    if parts[0].names is None:
        return Values(np.concatenate([part.data for part in parts]), missing)
    used = [
        np.bincount(part.data[~mask], minlength=len(part.names or ())) > -part.of_all
        for part, mask in zip(parts, masks, strict=True)
    ]
    kept = [
        [name for name, is_used in zip(part.names or (), marks.tolist(), strict=True) if is_used]
        for part, marks in zip(parts, used, strict=True)
    ]
    names = sorted({name for texts in kept for name in texts})
    number = {name: n for n, name in enumerate(names)}
    codes = []
    for part, marks, texts in zip(parts, used, kept, strict=True):
        of_name = np.full(marks.size, -1, np.int32)
        of_name[marks] = [number[name] for name in texts]
        codes.append(pick(of_name, part.data, -1))
    return Values(np.concatenate(codes), missing, names)


class Part:
    """n rows of a table. `row`: row of the trace, -1 for none. `start` and `end`: ns, on the common clock.

    `given`: columns that are already known, by name. `further`: how many rows are of events that have more
    than one.
    """

    further = 0

    def __init__(
        self,
        tables: JobTables,
        row: IntArray,
        start: IntArray,
        end: IntArray,
        given: Mapping[str, Values] | None = None,
    ) -> None:
        self.tables, self.row, self.start, self.end, self.given = tables, row, start, end, given or {}

    def take(self, which: IntArray) -> Part:
        """Return the rows at these indices."""
        given = {name: values.take(which) for name, values in self.given.items()}
        return Part(self.tables, self.row[which], self.start[which], self.end[which], given)


class Column(ValueClass):
    """A column of a table: what its values are, and the function that reads them of a part; without one, it is given.

    `may_lack`: whether some values may not be known. `kind`: of the values.
    """

    name: str
    meaning: str
    unit: str = ""
    may_lack: bool = False
    kind: Literal["integer", "name", "flag", "real"] = "integer"
    find: Callable[..., Values] | None = None

    def read(self, part: Part) -> Values:
        """Return the values of a part."""
        return self.find(part) if self.find is not None and self.name not in part.given else part.given[self.name]

    @property
    def dtype(self) -> str:
        """The dtype in pandas."""
        return {
            "integer": "Int64" if self.may_lack else "int64",
            "name": "category",
            "flag": "bool",
            "real": "float64",
        }[self.kind]


class Account(NamedTuple):
    """What became of the events of a table: rows = read - dropped + pieces.

    `dropped`: number of events without a row, by reason. `pieces`: further rows of events that have several: pieces in
    chosen times, the values of a sample, the causes of a gap.
    """

    read: int
    dropped: dict[str, int]
    pieces: int = 0

    def add(self, other: Account) -> Account:
        dropped = dict(self.dropped)
        for reason, count in other.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        return Account(self.read + other.read, dropped, self.pieces + other.pieces)


NO_ACCOUNT = Account(0, {})


def find_named(known: Mapping[str, Named], name: str, what: str, parameter: str) -> Named:
    """Return what has a name. Raises UsageError with the nearest name, or else all of them, if nothing has."""
    if name in known:
        return known[name]
    raise UsageError(f"no {what} is called {name}; {suggest([name], known)}", parameter=parameter)


class Table(ValueClass):
    """A table: its name, what a row is, its columns, and how it is read.

    `list_pieces`: what can be read on its own, such as the indices of reports. `read`: the rows of a piece, in parts,
    and their account. `is_whole`: whether its only piece needs all reports together, and an engine for itself. `group`:
    tables of one group have the same pieces, and share what they read of them; empty for a table alone.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    list_pieces: Callable[[JobTables], Sequence[int]]
    read: Callable[[JobTables, int], tuple[Sequence[Part], Account]]
    is_whole: bool = False
    group: str = ""

    def find_columns(self, names: Sequence[str]) -> list[Column]:
        """Return the columns with these names. Raises UsageError with the nearest name for another one."""
        known = {column.name: column for column in self.columns}
        return [find_named(known, name, f"column of {self.name}", "columns") for name in names]


# ---- columns that many tables have -----------------------------------------------------------------------------------


def _of_row(fact: str) -> Callable[[Part], Values]:
    """Return a function that reads a fact about the row of the trace."""

    def find(part: Part) -> Values:
        return lack_below(pick(getattr(part.tables.facts, fact), part.row, -1))

    return find


RANK = Column(
    "rank", "Rank of the process; that of its parent for a child of a rank; -1 without one",
    find=lambda part: Values(pick(part.tables.facts.rank, part.row, -1)),
)  # fmt: skip
NODE = Column(
    "node", "Name of the node", kind="name",
    find=lambda part: make_names(
        pick(part.tables.facts.node, part.row, -1), part.tables.facts.nodes
    )._replace(of_all=True),
)  # fmt: skip
GPU = Column("gpu", "Number of the GPU on its node, as nsys counts", may_lack=True, find=_of_row("gpu"))
PROCESS = Column("process", "Process id", may_lack=True, find=_of_row("process"))
CONTEXT = Column("context", "CUDA context", may_lack=True, find=_of_row("context"))
STREAM = Column("stream", "CUDA stream", may_lack=True, find=_of_row("stream"))
THREAD = Column("thread", "Thread id of the operating system", may_lack=True, find=_of_row("thread"))
START = Column("start_ns", "Start", NS, find=lambda part: Values(part.start - part.tables.job.scope.origin))
TIME = Column("start_ns", "Time of the event", NS, find=START.find)
END = Column("end_ns", "End", NS, find=lambda part: Values(part.end - part.tables.job.scope.origin))
ON_STREAM = (RANK, NODE, GPU, PROCESS, CONTEXT, STREAM, START, END)
ON_THREAD = (RANK, NODE, PROCESS, THREAD, START, END)
