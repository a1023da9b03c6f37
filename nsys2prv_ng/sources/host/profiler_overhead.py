"""Reads the cost of tracing for the traced threads, as nsys and CUPTI report it.

Overhead has the state Profiling, which hides all other states of a thread, so that nobody takes it for time of the
program. CUPTI also reports time that the driver takes with or without a profiler, for example when it waits for room to
queue a launch or loads a module. That is an event of the same type, but without the state.
"""

from __future__ import annotations

import re

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

NSYS = "PROFILER_OVERHEAD"
CUPTI = "CUPTI_ACTIVITY_KIND_OVERHEAD"
_OPTIONAL = {"nameId": NULL, "overheadType": NULL}
TABLES = (Table(NSYS, ("start", "end", "globalTid"), _OPTIONAL), Table(CUPTI, ("start", "end", "globalTid"), _OPTIONAL))

# ENUM_CUPTI_OVERHEAD_TYPE: the label of a row without a name.
_CUPTI_NAMES = {
    2: "Driver compiler",
    3: "CUPTI Buffer flush",
    4: "CUPTI Instrumentation",
    5: "CUPTI Resource Management",
    6: "Runtime triggered module loading",
    7: "Lazy function loading",
    8: "Command Buffer Full",
}
_DRIVER_TYPES = (2, 6, 7, 8)
_DRIVER_NAMES = re.compile(
    r"(Driver (JIT )?compiler|Runtime (triggered )?module loading|Lazy function loading|Command buffer full)",
    re.IGNORECASE,
)


def is_profiling(name: str) -> bool:
    """Return whether the profiler, and not the CUDA driver, causes the overhead with this name."""
    return not _DRIVER_NAMES.match(name)


def read(reader: ReportReader) -> Result:
    """Return an interval for each row, nested as the rows are; the two tables report different things."""
    columns = reader.stack((NSYS, CUPTI), ("start", "end", "globalTid", "nameId", "overheadType"))
    begin, end, thread, name_id, kind = columns.values()
    result = Result(read=int(begin.size))
    rows = select_sound_calls(result, begin, end, thread)
    begin, end, kind = begin[rows], end[rows], kind[rows]
    place = reader.places.observed_threads(thread[rows])
    index, names = _name_rows(reader, name_id[rows], kind)
    pair = make_name_pair(reader.labels, types.PROFILER_OVERHEAD, index, names)
    result.records.append(make_intervals(place, begin, end, [pair], [pair.handle]))

    profiling = np.array([is_profiling(name) for name in names], np.bool_)[index] & ~np.isin(kind, _DRIVER_TYPES)
    result.add_states(place, begin, end, np.where(profiling, types.PROFILING, -1))
    return result


def _name_rows(reader: ReportReader, name_id: IntArray, kind: IntArray) -> tuple[IntArray, list[str]]:
    """Return (index into the names for each row, names); a row without a name has the name of its type."""
    # Negative keys stand for types, because neither ids nor known types are negative.
    distinct, index = np.unique(np.where(name_id == NULL, -1 - np.maximum(kind, 0), name_id), return_inverse=True)
    names = reader.strings(distinct)
    return index, [
        _CUPTI_NAMES.get(-1 - int(key), "Unknown") if key < 0 else name
        for key, name in zip(distinct, names, strict=True)
    ]


SOURCE = Source(
    source_names.PROFILER_OVERHEAD,
    "Profiler overhead",
    TABLES,
    read,
    counted_tables=tuple(EventRows(table.name) for table in TABLES),
    noun="stretches",
)
