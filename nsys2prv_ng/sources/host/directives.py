"""Reads events of OpenMP (through OMPT) and OpenACC on host threads, with the numbers of Extrae and of nsys2prv.

The value of an OpenMP event comes from the row's `kind`. The kinds have the numbers of OMPT (OpenMP 5.2, section
19.4.4), which are the same in every runtime and export. Tasks are shown in the pieces that ran, because a thread leaves
its implicit task for an explicit one.

Each of CUPTI's three kinds of OpenACC activity (launches of compute constructs, data clauses, and the rest) has a
separate type, so that a launch within a data region and the region are both visible. The source line and function last
as long as the event. No capture of OpenACC was available: the tables follow real exports without events, and NVIDIA's
documentation of the export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import flatten_innermost
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.value_tables import OPENACC_KINDS, OPENACC_UNKNOWN
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared.host_calls import select_sound_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_id_pair, make_name_pair, make_number_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source, StateIntervals

_ANY = -1
"""Any unlisted kind, and the kind of rows in tables without kinds."""

_WAITING, _LEAVING, _INSIDE = 3, 5, 6
_LOCKS = {
    **dict.fromkeys((1, 2, 3, 4, _ANY), types.OMP_LOCK),
    **{5: types.OMP_CRITICAL, 6: types.OMP_ATOMIC, 7: types.OMP_ORDERED},
}


class Meaning(NamedTuple):
    """The meaning of rows of one kind: a value of an event type."""

    event_type: EventType
    value: int


def _map_kinds(event_type: EventType, values: Mapping[int, int]) -> dict[int, Meaning]:
    """Return the meaning of each kind, given the value of the kind."""
    return {kind: Meaning(event_type, value) for kind, value in values.items()}


def _map_locks(value: int) -> dict[int, Meaning]:
    """Return the meaning of each kind of lock, given the value for waiting, leaving or being inside."""
    return {kind: Meaning(event_type, value) for kind, event_type in _LOCKS.items()}


_WORK = {1: 4, 2: 5, 3: 6, 4: 8, 5: 9, 6: 10, 8: 11, 10: 12, 11: 13, 12: 14, 13: 15, _ANY: 16}
_BARRIERS = {kind: kind for kind in (1, 2, 3, 4, 8, 9, 10)}
_TASK_TYPE = 0xF  # the other bits of ompt_task_flag_t show how the task was made

INTERVALS: Mapping[str, Mapping[int, Meaning]] = {
    "THREAD": {_ANY: Meaning(types.OMP_THREAD, 1)},
    "PARALLEL": {_ANY: Meaning(types.OMP_PARALLEL, 3)},
    "WORKSHARE": {**_map_kinds(types.OMP_WORKSHARING, _WORK), 7: Meaning(types.OMP_TASKLOOP, 1)},
    "MASTER": {_ANY: Meaning(types.OMP_WORKSHARING, 7)},
    "SYNC_REGION": {
        **_map_kinds(types.OMP_BARRIER, _BARRIERS),
        5: Meaning(types.OMP_TASKWAIT, 1),
        6: Meaning(types.OMP_TASKGROUP, 1),
        7: Meaning(types.OMP_REDUCTION, 1),
        _ANY: Meaning(types.OMP_OTHER_SYNCHRONIZATION, 1),
    },
    "SYNC_REGION_WAIT": _map_kinds(types.OMP_WAIT, {**_BARRIERS, 5: 5, 6: 6, 7: 7, _ANY: 11}),
    "REDUCTION": {_ANY: Meaning(types.OMP_REDUCTION, 1)},
    "MUTEX_WAIT": _map_locks(_WAITING),
    "CRITICAL_SECTION": {**_map_locks(_INSIDE), _ANY: Meaning(types.OMP_CRITICAL, _INSIDE)},
    "TASK": _map_kinds(types.OMP_FUNCTION, {1: 2, 2: 1}) | _map_kinds(types.OMP_TASK, {4: 1, 8: 2, _ANY: 3}),
}
"""The meaning of each kind, by table of intervals."""

_POINT_VALUES = {"TASK_SCHEDULE": 1, "CANCEL": 2, "LOCK_INIT": 3, "LOCK_DESTROY": 4, "DISPATCH": 5, "FLUSH": 6}
POINTS: Mapping[str, Mapping[int, Meaning]] = {
    "TASK_CREATE": {_ANY: Meaning(types.OMP_TASK_CREATION, 1)},
    **{what: {_ANY: Meaning(types.OMP_POINT, value)} for what, value in _POINT_VALUES.items()},
    "MUTEX_RELEASED": _map_locks(_LEAVING),
}
"""The meaning of each kind, by table of points."""
_MEANINGS = {**INTERVALS, **POINTS}


_NAME = "OPENMP_EVENT_KIND_{}"
_OMP_OPTIONAL = {"kind": _ANY, "taskId": NULL, "newTaskId": NULL}
OMP_TABLES = (
    *(Table(_NAME.format(what), ("start", "end", "globalTid"), _OMP_OPTIONAL) for what in INTERVALS),
    *(Table(_NAME.format(what), ("start", "globalTid"), _OMP_OPTIONAL) for what in POINTS),
)

_OMP_WAITS = {
    Meaning(types.OMP_TASKWAIT, 1),
    *INTERVALS["MUTEX_WAIT"].values(),
    *INTERVALS["SYNC_REGION_WAIT"].values(),
    *_map_kinds(types.OMP_BARRIER, _BARRIERS).values(),
}
"""Events in which a thread waits for other threads, unless it runs a task meanwhile."""


class _Rows(NamedTuple):
    """n rows of all tables: start and end (ns; equal for a point), globalTid, task id or NULL, index of the meaning."""

    begin: IntArray
    end: IntArray
    thread: IntArray
    task: IntArray
    meaning: IntArray


def read_openmp(reader: ReportReader) -> Result:
    """Return an interval or a point for each row, according to its table."""
    result = Result()
    meanings = list(dict.fromkeys(meaning for kinds in _MEANINGS.values() for meaning in kinds.values()))
    rows = _read_rows(reader, meanings)
    result.read = int(rows.begin.size)
    states: list[StateIntervals] = []
    for event_type in dict.fromkeys(m.event_type for m in meanings):
        chosen = np.flatnonzero(np.array([m.event_type == event_type for m in meanings])[rows.meaning])
        if not chosen.size:  # the usual case
            continue
        sound = chosen[select_sound_calls(result, rows.begin[chosen], rows.end[chosen], rows.thread[chosen])]
        part = _Rows(*(column[sound] for column in rows))
        place = reader.places.threads(part.thread, application=False)
        handle = reader.labels.handle(event_type)
        pairs = [Pair(handle, np.array([m.value for m in meanings])[part.meaning])]
        has_task = part.task != NULL
        if event_type in (types.OMP_FUNCTION, types.OMP_TASK, types.OMP_TASK_CREATION) and has_task.any():
            pairs.append(Pair(reader.labels.handle(types.OMP_TASK_ID), part.task, has_task))
        if event_type.interval:
            result.records.append(make_intervals(place, part.begin, part.end, pairs, [handle]))
        else:
            result.records.append(make_events(place, part.begin, pairs))
        waits = np.array([m in _OMP_WAITS for m in meanings])[part.meaning]
        state = np.where(waits, types.SYNCHRONIZATION, types.RUNNING)
        has_state = waits | (event_type == types.OMP_TASK)
        columns = (place, part.begin, part.end, state)
        states.append(StateIntervals(*(column[has_state] for column in columns)))
    if states:
        # A thread in a barrier may run tasks, and a task may wait for the tasks that it made.
        flat = flatten_innermost(*(np.concatenate(columns) for columns in zip(*states, strict=True)))
        waits = flat.state == types.SYNCHRONIZATION
        result.states.append(StateIntervals(*(column[waits] for column in flat)))
    return result


def _read_rows(reader: ReportReader, meanings: list[Meaning]) -> _Rows:
    """Return the rows of all tables, one table after the other."""
    parts = []
    for what, kinds in _MEANINGS.items():
        columns = reader.columns(_NAME.format(what))
        kind = columns["kind"] & _TASK_TYPE if what == "TASK" else columns["kind"]
        meaning = np.full(columns.rows, meanings.index(kinds[_ANY]), np.int64)
        for number, known in kinds.items():
            meaning[kind == number] = meanings.index(known)
        end = columns["end"] if what in INTERVALS else columns["start"]
        task = columns["newTaskId" if what == "TASK_CREATE" else "taskId"]
        parts.append(_Rows(columns["start"], end, columns["globalTid"], task, meaning))
    return _Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


OPENMP = Source(
    source_names.OPENMP,
    "OpenMP",
    OMP_TABLES,
    read_openmp,
    counted_tables=tuple(EventRows(table.name, "globalTid", application=False) for table in OMP_TABLES),
    noun="regions, tasks, waits",
    needed_by=(),
)


# ---- OpenACC ---------------------------------------------------------------------------------------------------------


_KINDS = {"OTHER": (), "DATA": ("bytes", "varName"), "LAUNCH": ("numGangs", "numWorkers", "vectorLength", "kernelName")}
"""CUPTI's kinds of activity, in the order of their types, with the columns that only the kind has."""
ACC_TABLES = {
    what: Table(
        f"CUPTI_ACTIVITY_KIND_OPENACC_{what}",
        ("start", "end", "globalTid", "eventKind"),
        {"srcFile": NULL, "lineNo": 0, "funcName": NULL, **dict.fromkeys(columns, NULL)},
    )
    for what, columns in _KINDS.items()
}

# CUpti_OpenAccEventKind: wait and implicit wait.
_ACC_WAITS = (7, 8)


def read_openacc(reader: ReportReader) -> Result:
    """Return an interval for each event, nested as the events of its kind of activity were."""
    result = Result()
    labels = reader.labels
    for i, (what, table) in enumerate(ACC_TABLES.items()):
        columns = reader.columns(table.name)
        result.read += columns.rows
        rows = select_sound_calls(result, columns["start"], columns["end"], columns["globalTid"])
        begin, end, kind, file, function = (
            columns[name][rows] for name in ("start", "end", "eventKind", "srcFile", "funcName")
        )
        kinds = np.where(np.isin(kind, list(OPENACC_KINDS)), kind, OPENACC_UNKNOWN)
        opening = [Pair(labels.handle(types.OPENACC[i]), kinds)]
        # An event without a name still gets a value, which hides the name of an outer event.
        if (file != NULL).any():
            lines = _name_source_lines(reader, file, columns["lineNo"][rows])
            opening.append(make_name_pair(labels, types.OPENACC_SOURCE[i], *lines))
        if (function != NULL).any():
            opening.append(make_id_pair(reader, types.OPENACC_FUNCTION[i], function))
        closing = [pair.handle for pair in opening]
        if what == "DATA":
            size, name = columns["bytes"][rows], columns["varName"][rows]
            opening.append(Pair(labels.handle(types.OPENACC_BYTES), np.where(size == NULL, 0, size)))
            closing.append(opening[-1].handle)
            opening.append(make_id_pair(reader, types.OPENACC_VARIABLE, name, name != NULL))
        elif what == "LAUNCH":
            for column, event_type in types.OPENACC_SIZES.items():
                opening.append(make_number_pair(labels, event_type, columns[column][rows]))
            name = columns["kernelName"][rows]
            opening.append(make_id_pair(reader, types.OPENACC_KERNEL, name, name != NULL))
        place = reader.places.threads(columns["globalTid"][rows], application=True)
        result.records.append(make_intervals(place, begin, end, opening, closing))
        result.add_states(place, begin, end, np.where(np.isin(kind, _ACC_WAITS), types.SYNCHRONIZATION, -1))
    return result


def _name_source_lines(reader: ReportReader, file: IntArray, line: IntArray) -> tuple[IntArray, list[str]]:
    """Return (index of each row, names `file:line`), without the folders, which may differ between ranks."""
    codes, pairs = find_distinct_rows(file, line)
    files = reader.strings(np.array([file for file, _ in pairs], np.int64))
    lines = ["" if file == NULL else f":{line}" for file, line in pairs]
    return codes, [path.rpartition("/")[2] + line for path, line in zip(files, lines, strict=True)]


OPENACC = Source(
    source_names.OPENACC,
    "OpenACC",
    tuple(ACC_TABLES.values()),
    read_openacc,
    counted_tables=tuple(EventRows(table.name, "globalTid") for table in ACC_TABLES.values()),
    noun="events",
    needed_by=(),
)
