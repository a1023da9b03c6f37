"""Reads the turns of the contexts that a GPU works for, also across processes.

A context is restored, works, and is saved. (The User Guide pairs the first start with the end that follows. The other
tags describe the switch itself and are not shown.)
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.intervals.nesting import mark_crossing
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source, pair_switches

TABLE = Table("GPU_CONTEXT_SWITCH_EVENTS", ("tag", "contextId", "timestamp", "gpuId"), {"globalPid": NULL, "seqNo": 0})

# ENUM_GPU_CTX_SWITCH
_SAVE_END, _RESTORE_START = 7, 8


def read(reader: ReportReader) -> Result:
    """Return an interval for each turn of a context. `read` counts turns."""
    columns = reader.columns(TABLE.name)
    result = Result()
    tag, context, time, gpu, pid = (columns[name] for name in ("tag", "contextId", "timestamp", "gpuId", "globalPid"))
    is_limit = np.isin(tag, (_SAVE_END, _RESTORE_START))
    unknown = is_limit & ((context == NULL) | reasons.lacks_time(time) | (gpu == NULL))
    rows = result.drop_rows({reasons.NO_CONTEXT: unknown, reasons.SWITCH_STEP: ~is_limit})
    # The sequence numbers of the GPU order events of the same time.
    rows = rows[np.lexsort((columns["seqNo"][rows], time[rows], context[rows], gpu[rows]))]
    owner, _ = encode_rows(gpu[rows], context[rows])
    why = reasons.NO_TURN_END, reasons.NO_TURN_START
    shown, end = pair_switches(result, owner, tag[rows] == _RESTORE_START, time[rows], *why)
    shown = rows[shown]
    nested = result.drop_rows({reasons.OVERLAPS_TURN: mark_crossing(gpu[shown], time[shown], end)})
    shown, end = shown[nested], end[nested]

    codes, contexts = find_distinct_rows(get_process(pid[shown]), context[shown])
    names = [_name_context(reader, *key) for key in contexts]
    pair = make_name_pair(reader.labels, types.GPU_CONTEXT, codes, names)
    handle = reader.labels.handle(types.GPU_CONTEXT)
    result.add_intervals(reader.places.devices(gpu[shown]), time[shown], end, [pair], [handle])
    return result


def _name_context(reader: ReportReader, process: int, context: int) -> str:
    """Return the name of a context, with its process if the process is known."""
    if process == get_process(np.int64(NULL)) or process & PID_MASK == 0:
        return f"context {context}"
    return f"{reader.metadata.get_process_name(process)} ({process & PID_MASK}), context {context}"


SOURCE = Source(
    source_names.GPU_CONTEXTS,
    "Contexts that GPUs work for",
    (TABLE,),
    read,
    counted_tables=(EventRows(TABLE.name),),
    noun="switch steps",
)
