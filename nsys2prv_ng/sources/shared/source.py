"""What a source of events is: a declaration of the columns it needs and one function from columns to records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.objects.places import Places
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.paraver.model import Communicator
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.sources.shared.result import Result

if TYPE_CHECKING:
    from nsys2prv_ng.sources.shared.report_reader import ReportReader


@dataclass(frozen=True)
class JoinInput:
    """One report's part in what a source joins over all reports, after the objects of the trace are known."""

    metadata: Metadata
    places: Places
    rows: IntArray
    """Row of the trace by place."""
    clock: ClockMap
    """From the report's times (ns) to those on the common clock."""
    data: object
    """What the source left in `Result.join_data`."""
    windows: Sequence[tuple[int, int]]
    """First and last time of the trace on the common clock (ns), or of each part of it that the user chose."""
    kept: BoolArray
    """Whether the user wants each row. What is on the others is dropped afterwards, if it is not before."""


@dataclass
class JoinResult:
    """What a source made of all reports together: lines between them, and values that only they tell together."""

    assigned: dict[str, dict[str, Value]] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)
    accounts: dict[str, Result] = field(default_factory=dict)
    """By name in the summary: `records` (with rows of the trace as places, on the common clock), the number that was
    `read`, and what was `dropped`."""
    partial_results: tuple[str, Iterator[Result]] | None = None
    """A name in the summary and its results in parts, made as they are asked for: each is put away before the next."""


@dataclass(frozen=True)
class EventRows:
    """A table whose rows are a source's events: what tells what a report holds before any event is read."""

    table: str
    process: str = ""
    """Column of the globalTid or globalPid of the process that a row makes a task; none where rows make no task."""
    application: bool = True
    system_calls: bool = False
    """What such rows say of the process, as in `Places.threads`."""
    device: str = ""
    """Column of the process's ordinal of the GPU that the row's operation ran on."""
    no_task: tuple[str, tuple[int, ...]] | None = None
    """A column and its values in rows that make no task, since they only name things or are no calls."""
    names: re.Pattern[str] | None = None
    """Only rows whose textId is that of such a name are the source's."""
    otherwise: bool = False
    """Only where the tables before it have no rows."""
    count: Callable[[ReportReader], int] | None = None
    """Number of the rows that are the source's, where not all are."""

    @property
    def process_columns(self) -> tuple[str, ...]:
        """Columns that `make_task` needs."""
        return (self.process,) if self.no_task is None else (self.process, self.no_task[0])

    def make_task(self, columns: Columns) -> BoolArray:
        """Which rows make their process a task."""
        made: BoolArray = columns[self.process] != NULL
        if self.no_task is not None:
            name, values = self.no_task
            made &= ~np.isin(columns[name], values)
        return made


@dataclass(frozen=True)
class Source:
    """A kind of event: its name on the command line, what it is, the tables it reads and how.

    `join`, where a source has one, is given its part of every report (in an order that does not depend on the command
    line) and the tree, once rows are known.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    read: Callable[[ReportReader], Result]
    join: Callable[[Sequence[JoinInput], ObjectTree], JoinResult] | None = None
    derived: bool = False
    """Made of what other sources read: only its join has an account."""
    rows: tuple[EventRows, ...] = ()
    row: str = ""
    """What each of these rows is, in the plural."""
    made_of: tuple[tuple[str, ...], ...] = ()
    """Of a source that has no such rows: tables of other sources, one of each group of which must have rows."""


@dataclass(frozen=True)
class SourceOptions:
    """What a user chooses about single sources."""

    nvtx_domains: tuple[str, ...] = ()
    """Names of the NVTX domains to show (* and ? as in file names); none for all."""
    nvtx_range: str = ""
    """Text (* and ? likewise) of the NVTX ranges to whose time the trace is cut."""
    demangled_names: bool = False
    """Kernels by their demangled name, with template arguments, instead of the short one."""

    osrt_min: int = 10_000
    """Calls of the operating system that last less than this (ns) are left out; 0 keeps all."""

    stack_depth: int = 1
    """How many levels of call stacks are shown: of a sample its function and callers, of a call its callers."""

    metrics: tuple[str, ...] = ()
    """Patterns (* and ?) of the names of GPU metrics; none for all."""
    metrics_changes: bool = False
    """Of GPU metrics only the values that differ from those of the sample before."""
