"""Reads warnings and errors of nsys, as points on the row of the node.

Only messages with a time within the capture are read. The others came later, when the report was made; the result of
the translation counts all of them. Messages of lower severity are not read. Messages before or after everything else in
the trace are dropped, because they would make it longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.event_types import DIAGNOSTIC
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.diagnostics import ERROR, SEVERITIES, TABLE, WARNING, join_text
from nsys2prv_ng.sources.shared.reasons import NO_TIME, OUTSIDE_TRACE, lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, Result, Source

MESSAGES = Table(TABLE, (), {"timestamp": NULL, "timestampType": NULL, "severity": NULL}, text=("text",))

_ANALYSIS_HOST = 2
"""ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE: the time at which a machine made the report, on the clock of that machine."""


class _Messages(NamedTuple):
    """n messages: the time (ns) and label of each, and the place of the node."""

    time: IntArray
    labels: list[str]
    place: int


def read(reader: ReportReader) -> Result:
    """Leave the messages for `join`, because only the join gets the start and end of the trace."""
    columns = reader.columns(MESSAGES.name)
    severity = [SEVERITIES.get(code, "") for code in columns["severity"].tolist()]
    is_shown = np.array([text in (WARNING, ERROR) for text in severity], np.bool_)
    rows = np.flatnonzero(is_shown & (columns["timestampType"] != _ANALYSIS_HOST))
    if not rows.size:
        return Result()
    texts = columns.texts["text"].take(rows).to_pylist()
    labels = [f"{severity[row]}: {join_text(text)}" for row, text in zip(rows.tolist(), texts, strict=True)]
    reader.labels.declare(DIAGNOSTIC)
    reader.labels.name_ids(DIAGNOSTIC.names, labels)
    return Result(join_data=_Messages(columns["timestamp"][rows], labels, reader.places.node()))


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return a point for each message within the time of the trace."""
    result = Result()
    reports: list[tuple[JoinInput, _Messages]] = [(part, part.data) for part in parts if part.data is not None]
    labels = sorted({label for _, messages in reports for label in messages.labels})
    values = {label: Value(number, label) for number, label in enumerate(labels, 1)}
    for part, messages in reports:
        result.read += messages.time.size
        known = result.drop_rows({NO_TIME: lacks_time(messages.time)})
        time = part.clock(messages.time[known])
        value = np.array([values[label].number for label in messages.labels], np.int64)[known]
        within = result.drop_rows({OUTSIDE_TRACE: (time < part.windows[0][0]) | (time > part.windows[-1][1])})
        row = np.full(within.size, part.rows[messages.place], np.int64)
        result.records.append(make_events(row, time[within], [Pair(DIAGNOSTIC.number, value[within])]))
    if not reports:
        return JoinResult()
    return JoinResult({DIAGNOSTIC.names: values}, accounts={source_names.DIAGNOSTICS: result})


SOURCE = Source(
    source_names.DIAGNOSTICS, "Warnings and errors of nsys", (MESSAGES,), read, join, _Messages, accounted_in_join=True
)
