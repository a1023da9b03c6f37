"""Warnings and errors of nsys, as points on the row of the node.

Only those that have a time of the capture: others came when the report was made, afterwards. The summary counts all.
What nsys says for information is not read. Messages before or after all that the trace shows are dropped, since they
would make it longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver.event_types import DIAGNOSTIC
from nsys2prv_ng.paraver.labels import Value
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.diagnostics import ERROR, SEVERITIES, TABLE, WARNING, join_text
from nsys2prv_ng.sources.shared.reasons import NO_TIME, OUTSIDE_TRACE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import JoinInput, JoinResult, Source

MESSAGES = Table(TABLE, (), {"timestamp": NULL, "timestampType": NULL, "severity": NULL}, text=("text",))

_OF_HOST = 2
"""ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE: a time of the machine that made the report, while it did."""


class _Messages(NamedTuple):
    """Messages of n: time (ns), index of the label of each, and the labels; and the place of the node."""

    time: IntArray
    label: IntArray
    labels: list[str]
    place: int


def read(reader: ReportReader) -> Result:
    """Leaves the messages for `join`, which knows when the trace begins and ends."""
    columns = reader.columns(MESSAGES.name)
    severity = [SEVERITIES.get(each, "") for each in columns["severity"].tolist()]
    told = np.array([each in (WARNING, ERROR) for each in severity], np.bool_)
    rows = np.flatnonzero(told & (columns["timestampType"] != _OF_HOST))
    if not rows.size:
        return Result()
    texts = columns.texts["text"].take(rows).to_pylist()
    labels = [f"{severity[row]}: {join_text(text)}" for row, text in zip(rows.tolist(), texts, strict=True)]
    distinct = sorted(set(labels))
    index = {label: i for i, label in enumerate(distinct)}
    label = np.array([index[each] for each in labels], np.int64)
    reader.labels.declare(DIAGNOSTIC)
    reader.labels.name_ids(DIAGNOSTIC.names, distinct)
    return Result(shared=_Messages(columns["timestamp"][rows], label, distinct, reader.places.node()))


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """The messages in the time of the trace."""
    result = Result()
    told = [(part, part.shared) for part in parts if isinstance(part.shared, _Messages)]
    labels = sorted({label for _, messages in told for label in messages.labels})
    values = {label: Value(number, label) for number, label in enumerate(labels, 1)}
    for part, messages in told:
        result.read += messages.time.size
        row = part.rows[messages.place]
        known = messages.time != NULL
        result.drop(NO_TIME, int((~known).sum()))
        time = part.clock(messages.time[known])
        value = np.array([values[label].number for label in messages.labels], np.int64)[messages.label[known]]
        within = (time >= part.windows[0][0]) & (time <= part.windows[-1][1])
        result.drop(OUTSIDE_TRACE, int((~within).sum()))
        time = time[within]
        pair = Pair(DIAGNOSTIC.number, value[within])
        result.records.append(make_events(np.full(time.size, row, np.int64), time, [pair]))
    return JoinResult({DIAGNOSTIC.names: values} if values else {}, accounts={SOURCE.name: result} if told else {})


SOURCE = Source("diagnostics", "Warnings and errors of nsys", (MESSAGES,), read, join, derived=True)
