"""Turns of the contexts that a GPU works for, also between processes.

A context is restored, works, and is saved. (The User Guide pairs the first start with the end that follows; the other
tags, which describe the switch itself, are not shown.)
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources import source_names
from nsys2prv_ng.sources.shared.reasons import lacks_time
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

TABLE = Table("GPU_CONTEXT_SWITCH_EVENTS", ("tag", "contextId", "timestamp", "gpuId"), {"globalPid": NULL, "seqNo": 0})

# ENUM_GPU_CTX_SWITCH
_SAVE_END, _RESTORE_START = 7, 8


def read(reader: ReportReader) -> Result:
    """Return an interval for each turn of a context; turns are what counts as read."""
    columns = reader.columns(TABLE.name)
    result = Result()
    tag, context, time, gpu, pid = (columns[name] for name in ("tag", "contextId", "timestamp", "gpuId", "globalPid"))
    is_limit = np.isin(tag, (_SAVE_END, _RESTORE_START))
    unknown = is_limit & ((context == NULL) | lacks_time(time) | (gpu == NULL))
    result.drop("no context, GPU or time", int(unknown.sum()))
    result.drop("a step of the switch itself", int((~is_limit).sum()))
    rows = np.flatnonzero(is_limit & ~unknown)
    # The numbers that the GPU gave order what happened at one time.
    rows = rows[np.lexsort((columns["seqNo"][rows], time[rows], context[rows], gpu[rows]))]
    turns, _ = encode_rows(gpu[rows], context[rows])
    same = turns[1:] == turns[:-1]
    opens = tag[rows] == _RESTORE_START
    ended = np.flatnonzero(np.append(opens[:-1] & ~opens[1:] & same, False))
    lasting = np.flatnonzero(opens & ~np.append(same, False))
    unended = opens & np.append(opens[1:] & same, False)
    unbegun = ~opens & ~np.append(False, opens[:-1] & same)[: opens.size]
    result.drop("start of a turn without its end", int(unended.sum()))
    result.drop("end of a turn without its start", int(unbegun.sum()))
    result.read = int((~is_limit).sum() + unknown.sum() + opens.sum() + unbegun.sum())
    turn = np.concatenate([ended, lasting])
    shown, begin = rows[turn], time[rows[turn]]
    end = np.append(time[rows[ended + 1]], np.full(lasting.size, NO_END))
    crosses = mark_crossing(gpu[shown], begin, end)
    result.drop("partly overlaps another turn on its GPU", int(crosses.sum()))
    shown, begin, end = shown[~crosses], begin[~crosses], end[~crosses]
    if not shown.size:
        return result

    codes, contexts = find_distinct_rows(get_process(pid[shown]), context[shown])
    handle = reader.labels.handle(types.GPU_CONTEXT)
    names = [_name_context(reader, *key) for key in contexts]
    ids = reader.labels.name_ids(types.GPU_CONTEXT.names, names)[codes]
    place = reader.places.devices(gpu[shown])
    result.add_intervals(place, begin, end, [Pair(handle, ids)], [handle])
    return result


def _name_context(reader: ReportReader, process: int, context: int) -> str:
    """Return the name of a context, with its process if that is known."""
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
