"""Makes the records of the critical path: its kind on the row where it runs, and a line where it changes rows."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.analysis.path.critical_path import CriticalPath
from nsys2prv_ng.job.open_job import Job, store_joined
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair, make_communications, make_intervals
from nsys2prv_ng.sources.shared.source import JoinResult, Result

PATH, LINES = "critical_path", "path_lines"
"""Account names of the records that are derived from the critical path."""


def derive_path(job: Job, path: CriticalPath | None, labels: Labels) -> JoinResult:
    """Make and store the records of the critical path, if there is one, and declare their type in `labels`.

    An interval covers consecutive segments of the path on one row and of one kind, even if their operations or
    ranges differ.
    """
    joined = JoinResult()
    if path is None or not path.row.size:
        return joined
    follows = path.begin[1:] == path.end[:-1]  # otherwise another window starts
    same_row = path.row[1:] == path.row[:-1]
    first = np.append(0, 1 + np.flatnonzero(~(follows & same_row & (path.kind[1:] == path.kind[:-1]))))
    last = np.append(first[1:], path.row.size) - 1
    joined.accounts[PATH] = Result(read=first.size)
    number = types.CRITICAL_PATH.number
    pair = Pair(number, path.kind[first])
    joined.accounts[PATH].records = [
        make_intervals(path.row[first], path.begin[first], path.end[last], [pair], [number])
    ]
    after = 1 + np.flatnonzero(follows & ~same_row)
    if after.size:
        time = path.begin[after]
        lines = make_communications(path.row[after - 1], time, path.row[after], time, 0, types.TAG_PATH)
        joined.accounts[LINES] = Result(read=after.size, records=[lines])
    # The path ends with its window, which may end after the trace. A thread without events has row -1.
    store_joined(joined, np.append(job.new_row, -1), [(job.scope.first, job.scope.last)], job.store, job.engine)
    if joined.accounts[PATH].written:
        labels.declare(types.CRITICAL_PATH)
    return joined
