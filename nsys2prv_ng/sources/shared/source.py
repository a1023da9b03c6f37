"""Declares a source of events: the columns that it needs, and one function from columns to records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.operations.parts import MessagePairs
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.model import Communicator
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result


@dataclass(frozen=True)
class JoinInput:
    """The data of one report that a source joins over all reports, once the objects of the trace are known."""

    metadata: Metadata
    places: Places
    rows: IntArray
    """Row of the trace by place."""
    clock: ClockMap
    """Maps times of the report (ns) to times on the common clock."""
    data: Any
    """Value of `Result.join_data`."""
    load_columns: Callable[[], list[IntArray]]
    """Returns the columns of `Result.join_columns`."""
    windows: Sequence[tuple[int, int]]
    """First and last time (ns, common clock) of the trace, or of each selected part of it."""
    kept: BoolArray
    """Mask of the rows that the user selected. Events on other rows are dropped after the join, if not before."""


class NamedCommunicator(NamedTuple):
    """A communicator of NCCL, and what it is for."""

    id: str
    """NCCL's id, as 16 hexadecimal digits."""
    number: int
    label: str
    """Its number, axis and members in words."""
    axis: str
    """What it is for: data, sharded data, tensor, pipeline or expert; empty if that is not known."""
    ranks: int
    tasks: tuple[int, ...]
    """Tasks of the whole tree that use it."""


@dataclass
class JoinResult:
    """What a source makes of all reports together: lines between them, and values that depend on all of them."""

    assigned: dict[str, dict[str, Value]] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)
    accounts: dict[str, Result] = field(default_factory=dict)
    """Results by their name in the account. Their records are on the common clock, with rows of the trace as places."""
    nccl_communicators: list[NamedCommunicator] = field(default_factory=list)
    """NCCL's communicators by number."""
    messages: dict[str, MessagePairs] = field(default_factory=dict)
    """Messages with both ends, by the name of the source of their kernels or calls; rows of the whole tree."""
    partial_results: tuple[str, Callable[[Any], Result], Sequence[Any]] | None = None
    """A name in the account, a function, and the items from which the function makes one result each. These results are
    made and stored independently."""


@dataclass(frozen=True)
class EventRows:
    """A table with the events of a source, to list the contents of a report before any event is read."""

    table: str
    process: str = ""
    """Column with the globalTid or globalPid of the process that a row makes a task; empty if rows make no task."""
    application: bool = True
    system_calls: bool = False
    """What the rows show about the process: arguments of `Places.threads`."""
    device: str = ""
    """Column with the process's ordinal of the GPU that the operation ran on."""
    no_task: tuple[str, tuple[int, ...]] | None = None
    """A column and its values in rows that make no task, because these rows only name things or are not calls."""
    names: re.Pattern[str] | None = None
    """Only rows with the textId of a matching name belong to the source."""
    otherwise: bool = False
    """Count the rows only if the tables before this one have no rows."""
    count: Callable[[ReportReader], int] | None = None
    """Function that counts the rows of the source, if not all rows belong to it."""

    @property
    def process_columns(self) -> tuple[str, ...]:
        """Names of the columns that `make_task` needs."""
        return (self.process,) if self.no_task is None else (self.process, self.no_task[0])

    def make_task(self, columns: Columns) -> BoolArray:
        """Return a mask of the rows that make their process a task."""
        made: BoolArray = columns[self.process] != NULL
        if self.no_task is not None:
            name, values = self.no_task
            made &= ~np.isin(columns[name], values)
        return made


@dataclass(frozen=True)
class Source:
    """A kind of event: its name on the command line, its title, the tables it reads, and the function that reads them.

    `join`, if a source has one, is called once the rows are known, with the data of every report (in an order that does
    not depend on the command line) and the tree.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    read: Callable[[ReportReader], Result]
    join: Callable[[Sequence[JoinInput], ObjectTree], JoinResult] | None = None
    join_data: Any = None
    """Type of its `Result.join_data`; None if it has none."""
    accounted_in_join: bool = False
    """Whether only its join has an account, because its events need all reports together."""
    counted_tables: tuple[EventRows, ...] = ()
    """The tables with one row for each of its events."""
    noun: str = ""
    """The plural noun for these rows."""
    needed_tables: tuple[tuple[str, ...], ...] = ()
    """For a source without such tables: groups of tables of other sources, each with a table that must have rows."""
